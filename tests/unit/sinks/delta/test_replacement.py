"""Replacing the rows of an interval in a Delta table, beside everybody else who writes it. No JVM."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice import sinks
from sluice.errors import DeclarationError
from sluice.interval import Interval
from sluice.sinks.delta import replacement
from sluice.sinks.replaceable import Replaced
from sluice.storage import Storage
from tests.lake import QUERY, Interrupted, append, held, publish, wanted, write_aside

DAY = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


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

    @pytest.mark.parametrize(
        ("partition_by", "days", "told"),
        [
            (["day"], [1], "there may be some"),
            (["day"], [0, 2], "none"),
            ([], [0, 1], "there may be some"),
            ([], [2, 3], "none"),
            ([], [0, 2], "there may be some"),
            ([], [None], "there may be some"),
            ([], [], "none"),
        ],
    )
    def test_rows_of_the_interval(
        self, tmp_path: Path, partition_by: list[str], days: list[int | None], told: str
    ) -> None:
        """Partitions or statistics tell that there are none; else there may be some."""
        values = [None if day is None else date(2025, 12, 31) + timedelta(days=day) for day in days]
        rows = pa.table({"day": pa.array(values, pa.date32()), "n": pa.array(days, pa.int64())})
        write_deltalake(str(tmp_path), rows, partition_by=partition_by or None)

        may_have = sinks.delta(str(tmp_path)).may_have_rows(0, "day", DAY, storage=Storage())

        assert may_have == (told != "none")

    def test_no_table(self, tmp_path: Path) -> None:
        """A table that is yet to be made has no version."""
        assert sinks.delta(str(tmp_path / "lake")).snapshot("day", QUERY, storage=Storage()) is None

    @pytest.mark.parametrize(("column", "told"), [("n", "is of type long"), ("dya", "is no column of the table")])
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
