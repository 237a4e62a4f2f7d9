"""Nexmark's queries as a user of Sluice declares them, each after the SQL text of the suite for Flink.

A window comes out once, when the watermark has passed it, as it does there. Of a query that Flink answers by rows that
replace others (17, 18, 19), the table has those that count in the end. Where several rows would do (`ROW_NUMBER` over
equal ones), it is said which one does. What else differs stands with the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from sluice import Stream, sinks, sources
from tests.spark.nexmark import SCHEMAS

DELAY = "4 seconds"
"""How long Nexmark's sources wait for what is late."""
_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")


def q0(bids: DataFrame) -> DataFrame:
    """Pass through."""
    return bids.select("auction", "bidder", "price", "dateTime", "extra")


def q1(bids: DataFrame) -> DataFrame:
    """Currency conversion, in the type that the suite's table has."""
    euros = (F.lit(Decimal("0.908")) * F.col("price")).cast("decimal(23,3)").alias("price")
    return bids.select("auction", "bidder", euros, "dateTime", "extra")


def q2(bids: DataFrame) -> DataFrame:
    """Selection: the bids of every 123rd auction."""
    return bids.where("auction % 123 = 0").select("auction", "price")


def q3(auctions: DataFrame, people: DataFrame) -> DataFrame:
    """Local item suggestion: a join that nothing bounds, so that both sides are kept for good, as in Flink."""
    sellers = people.where("state IN ('OR', 'ID', 'CA')").select(F.col("id").alias("person"), "name", "city", "state")
    offered = auctions.where("category = 10").join(sellers, F.expr("seller = person"))
    return offered.select("name", "city", "state", "id")


def q5(bids: DataFrame) -> DataFrame:
    """Hot items: in each sliding window, the auctions with the most bids.

    Two aggregations, one above the other, joined with the first of them. The window is told, too, which the suite
    leaves out: else nobody could tell which row is of which.
    """
    period = F.window("dateTime", "10 seconds", "2 seconds").alias("period")
    counted = _timely(bids).groupBy("auction", period).agg(F.count("*").alias("num"))
    highest = counted.groupBy(F.col("period").alias("hottest")).agg(F.max("num").alias("maxn"))
    joined = counted.join(highest, F.expr("period = hottest AND num >= maxn"))
    return joined.select(F.col("period.start").alias("starttime"), "auction", "num")


def q7(bids: DataFrame) -> DataFrame:
    """Highest bid: bids that are as high as the highest of a window, joined by the bounds that the suite has.

    They are inclusive on both sides: a bid that comes as a window ends, and is as high as its highest, is told for it.
    """
    highest = _timely(bids).groupBy(F.window("dateTime", "10 seconds")).agg(F.max("price").alias("maxprice"))
    # The last microsecond of the window: the column that has the watermark.
    ended = highest.select("maxprice", F.window_time("window").alias("ended"))
    bounds = "dateTime >= ended + INTERVAL '0.000001' SECOND - INTERVAL 10 SECONDS"
    bounds += " AND dateTime <= ended + INTERVAL '0.000001' SECOND"
    joined = _timely(bids).join(ended, F.expr(f"price = maxprice AND {bounds}"))
    return joined.select("auction", "bidder", "price", "dateTime", "extra")


def q8(auctions: DataFrame, people: DataFrame) -> DataFrame:
    """Monitor new users: who came and sold in one window; two aggregations, joined."""
    period = F.window("dateTime", "10 seconds")
    came = _timely(people).groupBy("id", "name", period.alias("came")).count()
    sold = _timely(auctions).groupBy("seller", period.alias("sold")).count()
    joined = came.drop("count").join(sold.drop("count"), F.expr("id = seller AND came = sold"))
    return joined.select("id", "name", F.col("came.start").alias("starttime"))


def q11(bids: DataFrame) -> DataFrame:
    """User sessions: bids of a bidder that are no more than ten seconds apart."""
    sessions = _timely(bids).groupBy("bidder", F.session_window("dateTime", "10 seconds").alias("session"))
    return sessions.agg(F.count("*").alias("bid_count")).select(
        "bidder", "bid_count", F.col("session.start").alias("starttime"), F.col("session.end").alias("endtime")
    )


def q12(bids: DataFrame) -> DataFrame:
    """Bids of a bidder in each window: by the bids' own time.

    The suite takes the time at which a bid is processed, of which no two runs give the same.
    """
    windows = _timely(bids).groupBy("bidder", F.window("dateTime", "10 seconds"))
    return windows.agg(F.count("*").alias("bid_count")).select(
        "bidder", "bid_count", F.col("window.start").alias("starttime"), F.col("window.end").alias("endtime")
    )


