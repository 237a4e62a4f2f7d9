"""The function of a pipeline's flow, as the transform of a stream: what it reads as a stream are the sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.pipelines.definitions import Recorder, reads_of, run_file
from sluice.pipelines.flows import Flow
from sluice.project import Project
from sluice.project_code import importing_from
from sluice.spark.pipeline_tables import pipeline_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FlowTransform:
    """Calls the flow's function anew at each call, as its file is then."""

    def __init__(self, project: Project, flow: Flow) -> None:
        self._project, self._flow = project, flow

    def __call__(self, **frames: DataFrame) -> DataFrame:
        """The flow's result.

        Raises:
            DeclarationError: The file does not define the flow any more, or it reads something else by now.
        """
        session = next(iter(frames.values())).sparkSession
        element, recorder, unread = self._flow.element, Recorder(), dict(frames)
        with (
            importing_from(self._project.import_roots),
            pipeline_tables(session, self._flow),
            self._reading(type(session), frames, unread),
        ):
            run_file(element.file, recorder, session)
            found = next((flow for flow in recorder.flows if flow.name == element.name), None)
            if found is None:
                raise DeclarationError(
                    f"the file does not define the flow `{element.name}` any more",
                    where=element.file,
                    remedy="plan again",
                )
            result: DataFrame = found.func()
        if unread:
            reads = self._flow.reads[next(iter(unread))]
            what = reads.table or ", ".join(reads.paths) or reads.format
            raise DeclarationError(
                f"the flow `{element.name}` uses what it reads from {what} twice, for which Spark has a source each",
                where=f"{element.file}:{element.line}",
                remedy="read it anew for each use, by `readStream`",
            )
        return result

    @contextmanager
    def _reading(
        self, session_class: Any, frames: Mapping[str, DataFrame], unread: dict[str, DataFrame]
    ) -> Iterator[None]:
        """Let `readStream` of every session give the sources: files of definitions get theirs by many ways."""
        from pyspark.sql.connect.streaming.readwriter import DataStreamReader

        def declared(read: Any) -> DataFrame:
            return self._source(read, frames, unread)

        class SourceReader(DataStreamReader):
            """Describes what is read as Spark Connect does, and gives the source that was declared from the same."""

            def _df(self, plan: Any) -> Any:
                return declared(plan.plan(None))

        kept = session_class.__dict__["readStream"]
        session_class.readStream = property(SourceReader)
        try:
            yield
        finally:
            session_class.readStream = kept

    def _source(self, plan: Any, frames: Mapping[str, DataFrame], unread: dict[str, DataFrame]) -> DataFrame:
        """The next source that is declared from what a plan reads; once all are given, the last of them."""
        for read in reads_of(plan):
            names = [name for name, known in self._flow.reads.items() if known == read]
            if names:
                name = next((name for name in names if name in unread), names[-1])
                unread.pop(name, None)
                return frames[name]
        # It may depend on what nobody can notice, such as the clock.
        self._project.forget_definitions()
        raise DeclarationError(
            f"the flow `{self._flow.element.name}` reads something else than when it was planned",
            where=f"{self._flow.element.file}:{self._flow.element.line}",
            remedy="run it again; let it read the same whenever it is called",
        )
