"""What runs and their jobs are called in events: the same for every try of a run, wherever it is told from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import JobFacet, RunFacet, error_message_run, job_type_job, parent_run, sql_job
from openlineage.client.facet_v2 import processing_engine_run as engine_run
from openlineage.client.uuid import generate_static_uuid

from sluice.errors import SluiceError
from sluice.lineage.settings import LineageSettings
from sluice.planning.declared_sql import declared_sql
from sluice.project import Project
from sluice.runs.record import RunRecord
from sluice.stream import Stream

_DISTRIBUTION = "sluice-streaming"
_INTEGRATION = "SLUICE"


def installed_version(distribution: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def producer() -> str:
    """What names us as the one who tells."""
    return f"urn:{_DISTRIBUTION}:{installed_version(_DISTRIBUTION) or 'unknown'}"


@attr.define
class SluiceRunFacet(RunFacet):
    """What a run is called in the stream's home, and what its plan said."""

    runId: str  # noqa: N815 - of the record
    stream: str
    generation: int | None = attr.field(default=None)
    tries: int | None = attr.field(default=None)
    queryId: str | None = attr.field(default=None)  # noqa: N815
    """Spark's, of the checkpoint."""
    strategy: str | None = attr.field(default=None)
    reason: str | None = attr.field(default=None)
    batches: int | None = attr.field(default=None)
    """How many are done."""
    lastBatch: int | None = attr.field(default=None)  # noqa: N815
    """The id of the newest of them, as Spark has it."""
    gate: str | None = attr.field(default=None)
    """The verdict of the suite."""

    @staticmethod
    def _get_schema() -> str:
        return f"urn:{_DISTRIBUTION}:SluiceRunFacet:1"


@dataclass(frozen=True)
class StreamJob:
    """The job of a stream, or of what else is done with its tables."""

    project: Project
    stream: Stream
    settings: LineageSettings
    part: str = ""
    """What is done apart from the stream's runs: `audit`, `release`."""

    @property
    def namespace(self) -> str:
        """The one that is configured, else the project's name."""
        return self.settings.namespace or self.project.name

    @property
    def name(self) -> str:
        """`PROJECT.STREAM`, and what else is done with it as a third part."""
        return ".".join(filter(None, (self.project.name, self.stream.name, self.part)))

    def run_id(self, began_at: datetime, *what: object) -> str:
        """The UUID of a run, drawn from when it was planned and from what tells it from others."""
        data = "/".join(map(str, (self.namespace, self.name, *what)))
        return str(generate_static_uuid(began_at, data.encode()))

    def id_of(self, record: RunRecord) -> str:
        """The UUID of a run: every try of it finds the same record, and has the same."""
        return self.run_id(record.planned_at, record.generation, record.run_key or record.run_id)

    def without_parent(self) -> StreamJob:
        """The same, a run of which is no part of another one."""
        return replace(self, settings=replace(self.settings, parent=None, root=None))

    def event(
        self,
        state: RunState,
        at: str,
        run_id: str,
        facets: Mapping[str, RunFacet | None],
        *,
        inputs: list[InputDataset],
        outputs: list[OutputDataset],
        is_endless: bool = False,
    ) -> RunEvent:
        """An event of a run of this job.

        Args:
            state: What has become of the run.
            at: When, as ISO 8601.
            run_id: Its UUID.
            facets: What else is told of it; those that are None are left out.
            inputs: What it reads.
            outputs: What it writes.
            is_endless: Whether its query is kept at work for a time, in place of ending with its input.
        """
        told = {"parent": self._parent(), "processing_engine": self._engine(), **facets}
        return RunEvent(
            eventTime=at,
            eventType=state,
            run=Run(run_id, {name: facet for name, facet in told.items() if facet is not None}),
            job=Job(self.namespace, self.name, self._facets(is_endless=is_endless)),
            inputs=inputs,
            outputs=outputs,
        )

    def _facets(self, *, is_endless: bool) -> dict[str, JobFacet]:
        kind = "STREAMING" if is_endless else "BATCH"
        found: dict[str, JobFacet] = {
            "jobType": job_type_job.JobTypeJobFacet(kind, _INTEGRATION, self.part.upper() or "STREAM")
        }
        query = None if self.part else self._sql()
        if query is not None:
            found["sql"] = sql_job.SQLJobFacet(query, dialect="spark")
        return found

    def _sql(self) -> str | None:
        try:
            found = declared_sql(self.project, self.stream)
        except SluiceError:
            # Whoever runs it has said so; here it is only not told.
            return None
        return None if found is None else found.without_literals

    def _parent(self) -> parent_run.ParentRunFacet | None:
        parent, root = self.settings.parent, self.settings.root or self.settings.parent
        if parent is None or root is None:
            return None
        return parent_run.ParentRunFacet(
            parent_run.Run(parent.run_id),
            parent_run.Job(parent.namespace, parent.job),
            parent_run.Root(parent_run.RootRun(root.run_id), parent_run.RootJob(root.namespace, root.job)),
        )

    @staticmethod
    def _engine() -> engine_run.ProcessingEngineRunFacet | None:
        found = installed_version("pyspark")
        if found is None:
            return None
        return engine_run.ProcessingEngineRunFacet(found, "spark", installed_version(_DISTRIBUTION))


def error_facet(message: str | None) -> error_message_run.ErrorMessageRunFacet | None:
    """Why something failed; None where nothing did."""
    return None if message is None else error_message_run.ErrorMessageRunFacet(message, "PYTHON")


def run_facet(record: RunRecord) -> SluiceRunFacet:
    """What a run's record tells that OpenLineage has no word for."""
    return SluiceRunFacet(
        runId=record.run_id,
        stream=record.stream,
        generation=record.generation,
        tries=record.tries,
        queryId=record.query_id,
        strategy=record.plan.strategy or None,
        reason=record.plan.reason or None,
        batches=len(record.batches),
        lastBatch=max((batch.batch_id for batch in record.batches), default=None),
        gate=record.quality.verdict if record.quality is not None else None,
    )
