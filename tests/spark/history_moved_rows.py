"""What moves rows in the life of a stream that are there: backfills and releases, to their end and cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sluice.auditing.return_rows import return_rows
from sluice.errors import DeclarationError, RefusedError, SluiceError
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from tests.spark.history_inputs import DAYS
from tests.spark.history_oracle import QUARANTINES, TABLES
from tests.spark.history_others import Others
from tests.spark.history_streams import WIDE, Place
from tests.spark.power_cuts import Cut, Moment


@dataclass
class MovedRows(Others):
    """A life with runs, others, backfills and releases."""

    def backfill(self, day: int) -> None:
        if self.inputs.newest("commits") >= 0:
            self.heed_tables()
            self._backfill(DAYS[day])

    def cut_backfill(
        self, day: int, then: str, edit: Mapping[str, Any], *, match: str, nth: int, moment: Moment
    ) -> None:
        """It is asked for again, as Airflow does; a run may come first, and what is declared may have changed since.

        Where that is refused, the first may be half done, or done: it is declared as then, as the remedy says, or so
        that nothing is bad.
        """
        gone = self.inputs.renamed or self.inputs.lost
        if self.inputs.newest("commits") < 0 or self._is_left() or gone or self.releasing is not None:
            return
        self.heed_tables()
        begun, chosen = self.declared, DAYS[day]
        if self._may_miss_late_rows(chosen, self._newest()):
            return
        self.cut("backfill", Cut(match, nth, moment), lambda: self._replace(chosen))
        self.oracle.loose = {
            number: [place, *begun.allowed(number)]
            for number, place in self.oracle.known.items()
            if self.inputs.days[number] == chosen
        }
        self._meanwhile(then)
        self.oracle.loose = {}
        if edit:
            self.edit(**edit)
            self.heed_tables()
        transform = WIDE if "extra" in self.oracle.columns(begun.sink) else 1
        for declared in (self.declared, begun, replace(begun, policy="warn", transform=transform)):
            self.declared = declared
            if self._backfill(chosen, is_half_done=True):
                return
        raise AssertionError("a killed backfill can't be done again")

    def release(self, *, is_corrected: bool = False) -> None:
        """Send the rows back that pass, or all of them, once the suite is corrected."""
        if is_corrected and self._is_released():
            self.edit(policy="warn")
        if not self._is_released() or not (self.releasing or self.oracle.rows(self.declared.quarantine, "n")):
            return
        self.heed_tables()
        self.declare()
        moved = self._to_release() if self.releasing is None else self.releasing
        self._release()
        self.told.append(f"release: {sorted(moved)}")
        self.releasing = None
        self.oracle.settle(moved)
        self.look(is_complete=False)

    def cut_release(
        self, then: str, edit: Mapping[str, Any], *, is_corrected: bool, match: str, nth: int, moment: Moment
    ) -> None:
        """It is asked for again, by whomever, also with what is declared since; and at last as it was."""
        if is_corrected and self._is_released():
            self.edit(policy="warn")
        if not self._is_released() or not self.oracle.rows(self.declared.quarantine, "n"):
            return
        self.heed_tables()
        self.releasing = self._to_release()
        self.oracle.loose = {n: [place, self.oracle.place_of(n)] for n, place in self.releasing.items()}
        begun = self.declared
        self.cut("release", Cut(match, nth, moment), self._release)
        if edit:
            self.edit(**edit)
        self._meanwhile(then)
        if edit:
            self._release_otherwise()
            self.edit(policy=begun.policy, quarantine=begun.quarantine)
        self.release()

    def _meanwhile(self, then: str) -> None:
        """What comes between a kill and what goes on."""
        if then == "run":
            self.run()
        elif then == "backfill":
            self.backfill(0)
        elif then:
            for pick in range(len(TABLES)):
                self.maintain(pick, then)

    def _release_otherwise(self) -> None:
        """Release with another declaration than that of the one that was killed: it is finished where it began.

        Its rows that fail by now stay in the quarantine, unless they are in the sink; others of today's quarantine
        that pass are sent.
        """
        self.declare()
        more = self._to_release() if self._is_released() else {}
        try:
            self._release()
        except (RefusedError, DeclarationError) as exc:
            self.told.append(f"release refused: {exc}")
            if not self._is_refused(exc):
                raise
        else:
            self.told.append(f"release otherwise: {sorted(more)}")
            for number, place in more.items():
                self.oracle.known[number] = place
                self.oracle.loose.pop(number, None)
        self.look(is_complete=False)

    def _is_refused(self, exc: SluiceError) -> bool:
        """Whether a release must be refused as it is declared."""
        if isinstance(exc, RefusedError):
            return self.followed is not None and self.followed.sink != self.declared.sink
        return self.declared.policy == "none" or self.is_partitioned_otherwise()

    def _backfill(self, day: date, *, is_half_done: bool = False) -> bool:
        """Whether it was done, and not refused."""
        self.declare()
        newest = self._newest()
        must, may = self._refusals(day, newest)
        try:
            self._replace(day)
        except SluiceError as exc:
            code = exc.finding.code if isinstance(exc, RefusedError) else type(exc).__name__
            self.told.append(f"backfill {day} refused: {exc}")
            if code not in must | may:
                raise
            if not is_half_done:
                self.look(is_complete=False)
            return False
        assert not must, f"a backfill is done in spite of {must}"
        self.told.append(f"backfill {day}")
        computed = self._rows_of(day, newest)
        for number in computed if self.releasing is not None else ():
            # Of a release that died before it was begun nothing is known: they are not its rows any more.
            self.releasing.pop(number, None)
            self.oracle.loose.pop(number, None)
        self.oracle.replaced(self.declared, computed, self.inputs.batches())
        return True

    def _newest(self) -> int:
        """The newest batch that has done its part: a backfill computes what was read up to it."""
        in_sink = self.oracle.newest_batch(self.declared.sink, self.inputs.query_id())
        return max(in_sink, self.inputs.newest("commits"))

    def _rows_of(self, day: date, newest: int) -> list[int]:
        """The rows of a day that were read up to a batch, those that came too late, too."""
        return sorted(number for number in self.inputs.read_to(newest) if self.inputs.days[number] == day)

    def _may_miss_late_rows(self, day: date, newest: int) -> bool:
        """Whether a row of a day that was dropped as late may come again in time: the watermark is in that day."""
        start = 24 * DAYS.index(day)
        return self.declared.shape == "late" and start <= self.inputs.watermark_of(newest) < start + 24

    def _refusals(self, day: date, newest: int) -> tuple[set[str], set[str]]:
        """For what a backfill must be refused, and for what it may be."""
        gone, lost = self.inputs.renamed.keys(), self.inputs.lost
        rows = self._rows_of(day, newest)
        bad = [self.declared.may_be_bad(number) for number in rows]
        may_miss = self._may_miss_late_rows(day, newest)
        is_wide = "extra" in self.oracle.columns(self.declared.sink)
        must = {
            "QUARANTINE_LEFT": self._is_left(),
            # It needs nothing of a batch that is not committed.
            "BACKFILL_INPUT_GONE": bool(gone & self.inputs.committed_files()),
            "QualityFailedError": self.declared.is_stopping and {True} in bad,
            "DeclarationError": is_wide != self.declared.is_wide,
            "BACKFILL_LATE_ROWS": may_miss and bool(self.inputs.late().intersection(rows)),
        }
        may = {
            # What a batch has not read, it need not be read again.
            "BACKFILL_INPUT_GONE": bool(gone or lost),
            "BACKFILL_LATE_ROWS": may_miss,
            "RELEASE_UNFINISHED": self.releasing is not None,
            "QualityFailedError": self.declared.is_stopping and {True, False} in bad,
        }
        return {code for code, is_so in must.items() if is_so}, {code for code, is_so in may.items() if is_so}

    def _is_left(self) -> bool:
        """Whether an earlier quarantine has rows, so that no interval is recomputed."""
        own = self.declared.quarantine if self.declared.policy != "none" else ""
        return any(place != own and self.oracle.rows(place, "n") for place in QUARANTINES)

    def _replace(self, day: date) -> None:
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        declared = self.lab.project.resolve(self.declared.stream())
        request = BackfillRequest(declared, Interval(start, start + timedelta(days=1)))
        backfill_stream(self.lab.project, request, session=self.lab.spark)

    def _is_released(self) -> bool:
        return self.declared.policy != "none" and self.inputs.newest("commits") >= 0

    def _to_release(self) -> dict[int, Place]:
        """The rows that a release sends, and where they are then: those that pass, as they are in the quarantine.

        A batch that is not committed keeps its rows there.
        """
        passing, committed = self.declared.policy in {"warn", "hold"}, self.inputs.newest("commits")
        found = self.oracle.rows(self.declared.quarantine, "n", "bad", "_batch_id")
        rows = [row for row in found if row["_batch_id"] <= committed]
        there = {
            n: place for row in rows if (place := self.oracle.known.get(n := row["n"])) and (passing or not row["bad"])
        }
        return {
            n: (self.declared.sink, mark) for n, (table, mark) in there.items() if table == self.declared.quarantine
        }

    def _release(self) -> None:
        project = self.lab.project
        declared = project.resolve(self.declared.stream())
        return_rows(project, declared, where=None, returned_by="somebody", session=self.lab.spark)
