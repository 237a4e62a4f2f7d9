"""What the examples of operators begin with: flights and weather of New York's airports, each row with its time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LATENESS = "2 hours"
"""How long after its time a row may come; what comes later is too late."""


def departures(flights: DataFrame) -> DataFrame:
    """Scheduled departures, with a watermark on their times."""
    scheduled_at = F.col("time_hour") + F.make_dt_interval(mins=F.col("minute"))
    told = flights.withColumn("scheduled_at", scheduled_at).withWatermark("scheduled_at", LATENESS)
    return told.select("scheduled_at", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "distance")


def observations(weather: DataFrame) -> DataFrame:
    """What the weather stations at the airports observed, with a watermark on when."""
    told = weather.select(F.col("origin").alias("station"), F.col("time_hour").alias("observed_at"), "temp", "visib")
    return told.withWatermark("observed_at", LATENESS)
