"""What the logs of the tables say of a return of rows: whether it has sent them, and whether they are there still."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.errors import Problem, RefusedError
from sluice.gate.returned_rows import RowReturn, marks_gone, sent_rows_gone
from sluice.sinks.replaceable import RETURN_PREFIX
from sluice.sinks.splitting import SplittingSink
from sluice.storage import Storage

SENT, SEALED = 0, 1
"""Of the transactions of a return, even ones send its rows, odd ones say that it has not sent them by then."""


def application(return_id: str) -> str:
    """What names a return in the sink's log."""
    return f"{RETURN_PREFIX}{return_id}"


@dataclass(frozen=True)
class ReturnEvidence:
    """The two tables of a return, asked by their logs; what was taken back by a `RESTORE` does not count."""

    sink: SplittingSink
    quarantine: SplittingSink
    storage: Storage

    def last(self, return_id: str) -> int | None:
        """The newest transaction of a return in the sink's log; None where it has none."""
        return self.sink.state(application(return_id), storage=self.storage).last_batch

    def is_sent(self, return_id: str) -> bool:
        """Whether the sink shows what a return has sent."""
        last = self.last(return_id)
        if last is None:
            return False
        # A restore may bring back what was sent before another one was sealed.
        sent = self.sink.outcomes(application(return_id), range(SENT, last + 1, 2), storage=self.storage)
        if last % 2 == SENT and last not in sent:
            # The log does not tell any more in which version.
            return True
        return any(self._taken_back(made.version) is None for made in sent.values())

    def check_marks(self, returning: RowReturn) -> None:
        """Make sure that rows which a return has sent are not in the quarantine again, without its mark.

        Raises:
            RefusedError: Somebody has restored the quarantine to before they were marked.
        """
        found = self._unmarked(returning)
        if found is not None and self.is_sent(returning.return_id):
            raise RefusedError(marks_gone(returning, found.file))

    def check_done(self, done: Iterable[RowReturn]) -> None:
        """The same for the returns of this quarantine that are over: where the newest one's marks are, all are.

        Raises:
            RefusedError: See `check_marks`.
        """
        for found in sorted(done, key=lambda found: found.quarantine_version or 0, reverse=True):
            if self._unmarked(found) is None:
                return
            self.check_marks(found)

    def check_moved(self, returning: RowReturn) -> None:
        """Make sure that rows which a return has claimed, and which have no mark any more, are in one of the tables.

        Raises:
            RefusedError: They had left the quarantine, and somebody has restored the sink to before they came.
        """
        last = self.last(returning.return_id)
        if not returning.rows or last is None or last % 2 != SENT or self.is_sent(returning.return_id):
            return
        made = self.sink.outcome(application(returning.return_id), last, storage=self.storage)
        gone = None if made is None else self._taken_back(made.version)
        if gone is not None and self._unmarked(returning) is None:
            raise RefusedError(sent_rows_gone(returning, gone))

    def _unmarked(self, returning: RowReturn) -> Problem | None:
        """That somebody has restored the quarantine to before a return had marked its rows."""
        marked = returning.quarantine_version
        if marked is None:
            return None
        return self.quarantine.taken_back_since(marked, is_pending=True, storage=self.storage)

    def _taken_back(self, version: int | None) -> Problem | None:
        """That somebody has restored the sink to before a version of it."""
        if version is None:
            return None
        return self.sink.taken_back_since(version, is_pending=True, storage=self.storage)
