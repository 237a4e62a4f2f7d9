"""Whole histories: whatever comes together, no row is lost, doubled, or decided twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.campaign import CAMPAIGN
from tests.spark.histories import live

pytestmark = pytest.mark.spark

_SEEDS = 100 * CAMPAIGN or 30


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_a_history(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    live(spark, tmp_path, seed, steps=14 if CAMPAIGN else 5)
