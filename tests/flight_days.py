"""Ten days of real flights that arrive in two parts, and what DuckDB makes of all that has arrived."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""
DAYS = 10
_ARRIVED = 1_767_225_600
"""When day 0 arrived; the others a second later each."""
KEY = ["flight_date", "carrier", "flight", "origin", "sched_dep_time"]


@dataclass(frozen=True)
class FlightDays:
    """Days of flights, each in two parts, of which the second arrives late.

    Args:
        root: They land in `land`, the table is `lake`.
        archive: A file per day of the year.
    """

    root: Path
    archive: Path

    @property
    def table(self) -> Path:
        """The table of flights."""
        return self.root / "lake"

    def land(self, first: int, last: int, *, rest: bool = False) -> None:
        """Let days arrive: of each the first two thirds, or the rest."""
        (self.root / "land").mkdir(exist_ok=True)
        for day in range(first, last + 1):
            lines = (self.archive / f"flights-2013-01-{day:02d}.csv").read_text("utf-8").splitlines()
            cut = len(lines) * 2 // 3
            part = [lines[0], *(lines[cut:] if rest else lines[1:cut])]
            file = self.root / "land" / f"{day:02d}-{int(rest)}.csv"
            file.write_text("\n".join(part), "utf-8")
            os.utime(file, (_ARRIVED + day, _ARRIVED + day))

    def rows(self) -> Counter[tuple[Any, ...]]:
        """What the table holds, read by delta-rs."""
        found = DeltaTable(str(self.table)).to_pyarrow_table().select([*KEY, "tailnum", "distance"])
        return Counter(zip(*(found.column(name).to_pylist() for name in found.column_names), strict=True))

    def expected(self, first: int, last: int) -> Counter[tuple[Any, ...]]:
        """DuckDB's answer over all that has arrived: kilometers from day `first` to `last`, miles elsewhere."""
        query = f"""
            select make_date(year, month, day) as flight_date, carrier, flight, origin, sched_dep_time, upper(tailnum),
                case when day between {first} and {last} then round(distance * 1.609344)::int else distance end
            from read_csv('{self.root}/land/*.csv', header = true, nullstr = 'NA', all_varchar = false, columns = {{
                'year': 'int', 'month': 'int', 'day': 'int', 'dep_time': 'int', 'sched_dep_time': 'int',
                'dep_delay': 'int', 'arr_time': 'int', 'sched_arr_time': 'int', 'arr_delay': 'int',
                'carrier': 'varchar', 'flight': 'int', 'tailnum': 'varchar', 'origin': 'varchar', 'dest': 'varchar',
                'air_time': 'int', 'distance': 'int', 'hour': 'int', 'minute': 'int', 'time_hour': 'varchar'}})
        """
        with duckdb.connect() as database:
            return Counter(database.execute(query).fetchall())
