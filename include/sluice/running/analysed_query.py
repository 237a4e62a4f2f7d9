"""The query of a run, in a session that was opened for it: on a warm Spark, or on one of its own."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.plan import Plan
from sluice.planning.begun_stream import as_begun
from sluice.planning.survey import Survey
from sluice.running.observers import Observer
from sluice.running.preparation import Preparation
from sluice.running.warm_runs import why_own_query, why_own_spark
from sluice.runs.lease import Lease
from sluice.runs.record import RunRecord
from sluice.spark.java import Work
from sluice.spark.query import Query, build_query
from sluice.spark.served import NotServed, is_served, warm_failure
from sluice.spark.session import SessionOpener, close_session, open_served
from sluice.spark.writers import check_home, name_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class QueryMaker:
    """Opens the session of a run, and lets Spark analyse its query; nothing of the stream is written yet."""

    observer: Observer
    session: SparkSession | None
    """A session to use in place of any other."""
    opener: SessionOpener
    """Opens one of its own."""
    opened: ExitStack
    """The session, once it is opened."""

    def analyse(self, preparation: Preparation, lease: Lease, record: RunRecord, plan: Plan, seen: Survey) -> Query:
        """The query: on a warm Spark, if the project has one that does for this run what one of its own would do."""
        project, of_run = preparation.project, _OfRun(preparation, lease, record, plan, seen)
        self.observer.phase("starting Spark")
        # A wrong reference need not wait for Spark.
        project.check_function(preparation.stream.transform)
        if self.session is None and is_served(project):
            why = why_own_spark(plan, seen, preparation.home)
            try:
                query = None if why is not None else self._analyse(of_run, open_served)
                why = why if query is None else why_own_query(query)
                if query is not None and why is None:
                    return query
            except NotServed as exc:
                why = str(exc)
            except Exception as exc:
                # Nothing was written: what is really wrong, a Spark of its own says.
                why = warm_failure(exc)
            self.opened.close()
            lease.add_session(None)
            self.observer.phase(f"starting a Spark of its own: {why}")
        return self._analyse(of_run, self.opener)

    def _analyse(self, of_run: _OfRun, opener: SessionOpener) -> Query:
        preparation, project, seen = of_run.preparation, of_run.preparation.project, of_run.seen
        session = self._open(of_run, opener)
        name_writer(project, session, of_run.lease)
        check_home(project, session, preparation.journal.records.file(of_run.record.run_id))
        self.observer.phase("analysing the query")
        begun = seen.known if seen.checkpoint.planned is not None else None
        return build_query(project, as_begun(preparation.stream, begun), session, seen.starts)

    def _open(self, of_run: _OfRun, opener: SessionOpener) -> SparkSession:
        if self.session is not None:
            return self.session
        size_bytes = of_run.plan.size_bytes
        work = None if size_bytes is None else Work(size_bytes, len(of_run.plan.batches))
        session = opener(of_run.preparation.project, of_run.preparation.stream, work=work)
        self.opened.callback(close_session, session)
        return session


@dataclass(frozen=True)
class _OfRun:
    """What a run has decided by the time that it starts Spark."""

    preparation: Preparation
    lease: Lease
    record: RunRecord
    plan: Plan
    seen: Survey