def q17(bids: DataFrame) -> DataFrame:
    """Auction statistics of each day, for good; the average of whole numbers is a whole one, as in Flink."""
    price = F.col("price")
    return bids.groupBy("auction", F.date_format("dateTime", "yyyy-MM-dd").alias("day")).agg(
        F.count("*").alias("total_bids"),
        F.count_if(price < 10_000).alias("rank1_bids"),
        F.count_if((price >= 10_000) & (price < 1_000_000)).alias("rank2_bids"),
        F.count_if(price >= 1_000_000).alias("rank3_bids"),
        F.min("price").alias("min_price"),
        F.max("price").alias("max_price"),
        F.expr("sum(price) div count(*)").alias("avg_price"),
        F.sum("price").alias("sum_price"),
    )


def q18(bids: DataFrame) -> DataFrame:
    """Last bid of each bidder for each auction: a feed of changes, of which the table keeps the newest by key.

    Of two at one time the suite takes any. Here the greater one counts, column by column in the order of their names.
    """
    return bids.select(*_BID)


_RANKED = "auction bigint, bidder bigint, price bigint, channel string, url string, micros bigint, extra string"
_COLUMNS = [column.split()[0] for column in _RANKED.split(", ")]


class Highest(StatefulProcessor):
    """The ten highest bids for an auction: of equal ones the earliest, then by the other columns."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the variables."""
        self._top = handle.getListState("top", _RANKED)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803 - Spark's name
        """Keep the highest of those that were known and those that came, and tell each with its rank."""
        known = [tuple(bid) for bid in self._top.get()] if self._top.exists() else []
        bids = [*known, *map(tuple, rows)]
        top = sorted(bids, key=lambda bid: (-bid[2], bid[5], bid[1], bid[3], bid[4], bid[6]))[:10]
        self._top.put(top)
        for rank, bid in enumerate(top, 1):
            yield Row(**dict(zip(_COLUMNS, bid, strict=True)), rank_number=rank)


def q19(bids: DataFrame) -> DataFrame:
    """Top ten bids of each auction: a rank that has been given is never empty again, so a merge by it is the answer.

    Times are whole microseconds meanwhile: pyspark gives those of rows without a zone, and those of state with one.
    """
    counted = bids.withColumn("dateTime", F.unix_micros("dateTime")).groupBy("auction")
    ranked = counted.transformWithState(Highest(), f"{_RANKED}, rank_number bigint", "update", "None")
    return ranked.withColumn("micros", F.timestamp_micros("micros")).withColumnRenamed("micros", "dateTime")


def q20(bids: DataFrame, auctions: DataFrame) -> DataFrame:
    """Bids with their auctions of category 10: a join that nothing bounds, as in Flink."""
    renamed = {"dateTime": "auction_dateTime", "extra": "auction_extra"}
    offered = auctions.where("category = 10").withColumnsRenamed(renamed)
    made = bids.withColumnsRenamed({"dateTime": "bid_dateTime", "extra": "bid_extra"})
    return made.join(offered, F.expr("auction = id")).drop("id")


SQL_OF_Q13 = """
    SELECT auction, bidder, price, dateTime, value
    FROM stream(bids) AS bids JOIN delta.`{side_input}` AS side ON auction % 10000 = key
"""
"""Bounded side input join: with a table that stands still, which the suite has in a file."""


def _timely(side: DataFrame) -> DataFrame:
    return side.withWatermark("dateTime", DELAY)


@dataclass(frozen=True)
class Query:
    """A query as it is declared, but for its name."""

    sides: Sequence[str]
    """Its sources."""
    sink: Mapping[str, Any] = field(default_factory=dict)
    """What its Delta table is declared with."""
    output_mode: Literal["append", "update"] = "append"


QUERIES: Mapping[str, Query] = {
    "q0": Query(["bids"]),
    "q1": Query(["bids"]),
    "q2": Query(["bids"]),
    "q3": Query(["auctions", "people"]),
    "q5": Query(["bids"]),
    "q7": Query(["bids"]),
    "q8": Query(["auctions", "people"]),
    "q11": Query(["bids"]),
    "q12": Query(["bids"]),
    "q13": Query(["bids"]),
    "q17": Query(["bids"], {"merge_on": ["auction", "day"]}, "update"),
    "q18": Query(["bids"], {"changes": sinks.changes(keys=["bidder", "auction"], sequence_by="dateTime")}),
    "q19": Query(["bids"], {"merge_on": ["auction", "rank_number"]}, "update"),
    "q20": Query(["bids", "auctions"]),
}
"""By name."""


def declared(name: str, limits: Mapping[str, int | None], *, side_input: Path) -> Stream:
    """The stream of a query.

    Args:
        name: Of the query.
        limits: How many files a batch takes of each side; None for all.
        side_input: The table of query 13.
    """
    query = QUERIES[name]
    is_sql = name == "q13"
    return Stream(
        name=name,
        sources={
            side: sources.files(side, format="json", schema=SCHEMAS[side], max_files_per_batch=limits[side])
            for side in query.sides
        },
        transform=None if is_sql else f"{__name__}:{name}",
        sql=SQL_OF_Q13.format(side_input=side_input) if is_sql else None,
        sink=sinks.delta("answer", **query.sink),
        output_mode=query.output_mode,
    )
