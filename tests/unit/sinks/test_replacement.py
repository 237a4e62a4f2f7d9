"""Replacing the rows of an interval in a Delta table, beside everybody else who writes it. delta-rs writes; no JVM."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from sluice import sinks
from sluice.errors import DeclarationError
from sluice.sinks import replacement
from sluice.storage import FileStat, Storage
from sluice.stream import Interval, Replaced, Replacement

QUERY = "the live query"
LAST_DAY = 3


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def append(table: Path, rows: list[tuple[int, int]], batch: int | None = None, *, part: str | None = None) -> None:
    """One commit of rows (day, n), as the live stream's batches are."""
    days = pa.array([date(2026, 1, number) for number, _ in rows], pa.date32())
    columns = {"day": days, "n": pa.array([n for _, n in rows], pa.int64())}
    if part is not None:
        columns["part"] = pa.array([part] * len(rows))
    transactions = None if batch is None else [Transaction(QUERY, batch)]
    write_deltalake(
        str(table),
        pa.table(columns),
        mode="append",
        partition_by=["day"] if part is None else ["day", "part"],
        commit_properties=CommitProperties(app_transactions=transactions),
    )


def wanted(first: int, last: int, version: int, *, application: str = "a", attempt: int = 0) -> Replacement:
    return Replacement("day", Interval(day(first), day(last + 1)), version, application, attempt)


def write_aside(table: Path, replaced: Replacement, rows: list[tuple[int, int]], *, part: str | None = None) -> None:
    """What Spark leaves: a folder per partition, and a file in each."""
    for number in sorted({number for number, _ in rows}):
        folder = table / f"{replaced.application}-{replaced.attempt}" / f"day=2026-01-{number:02d}"
        if part is not None:
            folder /= f"part={quote(part, safe=' ')}"
        folder.mkdir(parents=True)
        values = pa.array([n for found, n in rows if found == number], pa.int64())
        parquet.write_table(pa.table({"n": values}), folder / "part-00000.parquet")


def held(table: Path) -> Counter[tuple[int, int]]:
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return Counter((row["day"].day, row["n"]) for row in found)


def publish(table: Path, replaced: Replacement, storage: Storage | None = None) -> Replaced | None:
    return replacement.publish(str(table), replaced, storage=storage or Storage())


