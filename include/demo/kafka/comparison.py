"""Compares the tables with DuckDB, which reads the records that were sent and none of ours."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb

from demo.comparison import compare_rows, load_table

_EVENTS = """
create table events as
select topic, told->>'flight' as flight, told->>'kind' as kind, told->>'tailnum' as tailnum,
    told->>'origin' as origin, told->>'dest' as dest, (told->>'at')::timestamptz::timestamp as moment
from (select topic, value::json as told from read_json(
    ?, format = 'newline_delimited', columns = {topic: 'varchar', partition: 'int', value: 'varchar'}))
"""
_FLIGHTS = """
select off.flight, off.tailnum, off.origin, off.dest, off.moment as departed_at, down.moment as landed_at,
    off.moment::date as flight_date
from events off left join events down on down.topic = 'landings' and down.flight = off.flight
    and down.moment between off.moment and off.moment + interval 12 hours
where off.topic = 'departures' and off.kind = 'departed'
    and (down.moment is not null or off.moment + interval 12 hours < (
        select least(
            max(moment) filter (where topic = 'departures' and kind = 'departed'),
            max(moment) filter (where topic = 'landings')
        ) - interval 6 hours from events))
"""
"""A flight without a landing is told once none can come any more: events of either topic may be six hours late."""
_AIRCRAFT = """
with changes as (
    select tailnum, moment as "at", flight, coalesce(kind, 'landed') as kind,
        case topic when 'departures' then origin else dest end as airport
    from events where tailnum is not null)
select * from (
    select *, "at" as "__START_AT", lead("at") over (partition by tailnum order by "at") as "__END_AT" from changes)
where kind <> 'cancelled'
"""


class Compared(NamedTuple):
    """How a table compares with DuckDB's answer."""

    table: str
    rows: int
    missing: int
    extra: int

    @property
    def is_right(self) -> bool:
        """Whether it has every row once, and no other; and any."""
        return self.rows > 0 and self.missing == self.extra == 0


def compare(produced: Path, lake: Path) -> list[Compared]:
    """Compare the flights with their landings, and the history of the aircraft, row by row.

    Args:
        produced: A line of JSON for each record that was sent.
        lake: The folder of the Delta tables.
    """
    with duckdb.connect() as database:
        database.execute("set threads = 2; set timezone = 'UTC'")
        database.execute(_EVENTS, [str(produced)])
        for name in ("flights", "aircraft"):
            load_table(database, lake / name)
        return [
            Compared(*compare_rows(database, ["flights"], _FLIGHTS)),
            Compared(*compare_rows(database, ["aircraft"], _AIRCRAFT)),
        ]
