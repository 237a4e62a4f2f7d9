"""What Spark does with flights that are told by events. The functions take streaming or batch DataFrames."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

DEPARTURE = "flight string, kind string, tailnum string, origin string, dest string, at timestamp"
LANDING = "flight string, tailnum string, dest string, at timestamp"
LATENESS = "6 hours"
"""How long after its own time an event may come, for the join to wait for it."""
LONGEST_FLIGHT = "12 hours"


def flights(departures: DataFrame, landings: DataFrame) -> DataFrame:
    """One row per flight that took off: with its landing, or without one, once none can come any more."""
    off = (
        _events(departures, DEPARTURE)
        .where("kind = 'departed'")
        .withColumnRenamed("at", "departed_at")
        .drop("kind")
        .withWatermark("departed_at", LATENESS)
    )
    down = (
        _events(landings, LANDING)
        .select(F.col("flight").alias("landed_flight"), F.col("at").alias("landed_at"))
        .withWatermark("landed_at", LATENESS)
    )
    is_its_landing = F.expr(
        f"flight = landed_flight and landed_at between departed_at and departed_at + interval {LONGEST_FLIGHT}"
    )
    return (
        off.join(down, is_its_landing, "left_outer")
        .drop("landed_flight")
        .withColumn("flight_date", F.to_date("departed_at"))
    )


def aircraft(departures: DataFrame, landings: DataFrame) -> DataFrame:
    """What happened to each aircraft: where it took off, where it landed, and which flight of it was cancelled."""
    off = _events(departures, DEPARTURE).select("tailnum", "at", "flight", "kind", F.col("origin").alias("airport"))
    down = _events(landings, LANDING).select(
        "tailnum", "at", "flight", F.lit("landed").alias("kind"), F.col("dest").alias("airport")
    )
    return off.unionByName(down).where("tailnum is not null")


def _events(records: DataFrame, schema: str) -> DataFrame:
    return records.select(F.from_json(F.col("value").cast("string"), schema).alias("event")).select("event.*")
