"""What Spark would say of a query in its first batch, told before that is planned: what is planned is pinned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sluice.errors import DeclarationError
from sluice.spark.plan_columns import split, whole_plan
from sluice.spark.plan_tree import Node
from sluice.spark.query import Query, plan_reader
from sluice.spark.settings_trial import try_settings
from sluice.spark.state_check import plan_first_batch
from sluice.spark.streamed_writing import check_streamed_writing
from sluice.spark_setting import spark_setting

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROCESSOR = "TransformWithState"
_MODES = ("Append", "Update", "Complete")


@contextmanager
def first_batch_checked(query: Query, conf: Mapping[str, str]) -> Iterator[None]:
    """Make sure that Spark takes a query's first batch; while that is begun, the session has the store that it needs.

    Args:
        query: The query of a new checkpoint.
        conf: The settings of the stream.

    Raises:
        DeclarationError: Another store is declared, a processor emits in another mode than the stream, or Spark does
            not take a setting or the sink.
        QueryRefusedError: Spark does not plan the batch.
    """
    processors = _processors(query)
    if not processors:
        _check_batch(query, conf)
        yield
        return
    declared = conf.get(STATE_STORE, ROCKSDB)
    if declared != ROCKSDB:
        raise DeclarationError(
            f"`transformWithState` keeps its state in RocksDB alone, and `{STATE_STORE}` is {declared}",
            where=query.stream.place,
            remedy=f"leave the setting out, or set it to {ROCKSDB}, for this stream: `Stream(conf=...)`",
        )
    for node in processors:
        _check_mode(node, query)
    with spark_setting(query.frame.sparkSession, STATE_STORE, ROCKSDB):
        _check_batch(query, conf)
        yield


def _check_batch(query: Query, conf: Mapping[str, str]) -> None:
    check_streamed_writing(query)
    # Before the shape: what is wrong with a setting, Spark says of a query's shape as well, in other words.
    try_settings(query, conf)
    plan_first_batch(query.frame, query.stream.output_mode, place=query.place)


def _processors(query: Query) -> list[Node]:
    plan = whole_plan(query.frame, plan_reader(query.frame.sparkSession))
    return [node for node in plan.walk() if node.kind.startswith(_PROCESSOR)]


def _check_mode(node: Node, query: Query) -> None:
    """Spark takes any, and emits the same rows in each; later it refuses another one than it began with."""
    mode = next((part for part in split(node.rest) if part in _MODES), None)
    if mode is not None and mode.lower() != query.stream.output_mode:
        wanted = query.stream.output_mode.capitalize()
        raise DeclarationError(
            f"`transformWithState` emits in mode {mode!r}, and the stream's `output_mode` is"
            f" {query.stream.output_mode!r}",
            where=query.stream.place,
            remedy=f'write `outputMode="{wanted}"` in the transform, or declare `output_mode={mode.lower()!r}`',
        )
