"""Eight checks observed while rows are written: against Great Expectations, and against a pass of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import ROUNDS, Figure, added, timed
from benchmarks.quality_frames import (
    CHECKS,
    DDL,
    Form,
    GreatExpectations,
    measured,
    observed,
    open_spark,
    orders,
    plan_of,
    to_nothing,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 5_000_000
FILES = 8
THEIRS: tuple[tuple[str, Form, bool], ...] = (
    ("Great Expectations BOOLEAN_ONLY", "BOOLEAN_ONLY", True),
    ("Great Expectations BOOLEAN_ONLY, not kept in memory", "BOOLEAN_ONLY", False),
    ("Great Expectations SUMMARY", "SUMMARY", True),
)


def measure() -> list[Figure]:
    """Each round writes the same Parquet files alone, then with each way of checking them.

    Raises:
        RuntimeError: Observing started a Spark job, or the results differ.
    """
    with tempfile.TemporaryDirectory() as folder:
        session = open_spark(Path(folder))
        orders(session, ROWS, FILES).write.parquet(f"{folder}/in")
        frame, plan = session.read.schema(DDL).parquet(f"{folder}/in"), plan_of(CHECKS)
        ways: dict[str, Callable[[], object]] = {
            "alone": lambda: to_nothing(frame),
            "observed": lambda: observed(frame, plan, to_nothing),
            "a pass over Parquet": lambda: measured(frame, plan),
        }
        for name, form, keeps in THEIRS:
            ways[name] = partial(GreatExpectations(CHECKS, form, keeps=keeps).validate, frame)
        jobs = {name: _jobs(session, name, way) for name, way in ways.items()}
        if jobs["observed"] != jobs["alone"]:
            raise RuntimeError(f"writing takes {jobs['alone']} Spark jobs, and {jobs['observed']} with observed checks")
        if observed(frame, plan, to_nothing) != measured(frame, plan):
            raise RuntimeError("the ways to check differ in their results")
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                seconds[name].append(timed(way))
        session.stop()
    extra = [with_checks - alone for with_checks, alone in zip(seconds["observed"], seconds["alone"], strict=True)]
    return [
        added(
            f"8 checks observed, to {name}",
            extra,
            seconds[name],
            0.5 if "BOOLEAN_ONLY" in name else None,
            f"0 and {jobs[name]} more Spark jobs",
        )
        for name in ("a pass over Parquet", *(name for name, _, _ in THEIRS))
    ]


def _jobs(session: SparkSession, name: str, way: Callable[[], object]) -> int:
    """How many Spark jobs it starts."""
    context = session.sparkContext
    context.setJobGroup(name, name)
    way()
    started = len(context.statusTracker().getJobIdsForGroup(name))
    context.setJobGroup("others", "others")
    return started
