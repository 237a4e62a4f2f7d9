"""Eight checks observed where the input is dear to compute: against one combined pass over the same input once more."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import ROUNDS, Figure, added, timed
from benchmarks.quality_frames import CHECKS, DDL, measured, observed, open_spark, orders, plan_of, to_nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.quality.compile import QualityPlan

ROWS = 1_000_000
FILES = 8
BAR = 0.7


def measure() -> list[Figure]:
    """Each round computes the same rows alone, then with the checks observed, then with a pass for them."""
    with tempfile.TemporaryDirectory() as folder:
        session = open_spark(Path(folder), **{"spark.sql.shuffle.partitions": "2"})
        orders(session, ROWS, FILES).write.json(f"{folder}/in")
        plan = plan_of(CHECKS)
        frame = session.read.schema(DDL).json(f"{folder}/in")
        json_input = _compare("JSON input", plan, lambda action: action(frame))
        stateful = _compare("stateful output", plan, partial(_stateful, session, folder))
        session.stop()
    return [json_input, stateful]


def _compare(what: str, plan: QualityPlan, compute: Callable[[Callable[[DataFrame], object]], object]) -> Figure:
    actions: dict[str, Callable[[DataFrame], object]] = {
        "alone": to_nothing,
        "observed": lambda frame: observed(frame, plan, to_nothing),
        "passed": partial(_passed, plan),
    }
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(ROUNDS + 1):
        for name, action in actions.items():
            took = timed(partial(compute, action))
            if number:
                seconds[name].append(took)
    ours, theirs = (
        [with_checks - alone for with_checks, alone in zip(seconds[name], seconds["alone"], strict=True)]
        for name in ("observed", "passed")
    )
    return added(f"8 checks on {what}, to one more pass", ours, theirs, BAR, "0 and 1 more Spark jobs")


def _passed(plan: QualityPlan, frame: DataFrame) -> None:
    to_nothing(frame)
    measured(frame, plan)


def _call(action: Callable[[DataFrame], object], rows: DataFrame, _batch_id: int) -> None:
    action(rows)


def _stateful(session: SparkSession, folder: str, action: Callable[[DataFrame], object]) -> None:
    """One batch of a query that drops duplicates within a watermark, of which the checks see the output."""
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        events = session.readStream.schema(DDL).json(f"{folder}/in").selectExpr("*", "CAST(day AS TIMESTAMP) AS at")
        frame = events.withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["id"]).drop("at")
        writer = frame.writeStream.foreachBatch(partial(_call, action))
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
