"""What Spark does with flights. The functions take streaming or batch DataFrames."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LATENESS = "2 days"
"""How long after its scheduled departure a flight may still be delivered, or delivered again."""


def departures(flights: DataFrame) -> DataFrame:
    """One row per scheduled flight: typed, dated, without the copies of files that are delivered twice."""
    return (
        flights.withColumn("flight_date", F.make_date("year", "month", "day"))
        .withColumn(
            "scheduled_at",
            F.make_timestamp(
                "year", "month", "day", F.expr("sched_dep_time div 100"), F.expr("sched_dep_time % 100"), F.lit(0)
            ),
        )
        .withWatermark("scheduled_at", LATENESS)
        .dropDuplicatesWithinWatermark(["flight_date", "carrier", "flight", "origin", "sched_dep_time"])
        .select(
            "flight_date",
            "scheduled_at",
            "carrier",
            "flight",
            F.upper("tailnum").alias("tailnum"),
            "origin",
            "dest",
            F.col("dep_time").isNull().alias("is_cancelled"),
            "dep_delay",
            "arr_delay",
            "distance",
        )
    )


def hourly_delays(departures: DataFrame) -> DataFrame:
    """Delay statistics per airport and hour; an hour comes out once the watermark has passed its end."""
    return (
        departures.withWatermark("scheduled_at", LATENESS)
        .groupBy(F.window("scheduled_at", "1 hour"), "origin")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count_if("is_cancelled").alias("cancelled"),
            F.sum("dep_delay").alias("total_dep_delay"),
            F.max("dep_delay").alias("max_dep_delay"),
        )
        .select("window.start", "window.end", "origin", "flights", "cancelled", "total_dep_delay", "max_dep_delay")
    )
