"""The function of a pipeline's flow, as the transform of a stream: what it reads as a stream are the sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.pipelines.definitions import Recorder, reads_of, run_file
from sluice.pipelines.flows import Flow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FlowTransform:
    """Calls the flow's function anew at each call, as its file is then."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def __call__(self, **frames: DataFrame) -> DataFrame:
        """The flow's result.

        Raises:
            DeclarationError: The file does not define the flow any more, or it reads something else by now.
        """
        session = next(iter(frames.values())).sparkSession
        element, recorder = self._flow.element, Recorder()
        with _reading(type(session), self._flow, frames):
            run_file(element.file, recorder, session)
            found = next((flow for flow in recorder.flows if flow.name == element.name), None)
            if found is None:
                raise DeclarationError(
                    f"the file does not define the flow `{element.name}` any more",
                    where=element.file,
                    remedy="plan again",
                )
            result: DataFrame = found.func()
        return result


@contextmanager
def _reading(session_class: Any, flow: Flow, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Let `readStream` of every session give the sources: files of definitions get theirs by many ways."""
    from pyspark.sql.connect.streaming.readwriter import DataStreamReader

    class SourceReader(DataStreamReader):
        """Describes what is read as Spark Connect does, and gives the source that was declared from the same."""

        def _df(self, plan: Any) -> Any:
            described = plan.plan(None)
            for read in reads_of(described):
                name = next((name for name, known in flow.reads.items() if known == read), None)
                if name is not None:
                    return frames[name]
            raise DeclarationError(
                f"the flow `{flow.element.name}` reads something else than when it was planned",
                where=f"{flow.element.file}:{flow.element.line}",
                remedy="let it read the same whenever it is called",
            )

    kept = session_class.__dict__["readStream"]
    session_class.readStream = property(SourceReader)
    try:
        yield
    finally:
        session_class.readStream = kept
