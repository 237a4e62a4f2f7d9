"""Windows in event time: a row of a result comes out once the watermark has passed the end of its window."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.feeds import departures


def tumbling_window(flights: DataFrame) -> DataFrame:
    """Delays per airport and hour."""
    hours = departures(flights).groupBy(F.window("scheduled_at", "1 hour"), "origin")
    return hours.agg(F.count("*").alias("flights"), F.sum("dep_delay").alias("delay")).select(
        F.col("window.start").alias("hour"), "origin", "flights", "delay"
    )


def sliding_window(flights: DataFrame) -> DataFrame:
    """The same over an hour that begins every twenty minutes: each flight is in three windows."""
    hours = departures(flights).groupBy(F.window("scheduled_at", "1 hour", "20 minutes"), "origin")
    return hours.agg(F.count("*").alias("flights"), F.sum("dep_delay").alias("delay")).select(
        F.col("window.start").alias("begins_at"), "origin", "flights", "delay"
    )


def session_window(flights: DataFrame) -> DataFrame:
    """The busy times of each aircraft: departures that follow each other within three hours."""
    busy = departures(flights).groupBy("tailnum", F.session_window("scheduled_at", "3 hours").alias("busy"))
    return busy.agg(F.count("*").alias("flights"), F.sum("distance").alias("miles")).select(
        "tailnum", F.col("busy.start").alias("from"), F.col("busy.end").alias("until"), "flights", "miles"
    )
