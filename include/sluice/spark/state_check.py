"""Whether a changed query can go on with the state of its checkpoint: Spark's own answer, before a batch is planned.

Spark itself asks when a batch runs, and then the batch is in the offset log. Here it plans the query over a copy of
what the checkpoint says of its state, the same way; nothing is read or written beside that.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.checkpoint.offsets import OffsetFile
from sluice.checkpoint.places import state_folder
from sluice.checkpoint.reader import CheckpointState
from sluice.checkpoint.state_store import Operator, nested_fields, read_state_layout, read_state_schemas
from sluice.errors import Problem, QueryRefusedError, RefusedError
from sluice.sinks.contract import OutputMode
from sluice.spark.classic_plan import java_class, java_mode
from sluice.spark.connect_session import is_connected
from sluice.spark.session import pinned_conf
from sluice.spark.shown_error import is_refusal, spark_message
from sluice.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

STATE_REMEDY = (
    "restore the keys, the types and the order of its aggregations, joins and deduplications, and the variables and"
    " modes of its `transformWithState`; or declare a new stream with a sink of its own"
)
"""What to do about a query that does not fit its state."""
_REFUSALS = re.compile(
    r"\[(STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE"
    r"|STATE_STORE_INVALID_CONFIG_AFTER_RESTART"
    r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA|STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY)\]"
    r"\s*([^.\n]*)"
)
_STREAMING = "org.apache.spark.sql.execution.streaming"
_NEVER_NULL = re.compile(rb'"(nullable|containsNull|valueContainsNull)":false')


def check_state(
    frame: DataFrame, state: CheckpointState, output_mode: OutputMode, *, place: str, storage: Storage
) -> bool:
    """Make sure that a query can go on with the state of a checkpoint. Of a query on a server, `try_state` does.

    Args:
        frame: The query's result.
        state: What the checkpoint says now.
        output_mode: The query's.
        place: Where the transform is, for messages.
        storage: Where the checkpoint is.

    Returns:
        Whether it is sure that it can.

    Raises:
        RefusedError: Spark would refuse it.
        StorageError: The checkpoint can't be read.
    """
    if is_connected(frame.sparkSession):
        return False
    if state.planned is None:
        return True
    location = state_folder(state.location)
    schemas = read_state_schemas(location, storage=storage)
    fields = {name: found for name, content in schemas.items() if (found := _fields(name, content))}
    try:
        goes_on = _planned(frame, state, output_mode, schemas)
        # Planned anew, Spark says what it would keep.
        others = {name: content for name, content in schemas.items() if name not in fields}
        now = _planned(frame, state, output_mode, others).schemas if fields else {}
    except Exception as exc:
        problem = state_changed(str(exc), location, place)
        if problem is not None:
            raise RefusedError(problem) from exc
        # Whatever else is wrong, the batch itself fails with it.
        logger.warning("whether the query fits its state is told when it runs", exc_info=True)
        return False
    check_variables(state.operators, goes_on.operators, location, place)
    for name, then in fields.items():
        _check_places(then, nested_fields(now.get(name, b"")), location, place)
    return True


def check_variables(then: Iterable[Operator], now: Iterable[Operator], location: str, place: str) -> None:
    """Make sure that the processors of a query have the variables that they had; Spark lets go of any without a word.

    One that is new begins empty. One that is renamed would, too, and what is declared again goes on with old values.

    Args:
        then: The operators of the checkpoint.
        now: The same as Spark would go on with them.
        location: The state's folder.
        place: Where the transform is.

    Raises:
        RefusedError: One has not.
    """
    found = {(operator.operator_id, operator.name): set(operator.variables) for operator in now}
    for operator in then:
        has = found.get((operator.operator_id, operator.name))
        if has is not None and (gone := [f"`{name}`" for name in operator.variables if name not in has]):
            raise RefusedError(
                _changed(f"its `{operator.name}` had the variables {', '.join(gone)}, and has not now", location, place)
            )


def plan_first_batch(frame: DataFrame, output_mode: OutputMode, *, place: str) -> None:
    """Let Spark plan the first batch of a query, without a trace: what is wrong with its shape, it says then.

    A query on a server is left to its first batch.

    Args:
        frame: The query's result.
        output_mode: The query's.
        place: The stream, for messages.

    Raises:
        QueryRefusedError: Spark does not plan it.
    """
    if is_connected(frame.sparkSession):
        return
    first = OffsetFile(0, 1, 0, 0, pinned_conf(frame.sparkSession), {})
    try:
        _planned(frame, CheckpointState("", planned=first), output_mode, {})
    except Exception as exc:
        if not is_refusal(exc):
            # Whatever else is wrong, the batch itself fails with it.
            logger.warning("whether Spark takes the first batch is told when it runs", exc_info=True)
            return
        raise QueryRefusedError(
            f"Spark does not run this query as a stream: {spark_message(exc)}",
            where=place,
            remedy="correct the transform; nothing was planned",
        ) from exc


def state_changed(message: str, location: str, place: str) -> Problem | None:
    """What Spark says of a query that does not fit its state; None if it says something else.

    Args:
        message: Spark's words.
        location: The state's folder.
        place: Where the transform is.
    """
    found = _REFUSALS.search(message)
    if found is None:
        return None
    return _changed(f"{found[1]}: {found[2].strip()}", location, place)


def _changed(what: str, location: str, place: str) -> Problem:
    return Problem(
        code="STATE_CHANGED",
        file=place,
        cause=f"the query keeps other state than the checkpoint has in {location} ({what})",
        consequence="what the stream remembers of earlier rows does not fit the changed transform",
        remedy=STATE_REMEDY,
    )


def _fields(name: str, content: bytes) -> list[str]:
    """The fields within columns of a store of Spark's own operators."""
    return nested_fields(content) if name.endswith("/_metadata/schema") else []


