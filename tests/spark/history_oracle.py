"""Where the rows of a history must be: a batch computation of it, to compare with the tables after every step.

What was declared when a batch was decided tells where its rows go, and by which transform. A batch is decided once,
with the first commit that has a part of it, or with the decision on disk before that. What a kill in the middle of a
backfill or of a release has left is the one thing that may be in two places, and is named row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from deltalake import DeltaTable

from tests.spark.history_streams import Declared, Place

TABLES = ("out", "out_quarantine", "elsewhere", "moved")
QUARANTINES = ("out_quarantine", "elsewhere")


@dataclass
class Oracle:
    """What is known of one history's rows."""

    root: Path
    arrived: Mapping[int, date]
    """Every row that is to be somewhere, and its day."""
    tell: Callable[[], str]
    """Tells what was done, where something is wrong."""
    known: dict[int, Place | None] = field(default_factory=dict)
    """Where each row is, once it was seen there; None where it is in no table any more."""
    decided: dict[int, Declared] = field(default_factory=dict)
    """What was declared when each batch was decided."""
    loose: dict[int, list[Place | None]] = field(default_factory=dict)
    """The rows that are being moved, and where each may be meanwhile: in each of these places once, at the same time,
    and in no table only with a None."""

    def note_step(
        self,
        declared: Declared,
        batches: Iterable[int],
        *,
        committed: int,
        staged: Collection[int] = (),
        query_id: str,
        let_through: Collection[int] = (),
    ) -> None:
        """Note which batches a step has decided; one that was decided before stays as it was.

        Args:
            declared: What was declared during the step.
            batches: All that are planned by now.
            committed: The newest one that is committed.
            staged: Those of which a decision is on disk.
            query_id: The query whose transactions the tables have.
            let_through: Those that somebody has released.
        """
        taken = max((self.newest_batch(table, query_id) for table in TABLES), default=-1)
        for batch_id in batches:
            if batch_id <= max(taken, committed) or batch_id in staged:
                is_let_through = batch_id in let_through
                self.decided.setdefault(batch_id, replace(declared, is_let_through=is_let_through))
            else:
                # A table has refused it, and none has a part of it: it is decided anew.
                self.decided.pop(batch_id, None)

    def newest_batch(self, table: str, query_id: str) -> int:
        """The newest batch that a table has taken; -1 for none."""
        opened = self._open(table)
        version = opened.transaction_version(query_id) if opened is not None else None
        return -1 if version is None else version

    def check(self, batches: Mapping[int, list[int]], *, is_complete: bool, dropped: Collection[int] = ()) -> None:
        """Compare the tables with what must be in them.

        Args:
            batches: The rows that each batch has read as the first, and not too late.
            is_complete: Whether a run was completed: then every row has its place.
            dropped: The rows that were read too late.
        """
        found = self.found()
        for number, place in self.known.items():
            self._expect(number, found.get(number, []), place)
        for batch_id, numbers in batches.items():
            for number in numbers:
                if number in self.known or (number not in found and not is_complete):
                    continue
                declared = self.decided.get(batch_id)
                assert declared is not None, self._story(number, f"batch {batch_id} is not decided, and has it")
                place = found[number][0] if number in found else None
                allowed = declared.allowed(number)
                assert place in allowed, self._story(number, f"it is in {place}, not in {allowed} by {declared}")
                self.known[number] = place
        unread = found.keys() - self.known.keys()
        assert not unread, self._story(min(unread, default=0), "no batch has read it")
        if is_complete:
            missing = self.arrived.keys() - self.known.keys() - {*dropped}
            assert not missing, self._story(min(missing, default=0), f"no batch has read {sorted(missing)}")

    def replaced(self, declared: Declared, numbers: Collection[int], batches: Mapping[int, list[int]]) -> None:
        """Rows were computed anew, by what is declared now; all others are where they were.

        Args:
            declared: What is declared.
            numbers: Which rows.
            batches: The rows that each batch has read as the first, and not too late.
        """
        found = self.found()
        for number in numbers:
            places, allowed = found.get(number, []), declared.allowed(number)
            place = places[0] if places else None
            assert place in allowed, self._story(number, f"it is in {places}, not in {allowed} by {declared}")
            self.known[number] = place
        self.check(batches, is_complete=False)

    def place_of(self, number: int) -> Place:
        """Where a row is that is known to be in a table."""
        place = self.known[number]
        assert place is not None, self._story(number, "it is in no table")
        return place

    def settle(self, moved: Mapping[int, Place]) -> None:
        """Rows were moved, and nothing is loose any more."""
        self.loose = {}
        self.known |= moved

    def found(self) -> dict[int, list[Place]]:
        """The places of each row in the tables; no row has two, but one that is being moved."""
        found: dict[int, list[Place]] = {}
        for table in TABLES:
            for row in self.rows(table, "n", "v"):
                found.setdefault(row["n"], []).append((table, row["v"]))
        for number, places in found.items():
            assert len(places) == 1 or number in self.loose, self._story(
                number, f"it is there {len(places)} times, in {places}"
            )
        return found

    def rows(self, table: str, *columns: str) -> list[dict[str, int]]:
        """The rows of a table as delta-rs reads them; none where there is no table."""
        opened = self._open(table)
        return [] if opened is None else opened.to_pyarrow_table(columns=[*columns]).to_pylist()

    def columns(self, table: str) -> list[str]:
        """The columns of a table; none where there is no table."""
        opened = self._open(table)
        return [] if opened is None else [column.name for column in opened.schema().fields]

    def partitions(self, table: str) -> list[str] | None:
        """What a table is partitioned by; None where there is no table."""
        opened = self._open(table)
        return None if opened is None else [*opened.metadata().partition_columns]

    def _open(self, table: str) -> DeltaTable | None:
        # A kill may leave the folder of a log that has no commit.
        is_there = any((self.root / table / "_delta_log").glob("[0-9]*"))
        return DeltaTable(str(self.root / table)) if is_there else None

    def _expect(self, number: int, places: list[Place], place: Place | None) -> None:
        if number in self.loose:
            allowed = self.loose[number]
            is_right = Counter[Place | None](places or [None]) <= Counter(allowed)
            assert is_right, self._story(number, f"it is being moved, and in {places}, not in {allowed}")
            return
        expected = [] if place is None else [place]
        assert places == expected, self._story(number, f"it was in {expected}, and is in {places}")

    def _story(self, number: int, what: str) -> str:
        return f"row {number}: {what}\n{self.tell()}"
