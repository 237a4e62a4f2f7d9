"""Compares the tables with DuckDB, which reads the original data and none of ours."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from demo.landing import BAD_DAY

_FLIGHTS = """
create table flights as select
    make_date(year, month, day) as flight_date,
    make_timestamp(year, month, day, sched_dep_time // 100, sched_dep_time % 100, 0.0) as scheduled_at,
    carrier, flight, upper(tailnum) as tailnum, origin, dest,
    dep_time is null as is_cancelled, dep_delay, arr_delay, distance
from read_csv(?, nullstr = 'NA', header = true, columns = {
    'year': 'int', 'month': 'int', 'day': 'int', 'dep_time': 'int', 'sched_dep_time': 'int', 'dep_delay': 'int',
    'arr_time': 'int', 'sched_arr_time': 'int', 'arr_delay': 'int', 'carrier': 'varchar', 'flight': 'int',
    'tailnum': 'varchar', 'origin': 'varchar', 'dest': 'varchar', 'air_time': 'int', 'distance': 'int', 'hour': 'int',
    'minute': 'int', 'time_hour': 'varchar'})
"""
_ODD = "(dest in ('EWR', 'JFK', 'LGA') or tailnum not like 'N%')"
"""What the suite puts into the quarantine, in other words than the suite's."""
_DEPARTURES = f"select * from flights where {_ODD} is not true"
_BROKEN = f"""
select * replace (dest as origin, origin as dest) from flights where flight_date = '{BAD_DAY}' and flight % 2 = 1
"""
_QUARANTINE = f"select * from flights where {_ODD} union all {_BROKEN}"
_LANDED = f"select * from flights union all {_BROKEN}"
"""Every row that landed, once."""
_HOURLY = """
select hour as "start", hour + interval 1 hour as "end", origin, count(*) as flights,
    count(*) filter (is_cancelled) as cancelled, sum(dep_delay)::bigint as total_dep_delay,
    max(dep_delay) as max_dep_delay
from (select *, date_trunc('hour', scheduled_at) as hour from departures)
where hour + interval 1 hour <= ?::timestamp
group by hour, origin
"""


def compare(csv_file: Path, lake: Path, watermark: str) -> list[tuple[str, int, int, int]]:
    """Compare the tables row by row: departures, their quarantine, both together, and the hourly statistics.

    Every row that landed is expected exactly once: in the departures or in their quarantine. Of the bad day, what was
    broken is in the quarantine, and what came in its place among the departures.

    Args:
        csv_file: The original data.
        lake: The folder of the Delta tables.
        watermark: ISO 8601; hours that end after it are not closed yet.

    Returns:
        For each its name, its rows, the rows that are missing in it, and those that are in it beyond the expected ones
        (a row that is there twice counts once here).
    """
    closed = datetime.fromisoformat(watermark).replace(tzinfo=None)
    with duckdb.connect() as database:
        database.execute("set threads = 2; set timezone = 'UTC'")
        database.execute(_FLIGHTS, [str(csv_file)])
        database.execute(f"create view departures as {_DEPARTURES}")
        for name in ("departures", "departures_quarantine", "hourly_delays"):
            load_table(database, lake / name)
        return [
            compare_rows(database, ["departures"], _DEPARTURES),
            compare_rows(database, ["departures_quarantine"], _QUARANTINE),
            compare_rows(database, ["departures", "departures_quarantine"], _LANDED),
            compare_rows(database, ["hourly_delays"], _HOURLY, [closed]),
        ]


def load_table(database: duckdb.DuckDBPyConnection, table: Path) -> None:
    """Read a Delta table into `actual_NAME`, with times as DuckDB's own are: without a zone."""
    from deltalake import DeltaTable

    actual = DeltaTable(str(table)).to_pyarrow_table()  # noqa: F841 - DuckDB finds it by its name
    database.execute("create or replace temp view raw as select * from actual")
    columns = ", ".join(
        f'"{column}"::timestamp as "{column}"' if "TIME ZONE" in kind else f'"{column}"'
        for column, kind, *_ in database.execute("describe raw").fetchall()
    )
    database.execute(f"create temp table actual_{table.name} as select {columns} from raw")


def compare_rows(
    database: duckdb.DuckDBPyConnection, tables: list[str], expected: str, parameters: list[Any] | None = None
) -> tuple[str, int, int, int]:
    """Compare what tables that were loaded have together with the rows of a query.

    Returns:
        Their names, their rows, the rows that are missing in them, and those that are in them beyond the expected ones.
    """
    database.execute(f"create or replace temp table expected_rows as {expected}", parameters or [])
    order = ", ".join(f'"{row[0]}"' for row in database.execute("describe expected_rows").fetchall())

    def count(query: str) -> int:
        return int(database.execute(f"select count(*) from ({query})").fetchall()[0][0])

    wanted = f"select {order} from expected_rows"
    found = " union all ".join(f"(select {order} from actual_{table})" for table in tables)
    return (
        " + ".join(tables),
        count(found),
        count(f"({wanted}) except all ({found})"),
        count(f"({found}) except all ({wanted})"),
    )