def _check_places(then: list[str], now: list[str], location: str, place: str) -> None:
    """Make sure that no field is in the place of another one: of equal types, Spark takes the one for the other.

    Raises:
        RefusedError: One is.
    """
    moved = {(was, found) for was, found in zip(then, now, strict=False) if was != found}
    if {was for was, _ in moved} & {found for _, found in moved}:
        order = f"{', '.join(then)}, and are {', '.join(now)}"
        raise RefusedError(_changed(f"the fields of a struct in it were {order}", location, place))


def _write(copy: Path, name: str, content: bytes) -> None:
    file = copy / name
    if name.endswith("/"):
        file.mkdir(parents=True, exist_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    # A column's nullability may differ between a query that is planned and one that runs. The length must not.
    file.write_bytes(_NEVER_NULL.sub(rb'"\1":true ', content))


@dataclass(frozen=True)
class _Planned:
    """What Spark says of a query's state once it has planned a batch."""

    schemas: Mapping[str, bytes]
    """Of the stores of its own operators, by their files."""
    operators: tuple[Operator, ...]


def _planned(
    frame: DataFrame, state: CheckpointState, output_mode: OutputMode, schemas: Mapping[str, bytes]
) -> _Planned:
    """Let Spark plan the next batch of a query over a copy of what is known of its state.

    Raises:
        Exception: Spark's own, where it refuses.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-state-") as folder:
        copy = Path(folder, "state")
        for name, content in schemas.items():
            _write(copy, name, content)
        _plan(frame, state, output_mode, copy)
        found = {str(file.relative_to(copy)): file.read_bytes() for file in copy.rglob("_metadata/schema")}
        return _Planned(found, read_state_layout(str(copy), None, storage=Storage()).operators)


def _plan(frame: DataFrame, state: CheckpointState, output_mode: OutputMode, copy: Path) -> None:
    planned = state.planned
    if planned is None:
        return
    batch_id = planned.batch_id if state.is_pending else planned.batch_id + 1
    # Spark tells by the names of the planned batches which metadata of a `transformWithState` is in force.
    _write(copy.parent / "offsets", str(batch_id), b"")
    # What the checkpoint pins is set in a session that nobody else sees.
    session = frame.sparkSession._jsparkSession.cloneSession()
    for key, value in planned.conf.items():
        session.conf().set(key, value)
    words = {
        "batchWatermarkMs": planned.watermark_ms,
        "batchTimestampMs": planned.timestamp_ms,
        "conf": {**planned.conf},
    }
    find = partial(java_class, frame.sparkSession)
    noted = find(f"{_STREAMING}.checkpointing.OffsetSeqMetadata").apply(json.dumps(words))
    is_first_of_its_run = True
    defaults = getattr(find(f"{_STREAMING}.runtime.IncrementalExecution$"), "MODULE$")
    watermarks = getattr(find(f"{_STREAMING}.runtime.WatermarkPropagator$"), "MODULE$")
    ids = find("java.util.UUID")
    find(f"{_STREAMING}.runtime.IncrementalExecution")(
        session,
        frame._jdf.queryExecution().analyzed(),
        java_mode(frame.sparkSession, output_mode),
        f"file:{copy}",
        ids.randomUUID(),
        ids.randomUUID(),
        batch_id,
        find("scala.Option").apply(noted),
        noted,
        watermarks.apply(session.sessionState().conf()),
        is_first_of_its_run,
        *(getattr(defaults, f"$lessinit$greater$default${place}")() for place in range(12, 16)),
    ).executedPlan()
