"""What each example of an operator must give of the rows that counted: by DuckDB where it can be said in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from tests.spark.operator_histories import Batch

Rows = list[dict[str, Any]]
Answer = Callable[[Sequence[Batch]], Rows]
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
            database.execute("CREATE TABLE closing AS SELECT ?::TIMESTAMP AS closed_at", [_naive(batches[-1].watermark)])
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
    state: Answer | None
    """Columns of the state's rows."""
    view: Mapping[str, Any]
    """What of the state is looked at."""


def expected(rows: Answer, state: Answer | None = None, **view: Any) -> Expected:
    return Expected(rows, state, view)


def _windows(start: str, *, is_closed: bool, kept: str) -> Answer:
    sides = "<=" if is_closed else ">"
    return sql(f"""
        SELECT {kept} FROM (SELECT *, {start} AS start FROM flights, range(3) AS steps(n)), closing
        WHERE start IS NOT NULL AND start + INTERVAL 1 HOUR > late_at AND start + INTERVAL 1 HOUR {sides} closed_at
        GROUP BY start, origin
    """)


_TOTALS = "origin, count(*) AS flights, sum(dep_delay) AS delay"
_KEYS = "strftime(start, '%Y-%m-%dT%H:%M:%S.000Z') AS start, origin, count(*) AS count"
_HOUR = "CASE n WHEN 0 THEN date_trunc('hour', seen_at) END"
_SLIDING = "time_bucket(INTERVAL 20 MINUTES, seen_at) - n::INTEGER * INTERVAL 20 MINUTES"

EXAMPLES: Mapping[str, Expected] = {
    "tumbling_window": expected(
        _windows(_HOUR, is_closed=True, kept=f"start AS hour, {_TOTALS}"),
        _windows(_HOUR, is_closed=False, kept=_KEYS),
    ),
    "sliding_window": expected(
        _windows(_SLIDING, is_closed=True, kept=f"start AS begins_at, {_TOTALS}"),
        _windows(_SLIDING, is_closed=False, kept=_KEYS),
    ),
}
"""By the example's name."""
