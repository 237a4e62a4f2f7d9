"""Whether batches were read as they were planned, of sources whose input may become another one while Spark reads it.

Looked at before the rows of a batch count, where a function of Sluice's publishes them; else right after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sluice.errors import BatchFailedError, Problem, RefusedError
from sluice.home import Generation, SourceLine
from sluice.running.batch_logs import BatchLogs
from sluice.sources.contract import ExpiringSource, Position
from sluice.spark.progress import Report
from sluice.storage import Storage
from sluice.stream import Stream


@dataclass(frozen=True)
class ReadInputs:
    """The inputs of one generation's batches."""

    stream: Stream
    generation: Generation
    logs: BatchLogs
    position: Callable[[SourceLine, str | None], Position]
    """Where a source is at an offset, with what is known of it."""
    storage: Storage
    _checked: set[int] = field(default_factory=set)

    def check(self, batch_id: int) -> None:
        """Look at a batch whose rows are computed, and do not count yet.

        Raises:
            RefusedError: They may be others than were planned.
        """
        for problem in self._problems(batch_id, {}):
            if problem.is_blocking:
                raise RefusedError(problem)
        self._checked.add(batch_id)

    def told(self, batch_id: int, report: Report) -> tuple[list[str], BatchFailedError | None]:
        """What to tell of a committed batch, and what to raise of it: its rows may be others."""
        problems = list(self._problems(batch_id, report))
        told = [
            f"{found.cause} [{found.file}]; {found.consequence}; {found.remedy}"
            for found in problems
            if not found.is_blocking
        ]
        wrong = next((found for found in problems if found.is_blocking and batch_id not in self._checked), None)
        if wrong is None:
            return told, None
        return told, BatchFailedError(
            f"batch {batch_id} is committed, and was not read as it was planned: {wrong.cause}",
            where=wrong.file,
            remedy=f"look for the rows of the batch in the sink, they may be others; {wrong.remedy}",
        )

    def _problems(self, batch_id: int, report: Report) -> Iterator[Problem]:
        expiring = {name: source for name, source in self.stream.sources.items() if isinstance(source, ExpiringSource)}
        if not expiring:
            return
        starts, ends = self.logs.offsets(batch_id - 1), self.logs.offsets(batch_id)
        reported = report.get("sources", [])
        # Spark reports a source once, however often the plan reads it.
        lines = {line.log: (index, line) for index, line in reversed([*enumerate(self.generation.lines)])}
        for number, (index, line) in enumerate(sorted(lines.values(), key=lambda found: found[0])):
            source, end = expiring.get(line.source), ends[index] if index < len(ends) else None
            start = starts[index] if index < len(starts) else None
            if source is None or end is None or end == start:
                continue
            rows = reported[number].get("numInputRows") if number < len(reported) else None
            yield from source.check_read(self.position(line, start), end, rows, storage=self.storage)
