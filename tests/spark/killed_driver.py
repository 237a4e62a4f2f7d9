"""A driver that is killed at a moment, by a signal that nobody can handle: itself, and its JVM.

Usage: python -m tests.spark.killed_driver FOLDER MOMENT
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.running import batches
from sluice.running.batch_logs import BatchLogs
from sluice.running.query_starts import QueryStarts
from sluice.testing import Bench

PLACES: dict[str, tuple[object, str, bool]] = {
    "before the plan": (batches, "write_planned_batch", False),
    "after the plan": (QueryStarts, "start", False),
    "before the sink's commit": (deltalake.DeltaTable, "create_write_transaction", False),
    "between the sink's commit and Spark's": (deltalake.DeltaTable, "create_write_transaction", True),
    "after Spark's commit": (BatchLogs, "check_committed", False),
}
"""By moment, the function at which the driver dies, and whether it is done by then."""


def by_minute(visits: DataFrame) -> DataFrame:
    windows = visits.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"))
    return windows.count().select(F.col("window.start").alias("minute"), "count")


def begin(folder: Path) -> Bench:
    """A bench with a run behind it, and a file that is new."""
    bench = Bench(folder).open(
        Stream(
            name="visits",
            sources={"visits": sources.files("in", format="json", schema="id bigint, at timestamp")},
            transform="tests.spark.killed_driver:by_minute",
            sink=sinks.delta("out"),
        )
    )
    bench.add("visits", [(1, "2026-01-01T09:00:10Z")])
    bench.run()
    bench.add("visits", [(2, "2026-01-01T09:05:10Z")])
    return bench


def dying(function: Callable[..., Any], *, is_done: bool) -> Callable[..., Any]:
    """A function at which its process dies, and the JVM with it.

    Args:
        function: The function.
        is_done: Whether it does its work before.
    """

    def die(*args: Any, **how: Any) -> None:
        if is_done:
            function(*args, **how)
        os.killpg(0, signal.SIGKILL)

    return die


if __name__ == "__main__":
    os.setsid()
    began = begin(Path(sys.argv[1]))
    owner, name, is_done = PLACES[sys.argv[2]]
    setattr(owner, name, dying(getattr(owner, name), is_done=is_done))
    began.run()
