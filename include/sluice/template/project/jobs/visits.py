"""What Spark does with page visits."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def visits(visits: DataFrame) -> DataFrame:
    """Drop visits that are delivered twice within a day, and date the others."""
    return (
        visits.withWatermark("visited_at", "1 day")
        .dropDuplicatesWithinWatermark(["visit_id", "visited_at"])
        .withColumn("visit_date", F.to_date("visited_at"))
    )