class Interrupted(Storage):
    """A storage in which something happens just before the commit: when the first file written aside is measured."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act: Callable[[], object] | None = act

    def stat(self, location: str) -> FileStat | None:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().stat(location)


class TestPublish:
    """One commit of metadata."""

    def test_replaces_the_interval_of_its_version_only(self, tmp_path: Path) -> None:
        """Rows of other days stay, and so do those that came after the version."""
        append(tmp_path, [(1, 1), (2, 2), (3, 3)], 0)
        mine = wanted(2, 2, 0)
        write_aside(tmp_path, mine, [(2, 20), (2, 21)])
        append(tmp_path, [(2, 4), (3, 5)], 1)

        done = publish(tmp_path, mine)

        assert held(tmp_path) == Counter([(1, 1), (2, 20), (2, 21), (2, 4), (3, 3), (3, 5)])
        assert done == Replaced(2, read_version=0, attempt=0, rows_replaced=1, rows_written=2, conflict=None)
        assert replacement.find_replacement(str(tmp_path), "a", 0, storage=Storage()) == done
        assert replacement.find_replacement(str(tmp_path), "a", 2, storage=Storage()) is None
        assert replacement.find_replacement(str(tmp_path), "b", 0, storage=Storage()) is None

    def test_nothing_in_place_of_something_and_back(self, tmp_path: Path) -> None:
        """An interval may lose all of its rows, and get some where it had none."""
        append(tmp_path, [(1, 1), (2, 2)], 0)
        assert publish(tmp_path, wanted(2, 2, 0)) is not None
        assert held(tmp_path) == Counter([(1, 1)])
        back = wanted(2, 2, 1, application="b")
        write_aside(tmp_path, back, [(2, 3)])

        assert publish(tmp_path, back) is not None
        assert held(tmp_path) == Counter([(1, 1), (2, 3)])

    @pytest.mark.parametrize("part", ["a b:c", "x%y", "ü=1", "a/b"])
    def test_partitions_with_odd_names(self, tmp_path: Path, part: str) -> None:
        """Values that are escaped in the names of folders stay what they are, and are found when rewritten."""
        append(tmp_path, [(1, 1), (2, 2)], 0, part=part)
        mine = wanted(1, 1, 0)
        write_aside(tmp_path, mine, [(1, 10)], part=part)
        assert publish(tmp_path, mine) is not None
        rows = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
        assert {(row["day"].day, row["n"], row["part"]) for row in rows} == {(1, 10, part), (2, 2, part)}

        append(tmp_path, [(1, 11)], 1, part=part)
        again = wanted(1, 1, 2, application="b")
        write_aside(tmp_path, again, [(1, 12)], part=part)
        DeltaTable(str(tmp_path)).optimize.compact()

        assert publish(tmp_path, again) is None

    def test_a_compaction_before(self, tmp_path: Path) -> None:
        """Files of the interval that were rewritten since are noticed: nothing is committed."""
        append(tmp_path, [(1, 1)], 0)
        append(tmp_path, [(1, 2)], 1)
        mine = wanted(1, 1, 1)
        write_aside(tmp_path, mine, [(1, 10)])
        DeltaTable(str(tmp_path)).optimize.compact()

        assert publish(tmp_path, mine) is None
        assert held(tmp_path) == Counter([(1, 1), (1, 2)])

    def test_a_compaction_of_what_came_after_is_no_conflict(self, tmp_path: Path) -> None:
        """Rows that the live stream wrote after the version may be rewritten as anybody likes."""
        append(tmp_path, [(1, 1)], 0)
        append(tmp_path, [(2, 1)], 1)
        append(tmp_path, [(2, 2)], 2)
        mine = wanted(1, 1, 0)
        write_aside(tmp_path, mine, [(1, 10)])
        DeltaTable(str(tmp_path)).optimize.compact()

        assert publish(tmp_path, mine) is not None
        assert held(tmp_path) == Counter([(1, 10), (2, 1), (2, 2)])

    def test_a_compaction_at_the_last_moment(self, tmp_path: Path) -> None:
        """Delta commits without a word; the log tells afterwards, to this try and to every later one."""
        append(tmp_path, [(1, 1)], 0)
        append(tmp_path, [(1, 2)], 1)
        mine = wanted(1, 1, 1)
        write_aside(tmp_path, mine, [(1, 10)])

        done = publish(tmp_path, mine, Interrupted(DeltaTable(str(tmp_path)).optimize.compact))

        assert done is not None
        assert "rewrote or removed files of the interval" in (done.conflict or "")
        assert replacement.find_replacement(str(tmp_path), "a", 1, storage=Storage()) == done
        repaired = wanted(1, 1, done.version, attempt=1)
        write_aside(tmp_path, repaired, [(1, 10)])
        assert publish(tmp_path, repaired) is not None
        assert held(tmp_path) == Counter([(1, 10)])

    @pytest.mark.parametrize("before", [[(1, 1)], [(2, 1)]], ids=["rows", "none"])
    def test_two_backfills_of_one_interval(self, tmp_path: Path, before: list[tuple[int, int]]) -> None:
        """The second one finds the first, also where there was no row that both could remove."""
        append(tmp_path, before, 0)
        first, second = wanted(1, 1, 0), wanted(1, 1, 0, application="b")
        write_aside(tmp_path, first, [(1, 10)])
        write_aside(tmp_path, second, [(1, 10)])

        done = publish(tmp_path, second, Interrupted(lambda: publish(tmp_path, first)))

        assert done is None or done.conflict is not None
        third = wanted(1, 1, DeltaTable(str(tmp_path)).version(), application="b", attempt=1)
        write_aside(tmp_path, third, [(1, 10)])
        assert publish(tmp_path, third) is not None
        assert held(tmp_path) == Counter({(1, 10): 1} | ({(2, 1): 1} if before == [(2, 1)] else {}))


class TestSnapshot:
    """What a table is to a backfill."""

    def test_partitioned(self, tmp_path: Path) -> None:
        """Whole partitions are replaced by metadata; the version tells which batch it holds."""
        append(tmp_path, [(1, 1)], 0)
        append(tmp_path, [(1, 2)], 1)
        found = sinks.delta(str(tmp_path)).snapshot("day", QUERY, storage=Storage())
        assert found is not None
        assert (found.version, found.last_batch, found.column_kind, found.obstacle) == (1, 1, "date", None)

    def test_no_table(self, tmp_path: Path) -> None:
        """A table that is yet to be made has no version."""
        assert sinks.delta(str(tmp_path / "lake")).snapshot("day", QUERY, storage=Storage()) is None

    @pytest.mark.parametrize(("column", "told"), [("n", "is of type long"), ("dya", "is none of its columns")])
    def test_column(self, tmp_path: Path, column: str, told: str) -> None:
        """A column that is none, or has no times, is named."""
        append(tmp_path, [(1, 1)], 0)
        with pytest.raises(DeclarationError, match=told):
            sinks.delta(str(tmp_path)).snapshot(column, QUERY, storage=Storage())

    def test_a_setting_that_only_spark_heeds(self, tmp_path: Path) -> None:
        """A change feed is no business of a commit of metadata."""
        rows = pa.table({"day": pa.array([date(2026, 1, 1)]), "n": [1]})
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(str(tmp_path), rows, partition_by=["day"], configuration=feed)
        found = sinks.delta(str(tmp_path)).snapshot("day", QUERY, storage=Storage())
        assert found is not None
        assert "delta.enableChangeDataFeed" in (found.obstacle or "")

    def test_a_constraint(self, tmp_path: Path) -> None:
        """Constraints are checked by Spark alone."""
        append(tmp_path, [(1, 1)], 0)
        DeltaTable(str(tmp_path)).alter.add_constraint({"positive": "n > 0"})
        found = sinks.delta(str(tmp_path)).snapshot("day", QUERY, storage=Storage())
        assert found is not None
        assert found.obstacle is not None

    def test_append_only(self, tmp_path: Path) -> None:
        """A table that takes appends only is refused."""
        rows = pa.table({"day": pa.array([date(2026, 1, 1)]), "n": [1]})
        write_deltalake(str(tmp_path), rows, partition_by=["day"], configuration={"delta.appendOnly": "true"})
        with pytest.raises(DeclarationError, match=r"delta\.appendOnly"):
            sinks.delta(str(tmp_path)).snapshot("day", QUERY, storage=Storage())


STEP = st.sampled_from(["live", "late", "compact", "look", "aside", "publish", "raced", "retry"])


@settings(max_examples=int(os.environ.get("SLUICE_INTERLEAVINGS", "25")), deadline=None)
@given(st.lists(st.tuples(STEP, st.integers(0, 2), st.integers(1, LAST_DAY)), min_size=4, max_size=14))
def test_any_interleaving(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]) -> None:
    """Live commits, compactions and three backfills, which may die and be retried after every step: each row is once.

    A row comes as it is, and a backfill negates it: so it shows which rows the newest backfill has seen.
    """
    lake = _Lake(tmp_path_factory.mktemp("lake"))
    for step, who, first in steps:
        lake.take(step, who, first)
        assert held(lake.table) == Counter(
            (found, -n if (found, n) in lake.negated else n) for found, n in lake.arrived
        )


class _Lake:
    """A table, its live stream, and the backfills under way."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.arrived = [(number, n) for n in (1, 2) for number in range(1, LAST_DAY + 1)]
        self.negated: set[tuple[int, int]] = set()
        self._batch, self._runs = 1, 0
        self._under_way: dict[int, tuple[Replacement, list[tuple[int, int]]]] = {}
        # Two files a day: a compaction has something to do from the beginning.
        append(table, self.arrived[:LAST_DAY], 0)
        append(table, self.arrived[LAST_DAY:], 1)

    def take(self, step: str, who: int, first: int) -> None:
        if step in {"live", "late"}:
            self._batch += 1
            rows = [(first, 100 * self._batch), (LAST_DAY if step == "live" else 1, 100 * self._batch + 1)]
            append(self.table, rows, self._batch)
            self.arrived += rows
        elif step == "compact":
            DeltaTable(str(self.table)).optimize.compact()
        else:
            if step == "look" or who not in self._under_way:
                self._look(who, first, first + who)
            self._go_on(step, who)

    def _go_on(self, step: str, who: int) -> None:
        mine, _ = self._under_way[who]
        if step == "aside":
            self._aside(who)
        elif step == "retry":
            self._begin_again(who)
        elif step in {"publish", "raced"}:
            compact = DeltaTable(str(self.table)).optimize.compact
            self._aside(who)
            done = publish(self.table, mine, Interrupted(compact) if step == "raced" else None)
            if done is None or done.conflict is not None:
                self._begin_again(who)
            else:
                self._note(who)

    def _look(self, who: int, first: int, last: int) -> None:
        """Fix a version of the table, and what belongs to it of what arrived."""
        self._runs += 1
        version = DeltaTable(str(self.table)).version()
        mine = wanted(first, min(last, LAST_DAY), version, application=f"run-{self._runs}")
        self._under_way[who] = (mine, [row for row in self.arrived if first <= row[0] <= last])

    def _aside(self, who: int) -> None:
        mine, taken = self._under_way[who]
        if not (self.table / f"{mine.application}-0").exists():
            write_aside(self.table, mine, [(found, -n) for found, n in taken])

    def _begin_again(self, who: int) -> None:
        interval = self._under_way[who][0].interval
        self._look(who, interval.start.day, interval.end.day - 1)
        self._aside(who)
        done = publish(self.table, self._under_way[who][0])
        assert done is not None
        assert done.conflict is None
        self._note(who)

    def _note(self, who: int) -> None:
        self.negated |= set(self._under_way.pop(who)[1])
