"""Rows that were delivered before, and rows that are too many."""

from pyspark.sql import DataFrame

from jobs.operators.feeds import departures


def drop_duplicates(flights: DataFrame) -> DataFrame:
    """Each flight once. The time is among the columns: what the watermark has passed need not be remembered."""
    return departures(flights).dropDuplicates(["scheduled_at", "carrier", "flight", "origin"])


def drop_duplicates_within_watermark(flights: DataFrame) -> DataFrame:
    """Each flight once, told by columns without a time: a copy is known again for as long as it may come."""
    return departures(flights).dropDuplicatesWithinWatermark(["carrier", "flight", "origin"])


def limit(flights: DataFrame) -> DataFrame:
    """Five flights, and no more in all the life of the stream."""
    return departures(flights).limit(5)
