"""A Delta table by day, its live stream, and backfills of it: delta-rs writes, what Spark does is modelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import parquet

from sluice.interval import Interval
from sluice.local_disk import FileStat
from sluice.sinks.contract import Aside
from sluice.sinks.delta import replacement
from sluice.sinks.delta.table_form import form_of
from sluice.sinks.replaceable import Replaced, Replacement
from sluice.storage import Storage

QUERY = "the live query"


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
    folder = table / f"{replaced.application}-{replaced.attempt}"
    files = tuple(str(file) for file in sorted(folder.rglob("*.parquet")))
    aside = Aside(str(folder), files, form_of(DeltaTable(str(table), version=replaced.version)))
    return replacement.publish(str(table), replaced, aside, storage=storage or Storage())


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
