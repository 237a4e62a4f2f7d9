"""A run of many planned batches against one AvailableNow start by hand of the same query, in a warm session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.measure import ROUNDS, Figure, alternately, ratio
from benchmarks.workload import SCHEMA, arrive, make_project
from sluice import Stream, sinks, sources
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.runner import run_stream
from sluice.spark.session import SHUFFLE_PARTITIONS, open_session

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 40
ROWS = 2000
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = {_STORE: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
"""The only store of state that `transformWithState` takes."""


def stateless(events: DataFrame) -> DataFrame:
    """Rows that are taken as they come."""
    return events.where("value >= 0").withColumn("half", functions.col("value") / 2)


def windowed(events: DataFrame) -> DataFrame:
    """Counts in windows, of which each batch ends some."""
    timed_events = events.withColumn("at", functions.timestamp_seconds("id")).withWatermark("at", "10 seconds")
    return timed_events.groupBy(functions.window("at", "100 seconds")).count()


def with_state_in_pandas(events: DataFrame) -> DataFrame:
    """Python's own state by `transformWithStateInPandas`."""

    # Within the function: workers can't import this module.
    class Sums(StatefulProcessor):
        """The sum of the values of each name so far."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._sum = handle.getValueState("sum", "total double")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - pyspark's
            import pandas as pd

            before = self._sum.get()
            total = (0.0 if before is None else before[0]) + sum(found["value"].sum() for found in rows)
            self._sum.update((total,))
            yield pd.DataFrame({"name": [key[0]], "total": [total]})

        def close(self) -> None:
            pass

    return events.groupBy("name").transformWithStateInPandas(Sums(), "name string, total double", "Append", "None")


def measure(batches: int = BATCHES, rounds: int = ROUNDS) -> list[Figure]:
    """Each round reads the same files into new tables, by a new checkpoint, once each way."""
    with tempfile.TemporaryDirectory() as folder:
        arrive(make_project(Path(folder), files_per_batch=1), batches, ROWS)
        sides = ((stateless, 1.05), (windowed, 1.0), (with_state_in_pandas, 1.1))
        return [_figure(find_project(folder), transform, bar, batches, rounds) for transform, bar in sides]


def _figure(
    project: Project, transform: Callable[[DataFrame], DataFrame], bar: float, batches: int, rounds: int
) -> Figure:
    session = open_session(project, _declared(project, transform, 0))
    for key, value in _declared(project, transform, 0).settings.items():
        # For both sides.
        session.conf.set(key, value)
    # As a run of ours chooses it, which would change it for both.
    session.conf.set(SHUFFLE_PARTITIONS, "2")
    session.sparkContext.setLogLevel("OFF")
    sluice, by_hand = partial(_sluice, project, session, transform), partial(_by_hand, project, session, transform)
    ours, theirs = alternately(sluice, by_hand, warming=1, rounds=rounds)
    session.stop()
    return ratio(f"{batches} batches, {transform.__name__}, wall", ours, theirs, bar, "s")


def _declared(project: Project, transform: Callable[[DataFrame], DataFrame], number: int) -> Stream:
    name = transform.__name__
    events = sources.files(f"{project.root}/in", format="json", schema=SCHEMA, max_files_per_batch=1)
    sink = sinks.delta(f"{project.root}/{name}{number}")
    conf = _ROCKSDB if transform is with_state_in_pandas else None
    return Stream(name=name, sources={"events": events}, transform=f"{__name__}:{name}", sink=sink, conf=conf)


def _sluice(project: Project, session: SparkSession, transform: Callable[..., DataFrame], number: int) -> None:
    project = replace(project, home=f"{project.root}/home{number}")
    run_stream(project, Request(_declared(project, transform, number)), session=session)


def _by_hand(project: Project, session: SparkSession, transform: Callable[..., DataFrame], number: int) -> None:
    root, name = Path(project.root), transform.__name__
    events = session.readStream.format("json").schema(SCHEMA).option("maxFilesPerTrigger", 1).load(str(root / "in"))
    writer = transform(events).writeStream.format("delta").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(root / f"checkpoint_{name}{number}"))
    writer.start(str(root / f"by_hand_{name}{number}")).awaitTermination()
