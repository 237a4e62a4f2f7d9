"""Whole histories: whatever comes together, no row is lost, doubled, or decided twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.campaign import CAMPAIGN
from tests.spark.histories import live
from tests.spark.history_steps import draw_history, kept_histories

pytestmark = pytest.mark.spark

_SEEDS = 100 * CAMPAIGN or 30


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_a_history(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    live(spark, tmp_path, draw_history(seed, length=14 if CAMPAIGN else 5))


@pytest.mark.parametrize("kept", kept_histories(), ids=lambda kept: kept["why"])
def test_a_history_that_broke_something(spark: SparkSession, tmp_path: Path, kept: dict[str, Any]) -> None:
    live(spark, tmp_path, kept["steps"])
