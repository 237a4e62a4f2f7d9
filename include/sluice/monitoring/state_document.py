"""What `sluice state` tells: the operators of a stream that keep state, and the rows of one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.checkpoint.state_store import Operator
from sluice.errors import DeclarationError
from sluice.home import StreamHome, log_keys
from sluice.project import Project
from sluice.spark.java import Work
from sluice.spark.session import opened_session
from sluice.spark.state_rows import JOIN, StateView, find_operator, read_state, state_unreadable
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHERE = "sluice state"


def stateful_operators(home: StreamHome) -> tuple[CheckpointState, Sequence[Operator]]:
    """The checkpoint of a stream, and its operators that keep state; none before the first batch.

    Raises:
        StorageError: It can't be read.
    """
    number = home.current_generation()
    location = home.checkpoint_location(number)
    checkpoint = read_checkpoint(location, storage=home.storage, log_keys=log_keys(home.generation(number)))
    return checkpoint, checkpoint.operators if checkpoint.committed_id is not None else ()


def state_document(
    project: Project,
    stream: Stream,
    checkpoint: CheckpointState,
    view: StateView,
    *,
    most: int,
    session: SparkSession | None = None,
) -> dict[str, Any]:
    """Rows of the state of an operator, in the keys of `sluice state --json`.

    Args:
        project: The project.
        stream: The stream.
        checkpoint: Its checkpoint.
        view: What is looked at.
        most: How many rows.
        session: A Spark to use in place of one that the project's settings describe.

    Raises:
        DeclarationError: There is no such operator, or Spark does not have what is asked for.
        BatchFailedError: Spark does not start.
    """
    if checkpoint.committed_id is None or not checkpoint.operators:
        raise DeclarationError(
            "the stream keeps no state", where=f"{_WHERE} {stream.name}", remedy="look at it with `sluice inspect`"
        )
    operator = find_operator(checkpoint, view.operator, where=_WHERE)
    _check_fits(view, operator)
    with opened_session(project, stream, session, work=Work(0)) as opened:
        columns, rows = _rows(checkpoint, opened, operator, view, most + 1)
    return {
        "stream": stream.name,
        "operator_id": operator.operator_id,
        "name": operator.name,
        "batch": checkpoint.committed_id if view.batch is None else view.batch,
        "changes_since": view.changes_since,
        "columns": columns,
        "rows": rows[:most],
        "has_more": len(rows) > most,
    }


def operators_document(stream: str, operators: Sequence[Operator]) -> dict[str, Any]:
    """The operators, in the keys of `sluice state --json`."""
    return {"stream": stream, "operators": [msgspec.to_builtins(operator) for operator in operators]}


def _check_fits(view: StateView, operator: Operator) -> None:
    asked = {"--side": (view.side is not None, operator.name == JOIN, "joins have sides")}
    goes_by_time = operator.time_mode not in {"", "None"}
    asked["--variable"] = (view.variable is not None, bool(operator.variables), "processors that name some have them")
    asked["--timers"] = (view.timers, goes_by_time, "processors of transformWithState that go by a time have timers")
    for option, (is_given, is_fit, why) in asked.items():
        if is_given and not is_fit:
            raise DeclarationError(
                f"operator {operator.operator_id} ({operator.name}) has none: {why}",
                where=f"{_WHERE} {option}",
                remedy="leave it out",
            )


def _rows(
    checkpoint: CheckpointState, session: SparkSession, operator: Operator, view: StateView, most: int
) -> tuple[list[str], list[dict[str, Any]]]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sql

    frame = read_state(checkpoint, session, operator, view.options, where=_WHERE)
    # Spark's own words for values: times in the session's zone, which is UTC, and bytes in base 64.
    document = sql.to_json(sql.struct("*"), {"ignoreNullFields": "false"})
    try:
        found = frame.limit(most).select(document).collect()
    except (PySparkException, Py4JError) as exc:
        raise state_unreadable(operator, exc, view.options, where=_WHERE) from exc
    return frame.columns, [json.loads(row[0]) for row in found]
