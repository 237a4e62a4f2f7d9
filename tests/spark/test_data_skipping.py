"""Files that were published by a commit of metadata are skipped by their statistics, and never one too many."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from sluice.sinks.delta import parquet_aside
from sluice.storage import Storage
from tests.campaign import CAMPAIGN
from tests.spark.lab import Lab

pytestmark = pytest.mark.spark

DDL = (
    "tiny TINYINT, small SMALLINT, whole INT, big BIGINT, cash DECIMAL(7,2), money DECIMAL(15,3), huge DECIMAL(38,10), "
    "text STRING, long STRING, day DATE, ratio DOUBLE, at TIMESTAMP, flag BOOLEAN, nested STRUCT<whole: INT>, "
    "`nested.whole` INT, blob BINARY"
)
_LETTERS = ["a", "b", "z", "é", "日", "😀", "\U0010ffff", " ", "'", '"', "\\", "\n"]
_DIGITS = {"cash": (7, 2), "money": (15, 3), "huge": (38, 10)}


def word(draw: random.Random, most: int) -> str:
    return "".join(draw.choice(_LETTERS) for _ in range(draw.randint(0, most)))


def decimal(draw: random.Random, digits: int, scale: int) -> Decimal:
    return Decimal(draw.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-scale)


def value(draw: random.Random, column: str) -> Any:
    """A value of a column; never null."""
    made: dict[str, Callable[[], Any]] = {
        "tiny": lambda: draw.randint(-128, 127),
        "small": lambda: draw.randint(-(2**15), 2**15 - 1),
        "whole": lambda: draw.choice([-(2**31), 2**31 - 1, draw.randint(-9, 9)]),
        "big": lambda: draw.choice([-(2**63), 2**63 - 1, 2**53 + 1, draw.randint(-9, 9)]),
        "text": lambda: word(draw, 3),
        # All begin alike, so that what is cut off decides; the rare ones let a file tell of no column at all.
        "long": lambda: ("\U0010ffff" * 32 if draw.random() < 0.05 else "x" * 31) + word(draw, 4),
        "day": lambda: date(2026, 1, 1) + timedelta(days=draw.randint(-200_000 if draw.random() < 0.05 else -900, 40)),
        "ratio": lambda: draw.choice([-0.0, 0.0, 1e-300, 1.7e308, draw.uniform(-2, 2)]),
        "at": lambda: datetime(1900, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randint(0, 10**16)),
        "nested.whole": lambda: draw.randint(-9, 9),
    }
    if column in _DIGITS:
        return decimal(draw, *_DIGITS[column])
    return made[column]()


FILTERED = ["tiny", "small", "whole", "big", *_DIGITS, "text", "long", "day", "ratio", "at", "nested.whole"]


def table_row(draw: random.Random, nulls: float) -> tuple[Any, ...]:
    def maybe(column: str) -> Any:
        return None if draw.random() < nulls else value(draw, column)

    return (
        *(maybe(column) for column in FILTERED[:-1]),
        draw.random() < 0.5,
        (draw.randint(100, 200),),
        maybe("nested.whole"),
        b"\xff",
    )


def publish(table: Path, frames: list[DataFrame]) -> None:
    """Write frames aside, one file each, and add them to a new table by one commit of metadata."""
    frames[0].limit(0).write.format("delta").save(str(table))
    added = []
    for number, frame in enumerate(frames):
        folder = str(table / f"batch-{number}")
        aside = parquet_aside.write_aside(frame.coalesce(1), folder, [], storage=Storage())
        found, _ = parquet_aside.find_added(str(table), aside, [], storage=Storage())
        added += found
    target = DeltaTable(str(table))
    target.create_write_transaction(added, "append", target.schema())


def read_files(frame: DataFrame) -> set[int]:
    """The numbers of the files that Spark would read."""
    return {batch_of(file) for file in frame.inputFiles()}


def batch_of(file: str) -> int:
    return int(file.rpartition("batch-")[2].partition("/")[0])


def conditions(draw: random.Random, present: list[Row]) -> list[Column]:
    """Comparisons of every column, with values that are there and others."""
    types = dict(part.strip().rsplit(" ", 1) for part in DDL.split(", ") if "STRUCT" not in part)
    found = []
    for column in FILTERED:
        named = F.col(f"`{column}`")
        there = [row[column] for row in present if row[column] is not None]
        for wanted in [draw.choice(there), value(draw, column)]:
            given = F.lit(wanted).cast(types.get(column, types.get(f"`{column}`", "")))
            found += [named == given, draw.choice([named < given, named <= given, named > given, named >= given])]
            if isinstance(wanted, str):
                found.append(named.startswith(wanted[: draw.randint(0, len(wanted))]))
        found.append(draw.choice([named.isNull(), named.isNotNull(), named != given, named.eqNullSafe(given)]))
    return found


@pytest.mark.parametrize("seed", range(2 * CAMPAIGN or 1))
def test_no_file_is_skipped_that_has_a_row(lab: Lab, seed: int) -> None:
    """Whatever the column, the comparison and the value. Those that have statistics are skipped wherever files of
    Spark's own are.
    """
    draw = random.Random(seed)
    frames = [
        lab.spark.createDataFrame([table_row(draw, nulls) for _ in range(3)], DDL).withColumn("file", F.lit(number))
        for number, nulls in enumerate([0.0, 0.0, 0.3, 1.0, 0.0, 0.5])
    ]
    publish(lab.root / "t", frames)
    table = lab.spark_table("t")
    by_spark = [write_by_spark(lab, frame) for frame in frames]
    asked = conditions(draw, table.collect())

    held: list[set[int]] = [set() for _ in asked]
    for row in (
        table.groupBy("file").agg(*(F.count_if(wanted).alias(str(n)) for n, wanted in enumerate(asked))).collect()
    ):
        for number in range(len(asked)):
            if row[str(number)]:
                held[number].add(row["file"])
    read = [read_files(table.where(wanted)) for wanted in asked]

    assert [(str(asked[n]), held[n] - read[n]) for n in range(len(asked)) if not held[n] <= read[n]] == []
    own, telling = lab.spark_table("own"), batches_that_tell(lab.root / "t")
    left = [{by_spark.index(PurePath(file).name) for file in own.where(wanted).inputFiles()} for wanted in asked]
    more = [(str(asked[n]), found) for n in range(len(asked)) if (found := (read[n] - left[n]) & telling)]
    assert telling
    assert more == []


def batches_that_tell(table: Path) -> set[int]:
    """The numbers of the batches whose file has statistics."""
    return {batch_of(file["path"]) for file in add_actions(table) if "nullCount" in json.loads(file["stats"])}


def write_by_spark(lab: Lab, frame: DataFrame) -> str:
    """Append one file to a table of Spark's own; gives its name."""
    folder = lab.root / "own"
    before = set(folder.glob("*.parquet"))
    frame.coalesce(1).write.format("delta").mode("append").save(str(folder))
    (file,) = set(folder.glob("*.parquet")) - before
    return file.name


