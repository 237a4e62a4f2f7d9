"""What the logs of the tables say of a return of rows: whether it has sent them, and whether they are there still."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sluice.auditing.quarantine import is_quarantine
from sluice.errors import Problem, RefusedError
from sluice.gate.returned_rows import RowReturn, marks_gone, sent_rows_gone, shown_again
from sluice.locations import same_for_every_name
from sluice.project import Project
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
    is_empty: Callable[[], bool]
    """Whether the quarantine has no rows, as Spark counts them."""

    def last(self, return_id: str) -> int | None:
        """The newest transaction of a return in the sink's log; None where it has none."""
        return self.sink.state(application(return_id), storage=self.storage).last_batch

    def is_about(self, returning: RowReturn) -> bool:
        """Whether the quarantine is the one of a return, as far as its document tells."""
        if not is_quarantine(self.quarantine, storage=self.storage):
            return False
        return returning.quarantine_identity in {None, self.quarantine.state(None, storage=self.storage).identity}

    def has_sent(self, return_id: str) -> bool:
        """Whether a return has ever sent rows into the sink, which may not show them any more."""
        return bool(self._sent(return_id))

    def is_sent(self, return_id: str) -> bool:
        """Whether the sink shows what a return has sent."""
        # A restore may bring back what was sent before another one was sealed.
        return any(version is None or self._taken_back(version) is None for version in self._sent(return_id))

    def _sent(self, return_id: str) -> list[int | None]:
        """The versions in which a return has sent rows; None for one that the log does not tell any more."""
        last = self.last(return_id)
        if last is None:
            return []
        sent = self.sink.outcomes(application(return_id), range(SENT, last + 1, 2), storage=self.storage)
        is_told = last % 2 != SENT or last in sent
        return [made.version for made in sent.values()] if is_told else [None]

    def check_marks(self, returning: RowReturn) -> None:
        """Make sure that rows which a return has sent are not in the quarantine again, without its mark.

        Raises:
            RefusedError: Somebody has restored the quarantine to before they were marked.
        """
        if self._is_unmarked(returning) and self.is_sent(returning.return_id) and not self.is_empty():
            raise RefusedError(marks_gone(returning, self.quarantine.location or ""))

    def check_over(self, returns: Iterable[RowReturn], project: Project) -> None:
        """Make sure that no row of this quarantine is in the sink as well, by returns that are over.

        Raises:
            RefusedError: See `check_marks`; or somebody has taken the sink back to before the rows of one, and then
                forward again.
        """
        here = self.quarantine.state(None, storage=self.storage)
        over = [found for found in returns if found.is_over and self._is_from(found, here.identity, project)]
        is_older = self._is_older(max(over, key=lambda found: found.quarantine_version or 0)) if over else False
        if not is_older and not any(part.is_restored(storage=self.storage) for part in (self.quarantine, self.sink)):
            return
        for found in over:
            if found.state == "done":
                self.check_marks(found)
            elif self.is_sent(found.return_id) and not self.is_empty():
                raise RefusedError(shown_again(found, self.sink.location or ""))

    def _is_from(self, found: RowReturn, here: str | None, project: Project) -> bool:
        """Whether a return's quarantine is this table; older documents tell its place alone."""
        if found.quarantine is None or found.quarantine_identity is not None:
            return found.quarantine_identity is not None and found.quarantine_identity == here
        then, now = found.quarantine.sink(project).location or "", self.quarantine.location or ""
        return same_for_every_name(then) == same_for_every_name(now)

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
        if gone is not None and not self._is_unmarked(returning):
            raise RefusedError(sent_rows_gone(returning, gone))

    def _is_unmarked(self, returning: RowReturn) -> bool:
        """Whether the quarantine is as it was before a return had marked its rows: restored, or an older copy."""
        marked = returning.quarantine_version
        if marked is None:
            return False
        is_taken_back = self.quarantine.taken_back_since(marked, is_pending=True, storage=self.storage) is not None
        return is_taken_back or self._is_older(returning)

    def _is_older(self, returning: RowReturn) -> bool:
        """Whether the quarantine is a copy from before a return had marked its rows, which may be written on by now."""
        marked, here = returning.quarantine_version, self.quarantine.state(None, storage=self.storage)
        if marked is None or returning.quarantine_identity != here.identity:
            return False
        if (here.version or 0) < marked:
            return True
        found = self.quarantine.version_digest(marked, storage=self.storage)
        return None not in (found, returning.quarantine_digest) and found != returning.quarantine_digest

    def _taken_back(self, version: int | None) -> Problem | None:
        """That somebody has restored the sink to before a version of it."""
        if version is None:
            return None
        return self.sink.taken_back_since(version, is_pending=True, storage=self.storage)
