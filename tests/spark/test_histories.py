"""Whole histories: whatever comes together, no row is lost, doubled, or decided twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.campaign import CAMPAIGN
from tests.spark.histories import live
from tests.spark.history_steps import Step, draw_history, kept_histories

pytestmark = pytest.mark.spark

_SEEDS = 100 * CAMPAIGN or 30


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_a_history(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    live(spark, tmp_path, draw_history(seed, length=14 if CAMPAIGN else 5))


def _kept() -> Iterator[Any]:
    """The histories that once broke something; one that still does is expected to, until somebody mends it."""
    for kept in kept_histories():
        still = pytest.mark.xfail(strict=True, raises=AssertionError, reason=kept["why"])
        yield pytest.param(kept["steps"], id=kept["why"], marks=[still] if kept.get("is_open") else [])


@pytest.mark.parametrize("steps", [*_kept()])
def test_a_history_that_broke_something(spark: SparkSession, tmp_path: Path, steps: list[Step]) -> None:
    live(spark, tmp_path, steps)