def test_a_file_with_nan_is_never_skipped(lab: Lab) -> None:
    """For Spark, NaN is the greatest number, and a footer can't say it."""
    frames = [lab.spark.createDataFrame([(1.5,), (float("nan"),)], "ratio double").repartition(1)]
    publish(lab.root / "t", frames)

    assert lab.spark_table("t").where("ratio > 2").count() == 1
    assert json.loads(add_actions(lab.root / "t")[0]["stats"]) == {"numRecords": 2}


def test_times_are_written_so_that_they_have_extremes(lab: Lab) -> None:
    """And the session's own setting stays as it was."""
    before = lab.spark.conf.get("spark.sql.parquet.outputTimestampType")
    frame = lab.spark.sql(
        "SELECT TIMESTAMP'2026-01-01 00:00:00.0005Z' AS at UNION ALL SELECT TIMESTAMP'2026-02-01 00:00:00Z'"
    )
    publish(lab.root / "t", [frame])

    told = json.loads(add_actions(lab.root / "t")[0]["stats"])

    assert told["minValues"] == {"at": "2026-01-01T00:00:00.000Z"}
    assert told["maxValues"] == {"at": "2026-02-01T00:00:00.000Z"}
    assert lab.spark.conf.get("spark.sql.parquet.outputTimestampType") == before
    assert lab.spark_table("t").where("at = TIMESTAMP'2026-01-01 00:00:00.0005Z'").count() == 1


def add_actions(table: Path) -> list[dict[str, Any]]:
    """The actions of the newest commit that add files."""
    newest = max((table / "_delta_log").glob("*.json"))
    return [action["add"] for line in newest.read_text().splitlines() if "add" in (action := json.loads(line))]
