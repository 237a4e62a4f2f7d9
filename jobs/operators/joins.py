"""Flights and the weather that was observed at their airport within the hour before; and what a carrier is called."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.feeds import departures, observations

CARRIERS = [("AA", "American Airlines Inc."), ("B6", "JetBlue Airways"), ("DL", "Delta Air Lines Inc.")]
_WITHIN_AN_HOUR = "origin = station AND observed_at BETWEEN scheduled_at - INTERVAL 1 HOUR AND scheduled_at"


def static_join(flights: DataFrame) -> DataFrame:
    """Each flight with its carrier's name, from a table that stands still."""
    carriers = flights.sparkSession.createDataFrame(CARRIERS, "carrier string, name string")
    return departures(flights).join(carriers, "carrier", "left").select("flight", "carrier", "name")


def inner_join(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Each flight with each observation."""
    return _joined(flights, weather, "inner")


def left_join(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """The same, and the flights without one, once none can come any more."""
    return _joined(flights, weather, "left")


def right_join(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """The same, and the observations that no flight followed."""
    return _joined(flights, weather, "right")


def full_join(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """The same, and both: nothing is left out."""
    return _joined(flights, weather, "full")


def semi_join(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """The flights that have an observation, each once."""
    joined = departures(flights).join(observations(weather), F.expr(_WITHIN_AN_HOUR), "left_semi")
    return joined.select("scheduled_at", "flight", "origin")


def _joined(flights: DataFrame, weather: DataFrame, how: str) -> DataFrame:
    joined = departures(flights).join(observations(weather), F.expr(_WITHIN_AN_HOUR), how)
    return joined.select("scheduled_at", "flight", "origin", "observed_at", "station", "temp")
