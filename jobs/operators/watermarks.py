"""The watermark of two sources: as far as the slower one is, or as far as the faster one is."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.feeds import departures, observations


def slowest_watermark(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """How much was told of each airport and hour: an hour is complete once it is in both sources."""
    return _told(flights, weather)


def fastest_watermark(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """The same by the policy `max`, which waits for nobody: an hour is over once it is in either source."""
    return _told(flights, weather)


def _told(flights: DataFrame, weather: DataFrame) -> DataFrame:
    told = departures(flights).select("origin", F.col("scheduled_at").alias("told_at"))
    told = told.union(observations(weather).select("station", "observed_at"))
    hours = told.groupBy(F.window("told_at", "1 hour"), "origin").agg(F.count("*").alias("told"))
    return hours.select(F.col("window.start").alias("hour"), "origin", "told")
