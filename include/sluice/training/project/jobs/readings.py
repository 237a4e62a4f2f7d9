"""What Spark does with readings."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def readings(readings: DataFrame) -> DataFrame:
    """Drop readings that come twice, and date the others."""
    return (
        readings.withWatermark("at", "1 hour")
        .dropDuplicatesWithinWatermark(["sensor", "at"])
        .withColumn("day", F.to_date("at"))
    )


def hours(readings: DataFrame) -> DataFrame:
    """The mean of each sensor and hour."""
    hour = F.window("at", "1 hour").alias("hour")
    return readings.withWatermark("at", "1 hour").groupBy(hour, "sensor").agg(F.avg("value").alias("value"))
