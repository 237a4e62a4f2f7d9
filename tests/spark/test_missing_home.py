"""A home that is away, and a sink whose old commits are cleaned up: the checkpoints of Spark's that stand for them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from tests.builders import expire_commits
from tests.spark.lab import Lab, write_numbers

pytestmark = pytest.mark.spark

CHECKPOINT = "spark.databricks.delta.checkpoint"
FORMAT = f"{CHECKPOINT}V2.topLevelFileFormat"
KINDS = {
    "one file": ("classic", {}),
    "parts": ("classic", {f"{CHECKPOINT}.partSize": "1"}),
    "the second kind": ("v2", {}),
    "the second kind as Parquet": ("v2", {FORMAT: "parquet"}),
}


def numbers(numbers: object) -> object:
    return numbers


@pytest.fixture
def stream(lab: Lab) -> Iterator[Stream]:
    """Three numbers have arrived; the checkpoints are made with other settings in between."""
    write_numbers(lab.root / "in", 3)
    yield Stream(
        name="numbers",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:numbers",
        sink=sinks.delta("out"),
    )
    for name in (f"{CHECKPOINT}.partSize", FORMAT):
        lab.spark.conf.unset(name)


def clean_up(spark: SparkSession, table: Path, policy: str, settings: dict[str, str]) -> set[str]:
    """Let Spark make a checkpoint after a commit of somebody else, and leave no older commit; returns its files."""
    for name, value in settings.items():
        spark.conf.set(name, value)
    spark.sql(
        f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES"
        f" ('delta.checkpointPolicy' = '{policy}', 'delta.checkpointInterval' = '1')"
    )
    expire_commits(table)
    return {file.name for file in (table / "_delta_log").glob("*.checkpoint.*")}


@pytest.mark.parametrize("kind", KINDS)
def test_old_commits_are_gone(lab: Lab, stream: Stream, kind: str) -> None:
    """Refused, and nothing is there twice; where the home is back, the stream can go on."""
    lab.run(stream)
    assert clean_up(lab.spark, lab.root / "out", *KINDS[kind])
    home = shutil.move(lab.root / "home", lab.root / "away")
    write_numbers(lab.root / "in", 1, first=3)

    with pytest.raises(RefusedError, match="has streamed into") as refused:
        lab.run(stream)
    assert refused.value.finding.code == "HOME_MISSING"

    shutil.move(home, lab.root / "home")
    assert lab.plan(stream).verdict == "run"
