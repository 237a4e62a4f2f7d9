"""What each example of an operator must give of the rows that counted: by DuckDB where it can be said in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import duckdb

from tests.spark.operator_histories import Batch, Row

Rows = list[dict[str, Any]]
Answer = Callable[[Sequence[Batch]], Rows]
_GAP = timedelta(hours=3)
_COLUMNS = {
    "flights": {
        "carrier": "VARCHAR",
        "flight": "INTEGER",
        "tailnum": "VARCHAR",
        "origin": "VARCHAR",
        "dest": "VARCHAR",
        "dep_delay": "INTEGER",
        "distance": "INTEGER",
    },
    "weather": {"origin": "VARCHAR", "temp": "DOUBLE", "visib": "DOUBLE"},
}


def sql(query: str) -> Answer:
    """What DuckDB makes of all rows at once.

    Args:
        query: It reads `flights` and `weather`: their columns, `seen_at`, and `late_at`, the watermark that a row came
            after. `closed_at` is the watermark of the last batch.
    """

    def answer(batches: Sequence[Batch]) -> Rows:
        with duckdb.connect() as database:
            for source, columns in _COLUMNS.items():
                declared = ", ".join(f"{name} {kind}" for name, kind in columns.items())
                database.execute(f"CREATE TABLE {source} (seen_at TIMESTAMP, late_at TIMESTAMP, {declared})")
                rows = [
                    [_naive(row["at"]), _naive(batch.late_at), *(row.get(name) for name in columns)]
                    for batch in batches
                    for row in batch.rows.get(source, ())
                ]
                if rows:
                    places = ", ".join("?" * len(rows[0]))
                    database.executemany(f"INSERT INTO {source} VALUES ({places})", rows)
            database.execute(
                "CREATE TABLE closing AS SELECT ?::TIMESTAMP AS closed_at", [_naive(batches[-1].watermark)]
            )
            found = database.execute(query)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    return answer


def _naive(time: datetime) -> datetime:
    return time.replace(tzinfo=None)


@dataclass(frozen=True)
class Expected:
    """What an example must give, and what it must keep."""

    rows: Answer
    states: Sequence[tuple[Mapping[str, Any], Answer]]
    """Looks at the state, each with the columns that its rows must have."""
    any_of_them: int | None = None
    """How many of the rows it gives: any."""
    is_closed: bool = True
    """Whether it waits for the watermark, or for the clock."""
    began_as: str | None = None
    """The transform that it had before it was edited."""


def expected(rows: Answer, *states: tuple[Mapping[str, Any], Answer], **more: Any) -> Expected:
    return Expected(rows, states, **more)


def _windows(start: str, *, is_closed: bool, kept: str) -> Answer:
    sides = "<=" if is_closed else ">"
    return sql(f"""
        SELECT {kept} FROM (SELECT *, {start} AS start FROM flights, range(3) AS steps(n)), closing
        WHERE start IS NOT NULL AND start + INTERVAL 1 HOUR > late_at AND start + INTERVAL 1 HOUR {sides} closed_at
        GROUP BY start, origin
    """)


def _told(*, is_closed: bool, kept: str) -> Answer:
    sides = "<=" if is_closed else ">"
    return sql(f"""
        WITH told AS (
            SELECT date_trunc('hour', seen_at) AS start, origin, late_at FROM
                (SELECT seen_at, origin, late_at FROM flights UNION ALL SELECT seen_at, origin, late_at FROM weather)
        )
        SELECT {kept} FROM told, closing
        WHERE start + INTERVAL 1 HOUR > late_at AND start + INTERVAL 1 HOUR {sides} closed_at GROUP BY start, origin
    """)


def _joined(how: str, columns: str = "scheduled_at, flight, origin, observed_at, station, temp") -> Expected:
    """What the watermark has not passed is kept, but for what a semi-join has told already."""
    rows = sql(f"""
        WITH departed AS (SELECT seen_at AS scheduled_at, flight, origin FROM flights WHERE seen_at > late_at),
        observed AS (SELECT seen_at AS observed_at, origin AS station, temp FROM weather WHERE seen_at > late_at)
        SELECT {columns} FROM departed {how} JOIN observed ON origin = station
            AND observed_at BETWEEN scheduled_at - INTERVAL 1 HOUR AND scheduled_at
    """)
    flights = "seen_at > closed_at" if how != "SEMI" else "false"
    return expected(
        rows,
        ({"side": "left"}, sql(f"SELECT origin FROM flights, closing WHERE {flights}")),
        ({"side": "right"}, sql("SELECT origin AS station FROM weather, closing WHERE seen_at > closed_at")),
    )


def _distinct(kept: str, keeps_for: str) -> Expected:
    return expected(
        sql(f"SELECT DISTINCT seen_at AS scheduled_at, {_FLIGHT} FROM flights WHERE seen_at > late_at"),
        ({}, sql(f"SELECT DISTINCT {kept} FROM flights, closing WHERE seen_at > late_at AND {keeps_for} > closed_at")),
    )


def _periods(*, is_closed: bool, kept: str, by: str = "tailnum, until") -> Answer:
    sides = "<=" if is_closed else ">"
    return sql(f"""
        WITH periods AS (SELECT *, (epoch(seen_at)::BIGINT // 10800 + 1) * 10800 AS until FROM flights)
        SELECT {kept} FROM periods, closing
        WHERE seen_at > late_at AND make_timestamp(until * 1000000) {sides} closed_at GROUP BY {by}
    """)


def busy(batches: Sequence[Batch]) -> tuple[Rows, Rows]:
    """The sessions that are over, and those that are not.

    A row that comes behind the watermark opens a session whose end is still to come. What it would have joined may be
    told by then; so it is said batch by batch, which is the same as at once where no such row comes.
    """
    begun, emitted = dict[str, list[Row]](), Rows()
    for batch in batches:
        for row in batch.rows["flights"]:
            session = {"tailnum": row["tailnum"], "from": row["at"], "until": row["at"] + _GAP, "flights": 1}
            if session["until"] > batch.late_at:
                begun.setdefault(row["tailnum"], []).append(session | {"miles": row.get("distance")})
        for tailnum, found in begun.items():
            merged = list[dict[str, Any]]()
            for session in sorted(found, key=itemgetter("from")):
                if merged and session["from"] <= merged[-1]["until"]:
                    merged[-1]["until"] = max(merged[-1]["until"], session["until"])
                    merged[-1] |= {name: merged[-1][name] + session[name] for name in ("flights", "miles")}
                else:
                    merged.append(dict(session))
            emitted += [session for session in merged if session["until"] <= batch.watermark]
            begun[tailnum] = [session for session in merged if session["until"] > batch.watermark]
    kept = [session for found in begun.values() for session in found]
    return emitted, [{"tailnum": session["tailnum"], "count": session["flights"]} for session in kept]


def heard_of(batches: Sequence[Batch]) -> tuple[Rows, Rows]:
    """What each airport told at a stretch, and what it has told since: by the clock of each batch."""
    told, quiet_at, emitted = dict[str, int](), dict[str, datetime](), Rows()
    for batch in batches:
        come = [row["origin"] for row in batch.rows["flights"]]
        for origin in come:
            told[origin] = told.get(origin, 0) + 1
            quiet_at[origin] = batch.clock + timedelta(minutes=30)
        for origin in [found for found in told if found not in come and quiet_at[found] < batch.clock]:
            emitted.append({"origin": origin, "flights": told.pop(origin)})
    return emitted, [{"origin": origin, "flights": flights} for origin, flights in told.items()]


def heard_of_again(batches: Sequence[Batch]) -> tuple[Rows, Rows]:
    """The aircraft that were not remembered, and what is remembered: what has run out stays until it is cleared."""
    seen, emitted = dict[str, tuple[datetime, int]](), Rows()
    for batch in batches:
        for tailnum, flights in Counter(row["tailnum"] for row in batch.rows["flights"]).items():
            if tailnum not in seen or seen[tailnum][0] <= batch.clock:
                emitted.append({"tailnum": tailnum, "flights": flights})
            seen[tailnum] = (batch.clock + timedelta(hours=1), flights)
    kept = [
        {"tailnum": tailnum, "flights": flights}
        for tailnum, (until, flights) in seen.items()
        if until > batches[-1].clock
    ]
    return emitted, kept


_FLIGHT = "carrier, flight, tailnum, origin, dest, dep_delay, distance"
_TOTALS = "origin, count(*) AS flights, sum(dep_delay) AS delay"
_KEYS = "strftime(start, '%Y-%m-%dT%H:%M:%S.000Z') AS start, origin, count(*) AS count"
_HOUR = "CASE n WHEN 0 THEN date_trunc('hour', seen_at) END"
_SLIDING = "time_bucket(INTERVAL 20 MINUTES, seen_at) - n::INTEGER * INTERVAL 20 MINUTES"
_FLOWN = "tailnum, until, count(*) AS flights, coalesce(sum(distance), 0)::BIGINT AS miles"
_PER_CARRIER = sql("SELECT carrier, count(*) AS flights FROM flights GROUP BY carrier")
_DESTINATIONS = sql("SELECT origin, coalesce(dest, '?') AS dest, count(*) AS flights FROM flights GROUP BY ALL")
_BEFORE = "(VALUES ('AA', 1000), ('UA', 2000)) AS earlier(carrier, flown)"
_CONTINUED = f"""
    SELECT carrier, coalesce(come, 0) + coalesce(flown, 0) AS flights
    FROM (SELECT carrier, count(*) AS come FROM flights GROUP BY carrier) FULL JOIN {_BEFORE} USING (carrier)
"""

EXAMPLES: Mapping[str, Expected] = {
    "tumbling_window": expected(
        _windows(_HOUR, is_closed=True, kept=f"start AS hour, {_TOTALS}"),
        ({}, _windows(_HOUR, is_closed=False, kept=_KEYS)),
    ),
    "sliding_window": expected(
        _windows(_SLIDING, is_closed=True, kept=f"start AS begins_at, {_TOTALS}"),
        ({}, _windows(_SLIDING, is_closed=False, kept=_KEYS)),
    ),
    "session_window": expected(lambda batches: busy(batches)[0], ({}, lambda batches: busy(batches)[1])),
    **dict.fromkeys(
        ("slowest_watermark", "fastest_watermark"),
        expected(
            _told(is_closed=True, kept="start AS hour, origin, count(*) AS told"),
            ({}, _told(is_closed=False, kept=_KEYS)),
        ),
    ),
    "update_mode": expected(
        sql("SELECT carrier, count(*) AS flights, sum(dep_delay) AS delay FROM flights GROUP BY carrier"),
        ({}, sql("SELECT carrier, count(*) AS count FROM flights GROUP BY carrier")),
        is_closed=False,
    ),
    "complete_mode": expected(
        sql("SELECT dest, count(*) AS flights FROM flights GROUP BY dest"),
        ({}, sql("SELECT dest, count(*) AS count FROM flights GROUP BY dest")),
        is_closed=False,
    ),
    "drop_duplicates": _distinct("carrier, flight, origin", "seen_at"),
    "drop_duplicates_within_watermark": _distinct("carrier, flight, origin", "seen_at + INTERVAL 2 HOURS"),
    "limit": expected(
        sql(f"SELECT seen_at AS scheduled_at, {_FLIGHT} FROM flights"),
        ({}, lambda batches: [{"value": min(5, sum(len(batch.rows["flights"]) for batch in batches))}]),
        any_of_them=5,
        is_closed=False,
    ),
    "static_join": expected(
        sql("""
            SELECT flight, carrier, name FROM flights LEFT JOIN (VALUES ('AA', 'American Airlines Inc.'),
                ('B6', 'JetBlue Airways'), ('DL', 'Delta Air Lines Inc.')) AS carriers(carrier, name) USING (carrier)
        """),
        is_closed=False,
    ),
    "inner_join": _joined("INNER"),
    "left_join": _joined("LEFT"),
    "right_join": _joined("RIGHT"),
    "full_join": _joined("FULL"),
    "semi_join": _joined("SEMI", "scheduled_at, flight, origin"),
    "event_time_out": expected(
        _periods(is_closed=True, kept=_FLOWN),
        ({}, _periods(is_closed=False, kept=_FLOWN)),
    ),
    "processing_time_out": expected(lambda batches: heard_of(batches)[0], ({}, lambda batches: heard_of(batches)[1])),
    "value_state": expected(_PER_CARRIER, ({"variable": "totals"}, _PER_CARRIER), is_closed=False),
    "evolved_state": expected(
        _PER_CARRIER,
        ({"variable": "totals"}, _PER_CARRIER),
        is_closed=False,
        began_as="jobs.operators.processors:value_state",
    ),
    "list_state": expected(
        sql("""
            SELECT origin, coalesce((list(dep_delay ORDER BY dep_delay DESC) FILTER (dep_delay IS NOT NULL))[:3], [])
                AS longest FROM flights GROUP BY origin
        """),
        (
            {"variable": "longest"},
            sql("""
                SELECT origin, unnest(list(dep_delay ORDER BY dep_delay DESC)[:3]) AS delay FROM flights
                WHERE dep_delay IS NOT NULL GROUP BY origin
            """),
        ),
        is_closed=False,
    ),
    "timers": expected(
        _periods(is_closed=True, kept=_FLOWN),
        ({"variable": "flown"}, _periods(is_closed=False, kept=_FLOWN)),
        ({"timers": True}, _periods(is_closed=False, kept="tailnum, until * 1000 AS expiration_timestamp_ms")),
    ),
    "time_to_live": expected(
        lambda batches: heard_of_again(batches)[0], ({"variable": "seen"}, lambda batches: heard_of_again(batches)[1])
    ),
    "map_state": expected(_DESTINATIONS, ({"variable": "flown"}, _DESTINATIONS), is_closed=False),
    "initial_state": expected(
        sql(f"{_CONTINUED} WHERE come IS NOT NULL"), ({"variable": "totals"}, sql(_CONTINUED)), is_closed=False
    ),
}
"""By the example's name."""
