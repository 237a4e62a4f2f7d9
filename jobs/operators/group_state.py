"""`applyInPandasWithState`: a state of one's own per group, and a time-out of it in either time."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

from jobs.operators.feeds import departures

HOURS = 3
QUIET_MILLISECONDS = 30 * 60 * 1000


def event_time_out(flights: DataFrame) -> DataFrame:
    """What each aircraft flew in three hours; told by a time-out in event time, once the watermark has passed them."""
    end = F.ceil((F.unix_seconds("scheduled_at") + 1) / (HOURS * 3600)) * HOURS * 3600
    parts = departures(flights).withColumn("until", end.cast("long")).groupBy("tailnum", "until")
    columns = "tailnum string, until long, flights long, miles long"
    return parts.applyInPandasWithState(_sum_up, columns, "flights long, miles long", "append", "EventTimeTimeout")


def _sum_up(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    flights, miles = state.get if state.exists else (0, 0)
    for frame in frames:
        flights, miles = flights + len(frame), miles + int(frame["distance"].sum())
    ends_at = int(key[1]) * 1000
    if state.hasTimedOut or ends_at <= state.getCurrentWatermarkMs():
        state.remove()
        yield pd.DataFrame({"tailnum": [key[0]], "until": [key[1]], "flights": [flights], "miles": [miles]})
    else:
        state.update((flights, miles))
        state.setTimeoutTimestamp(ends_at)


def processing_time_out(flights: DataFrame) -> DataFrame:
    """How many flights an airport told of at a stretch; told once it has been quiet for half an hour, by the clock."""
    airports = departures(flights).groupBy("origin")
    columns = "origin string, flights long"
    return airports.applyInPandasWithState(_listen, columns, "flights long", "append", "ProcessingTimeTimeout")


def _listen(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (flights,) = state.get if state.exists else (0,)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"origin": [key[0]], "flights": [flights]})
    else:
        state.update((flights + sum(map(len, frames)),))
        state.setTimeoutDuration(QUIET_MILLISECONDS)
