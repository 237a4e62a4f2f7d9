"""Whether batches were read as they were planned, of sources whose input may become another one while Spark reads it.

Looked at before the rows of a batch count, where a function of Sluice's publishes them; else right after. What a batch
has read that no plan has seen is noted then, so that a later run knows it from something else under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from sluice.errors import BatchFailedError, Problem, RefusedError, SluiceError
from sluice.home import Generation, SourceLine, lines_by_log
from sluice.running.batch_logs import BatchLogs
from sluice.running.known_generation import KnownGeneration
from sluice.sources.contract import ExpiringSource, MarkedSource, Position
from sluice.spark.progress import Report
from sluice.stream import Stream

_Source = TypeVar("_Source", bound=MarkedSource)


class _Input(NamedTuple, Generic[_Source]):
    """What a batch reads of a source."""

    line: SourceLine
    source: _Source
    start: str | None
    end: str
    number: int
    """Which of those that Spark reports it is."""


@dataclass(frozen=True)
class ReadInputs:
    """The inputs of one generation's batches."""

    stream: Stream
    known: KnownGeneration
    logs: BatchLogs
    position: Callable[[SourceLine, str | None], Position]
    """Where a source is at an offset, with what is known of it."""
    _checked: set[int] = field(default_factory=set)

    def check(self, batch_id: int) -> None:
        """Look at a batch whose rows are computed, and do not count yet.

        Raises:
            RefusedError: They may be others than were planned.
            StorageError: A source can't be asked right now.
        """
        for found in self._inputs(batch_id):
            for problem in self._problems(found, None):
                if problem.is_blocking:
                    raise RefusedError(problem)
            self._note(found, self._new_mark(found))
        self._checked.add(batch_id)

    def told(self, batch_id: int, report: Report) -> tuple[list[str], BatchFailedError | None]:
        """What to tell of a committed batch, and what to raise of it: its rows may be others.

        Its rows count, whatever can be found out of them by now.
        """
        told: list[str] = []
        for found in self._inputs(batch_id):
            is_checked = batch_id in self._checked
            if is_checked and not found.source.may_lose:
                continue
            try:
                problems = self._problems(found, self._rows(found, report))
                wrong = None if is_checked else next((problem for problem in problems if problem.is_blocking), None)
                mark = self._new_mark(found) if wrong is None and not is_checked else None
            except SluiceError as exc:
                told.append(f"whether batch {batch_id} was read as it was planned is not known: {exc}")
                continue
            told += [
                f"{problem.cause} [{problem.file}]; {problem.consequence}; {problem.remedy}"
                for problem in problems
                if not problem.is_blocking
            ]
            if wrong is not None:
                return told, BatchFailedError(
                    f"batch {batch_id} is committed, and was not read as it was planned: {wrong.cause}",
                    where=wrong.file,
                    remedy=f"look for the rows of the batch in the sink, they may be others; {wrong.remedy}",
                )
            self._note(found, mark)
        return told, None

    def note_decided(self, batch_id: int) -> list[str]:
        """Note what a committed batch has read that Spark alone has planned; tells what could not be noted.

        The mark of its end holds for all before it: something else in its place has another newest part, too.
        """
        told: list[str] = []
        every = self.stream.sources.items()
        # Of the others, `told` has seen to it.
        marked = {name: it for name, it in every if isinstance(it, MarkedSource) and not isinstance(it, ExpiringSource)}
        for found in self._read_of(marked, batch_id):
            try:
                mark = found.source.mark(found.end, storage=self.known.home.storage)
            except SluiceError as exc:
                told.append(
                    f"what tells source `{found.line.source}`, as batch {batch_id} has read it, from an older copy"
                    f" could not be noted: {exc}"
                )
                continue
            self._note(found, mark)
        return told

    def _inputs(self, batch_id: int) -> Iterator[_Input[ExpiringSource]]:
        expiring = {name: source for name, source in self.stream.sources.items() if isinstance(source, ExpiringSource)}
        return self._read_of(expiring, batch_id)

    def _read_of(self, sources: Mapping[str, _Source], batch_id: int) -> Iterator[_Input[_Source]]:
        if not sources:
            return
        starts, ends = self.logs.offsets(batch_id - 1), self.logs.offsets(batch_id)
        for number, (index, line) in enumerate(lines_by_log(self._lines).values()):
            source, end = sources.get(line.source), ends[index] if index < len(ends) else None
            start = starts[index] if index < len(starts) else None
            if source is not None and end is not None and end != start:
                yield _Input(line, source, start, end, number)

    def _problems(self, found: _Input[ExpiringSource], rows: int | None) -> tuple[Problem, ...]:
        position = self.position(found.line, found.start)
        return found.source.check_read(position, found.end, rows, storage=self.known.home.storage)

    def _rows(self, found: _Input[ExpiringSource], report: Report) -> int | None:
        """How many rows Spark has read; None where it does not tell, or counts some twice."""
        reported = report.get("sources", [])
        is_read_once = [line.source for line in self._lines].count(found.line.source) == 1
        return reported[found.number].get("numInputRows") if is_read_once and found.number < len(reported) else None

    def _new_mark(self, found: _Input[ExpiringSource]) -> str | None:
        position = self.position(found.line, found.start)
        return found.source.mark_read(position, found.end, storage=self.known.home.storage)

    def _note(self, found: _Input[Any], mark: str | None) -> None:
        if mark is not None:
            self.known.keep(partial(_with_mark, name=found.line.source, mark=mark))

    @property
    def _lines(self) -> tuple[SourceLine, ...]:
        return self.known.generation.lines


def _with_mark(known: Generation, name: str, mark: str) -> Generation:
    return msgspec.structs.replace(known, marks={**known.marks, name: mark})
