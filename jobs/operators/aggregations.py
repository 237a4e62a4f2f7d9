"""Aggregations without a window, whose groups are never over: by what mode they come out, for windows are in append."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.feeds import departures


def update_mode(flights: DataFrame) -> DataFrame:
    """Totals per carrier: each batch gives those that it has changed, and the table keeps the newest."""
    totals = departures(flights).groupBy("carrier")
    return totals.agg(F.count("*").alias("flights"), F.sum("dep_delay").alias("delay"))


def complete_mode(flights: DataFrame) -> DataFrame:
    """The destinations by how many flights go there: each batch gives the whole result, in its order."""
    return departures(flights).groupBy("dest").agg(F.count("*").alias("flights")).orderBy(F.desc("flights"), "dest")
