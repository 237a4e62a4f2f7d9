"""Watermarks of one column of one source, which have no names of their own: an edit never makes rows late."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.planning.planner import Limits
from tests.campaign import rarely
from tests.spark.lab import Lab, rows, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_expired_transactions import cut_run

pytestmark = pytest.mark.spark

BRANCHES = [("a", True), ("b", True)]
EDITED: dict[str, list[tuple[str, bool]]] = {
    "exchanged": [("b", True), ("a", True)],
    "one of them taken away": [("b", True), ("a", False)],
}
_MADE: dict[str, list[tuple[str, bool]]] = {}


def counted(clicks: DataFrame) -> DataFrame:
    """Each branch of the union is some of the rows, with or without a watermark of its own."""
    clicks = clicks.withColumn("at", F.timestamp_seconds("ts"))
    parts = []
    for key, has_watermark in _MADE["now"]:
        part = clicks.where(F.col("id") == key)
        parts.append(part.withWatermark("at", "1 second") if has_watermark else part)
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    grouped = whole.groupBy(F.window("at", "10 seconds"), "id").count()
    return grouped.selectExpr("id", "unix_timestamp(window.start) AS s", "count AS n")


def declared(branches: list[tuple[str, bool]]) -> Stream:
    _MADE["now"] = branches
    clicks = sources.files("clicks", format="json", schema="id string, ts bigint")
    return Stream(name="s", sources={"clicks": clicks}, transform=f"{__name__}:counted", sink=sinks.delta("out"))


def arrive(lab: Lab, *events: tuple[str, int]) -> None:
    number = len(list((lab.root / "clicks").glob("*"))) if (lab.root / "clicks").exists() else 0
    lines = "\n".join(json.dumps({"id": key, "ts": seconds}) for key, seconds in events)
    write_files(lab.root / "clicks", {f"{number:03d}.json": lines}, first=number)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("exchanged", "killed"),
        ("one of them taken away", "run"),
        *rarely(("exchanged", "run"), ("one of them taken away", "killed"), *((name, "drained") for name in EDITED)),
    ],
)
def test_an_edit(lab: Lab, name: str, how: str) -> None:
    """The newer branch does not lend its watermark to the older one, whose rows are yet to come."""
    arrive(lab, ("a", 1000), ("b", 100))
    lab.run(declared(BRANCHES))
    arrive(lab, ("a", 2000))
    if how == "killed":
        cut_run(lab, declared(BRANCHES), Cut("commit out", 1, "after"))
    else:
        lab.run(declared(EDITED[name]), Limits(strategy="drain" if how == "drained" else None))
    arrive(lab, ("b", 150), ("b", 170))
    lab.run(declared(EDITED[name]))
    arrive(lab, ("a", 9000), ("b", 9000))
    lab.run(declared(EDITED[name]))
    counts = [("a", 1000, 1), ("a", 2000, 1), ("b", 100, 1), ("b", 150, 1), ("b", 170, 1)]
    assert rows(lab.spark_table("out"))[:5] == counts
