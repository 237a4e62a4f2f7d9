"""The DAG factory: a DAG from the names of its streams."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import DAG, DeltaDataIntervalTimetable, Param

from sluice.planning.stream_order import in_order, is_read, upstreams, version_writer
from sluice.sources.contract import VersionedSource
from sluice_airflow.arguments import PLANNED, TOGETHER, check_dag_arguments, check_together, check_trigger
from sluice_airflow.assets import outlets
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.operators.run_together import RunTogetherOperator
from sluice_airflow.projects import airflow_project
from sluice_airflow.timetables import data_intervals

if TYPE_CHECKING:
    from sluice.stream import Stream

_UNTIL = "{{ params.until or data_interval_end | default('', true) }}"
_GIVEN_UNTIL = "{{ params.until or '' }}"
_MAX_BATCHES = "{{ params.max_batches or '' }}"
_TIME = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.]\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
"""ISO 8601. Airflow takes `format` for the form in its UI, and checks it only where a further package is installed."""
_NOT_PERIODIC = {"@once", "@continuous"}
_WHOLE_DAYS = {"@daily", "@weekly", "@monthly", "@quarterly", "@yearly"}


def stream_dag(
    *streams: str,
    dag_id: str | None = None,
    schedule: Any = None,
    trigger: str | None = None,
    run_for: str | timedelta | None = None,
    together: bool = False,
    conn_id: str = "spark_default",
    project: str | None = None,
    **dag_arguments: Any,
) -> DAG:
    """Make a DAG that runs streams, one task per stream.

    A stream that reads what another one writes runs after it. Where it reads one Delta table, and that is the other
    one's sink, it runs up to the version that was left there; what else it reads, it takes up to now. The others take
    what arrived before the end of the data interval, as far as that can be kept: see `RunStreamOperator`. A stream that
    has nothing to do is skipped; what depends on it still runs. Each task has its stream's assets as outlets.

    Who starts a run by hand may bound it by the parameters `until` (a time) and `max_batches`.

    A backfill recomputes the rows of its intervals, stream by stream. Where a declaration does not support that, each
    task of a backfill fails at once and says why, as the DAG's documentation does; so it is where the intervals are not
    whole days. (Airflow could be told to make no such runs; its command then ends in a traceback without a reason.)

    Args:
        streams: The streams' names; each becomes a task of the same name.
        dag_id: The DAG's id; the first stream's name when not given.
        schedule: A cron expression or a time (which get real data intervals), or any other schedule that a DAG takes.
        trigger: When Spark begins the batches of each stream; see `RunStreamOperator`. Where Spark decides them, no
            bound is kept: each stream takes what there is by then.
        run_for: How long each stream is kept at work, with a trigger that does not end by itself.
        together: Whether one driver runs all streams that have something to do, one after the other, in a task of its
            own before theirs; see `RunTogetherOperator`.
        conn_id: The connection that names Spark's master.
        project: The folder of `sluice.toml`; when not given, `$SLUICE_PROJECT`, else the folder above the DAGs.
        dag_arguments: Passed on to `DAG`; `max_active_runs` is 1 unless it is given.

    Raises:
        DeclarationError: A stream is not declared, or a declaration or the trigger is wrong.
    """
    check_dag_arguments(streams, dag_arguments, inspect.signature(stream_dag).parameters)
    check_together(together, streams, trigger)
    loaded = airflow_project(project)
    declared = {name: loaded.stream(name) for name in streams}
    check_trigger(trigger, run_for, (dag_arguments.get("default_args") or {}).get("execution_timeout"))
    is_planned = trigger in PLANNED
    given = dag_arguments.pop("params", None)
    obstacles, start_date = _backfill_obstacles(declared), dag_arguments.get("start_date")
    said = _documentation(declared, obstacles, schedule, start_date)
    with DAG(
        dag_id or streams[0],
        schedule=_with_intervals(schedule, start_date),
        **{"max_active_runs": 1, "doc_md": "\n".join(said), **dag_arguments},
        params={**_params(), **(given or {})},
    ) as dag:
        tasks: dict[str, RunStreamOperator] = {}
        # A cycle can't be ordered; Airflow refuses it with its own words.
        read = upstreams(declared)
        for name in in_order(read):
            stream, upstream = declared[name], read[name]
            writer = version_writer(stream, [declared[other] for other in upstream])
            tasks[name] = RunStreamOperator(
                task_id=name,
                stream=name,
                until=("" if upstream else _UNTIL) if is_planned else _GIVEN_UNTIL,
                to_version=_version_of(writer) if is_planned and writer is not None else None,
                max_batches=_MAX_BATCHES,
                trigger=trigger,
                run_for=run_for,
                conn_id=conn_id,
                project=project,
                trigger_rule="none_failed",
                outlets=outlets(stream, project=project),
            )
            tasks[name].backfill_obstacle = _refusal(obstacles)
            # Nobody types the end of the interval, nor the version that a task upstream has left.
            tasks[name].is_default_bound = True
            tasks[name].bound_parameter = None if is_planned and upstream else "until"
            for parent in upstream:
                tasks[parent] >> tasks[name]
        if together:
            _driver_before(tasks, trigger, conn_id, project)
    return dag


def _driver_before(
    tasks: Mapping[str, RunStreamOperator], trigger: str | None, conn_id: str, project: str | None
) -> None:
    """Put the task before the tasks of streams that runs them with one driver."""
    before = RunTogetherOperator(
        task_id=TOGETHER,
        streams=list(tasks),
        until=_UNTIL if trigger in PLANNED else _GIVEN_UNTIL,
        max_batches=_MAX_BATCHES,
        trigger=trigger,
        conn_id=conn_id,
        project=project,
    )
    before.is_default_bound, before.bound_parameter = True, "until"
    before >> list(tasks.values())


def _params() -> dict[str, Param]:
    """What a person, or a call of the API, may give to a run; Airflow refuses what does not fit."""
    return {
        "until": Param(
            None,
            type=["null", "string"],
            format="date-time",
            pattern=_TIME,
            title="Until",
            description="Take only what arrived before this time; empty for the end of the data interval, or now.",
        ),
        "max_batches": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Batches",
            description="The most data batches of each stream; empty for all.",
        ),
    }


def _with_intervals(schedule: Any, start_date: datetime | None) -> Any:
    """Airflow gives plain cron strings and times intervals without length: everything would be due at their start."""
    if isinstance(schedule, str) and schedule not in _NOT_PERIODIC:
        return data_intervals(schedule, timezone=_timezone(start_date))
    return DeltaDataIntervalTimetable(schedule) if isinstance(schedule, timedelta) else schedule


def _timezone(start_date: datetime | None) -> Any:
    """The zone in which a cron expression is meant: that of the start date, else UTC. Airflow takes pendulum's only."""
    return "UTC" if start_date is None or start_date.tzinfo is None else pendulum.instance(start_date).timezone


def _version_of(task_id: str) -> str:
    return f"{{{{ (ti.xcom_pull(task_ids='{task_id}') or {{}}).get('sink_version') or '' }}}}"


def _backfill_obstacles(streams: dict[str, Stream]) -> dict[str, str]:
    """By stream, why a backfill of all of these streams can't work."""
    found = {name: stream.backfill_obstacle for name, stream in streams.items()}
    places = {writer: other.sink.location for writer, other in streams.items() if other.sink.location is not None}
    for name, stream in streams.items():
        for source in stream.sources.values():
            writer = next((writer for writer, place in places.items() if is_read(source, place)), None)
            if writer is not None and isinstance(source, VersionedSource) and not source.bears_changes:
                found[name] = f"it reads `{writer}` without `skip_change_commits`, and would be refused after it"
    return {name: obstacle for name, obstacle in found.items() if obstacle is not None}


def _refusal(obstacles: dict[str, str]) -> str | None:
    """What each task of a backfill fails with: what one stream replaced, the next would be refused over."""
    if not obstacles:
        return None
    reasons = "; ".join(f"`{name}`: {obstacle}" for name, obstacle in obstacles.items())
    return (
        f"this DAG can't be backfilled, and nothing was changed: {reasons}. To make it so, declare"
        ' `interval_column="..."` (a date or time column of the result) with a Delta sink in each of its streams, and'
        " `skip_change_commits=True` where one reads another; or give a stream that can be backfilled a DAG of its own"
    )


def _parts_of_days(streams: dict[str, Stream], schedule: Any, start_date: datetime | None) -> list[str]:
    """What to know of backfills where the schedule's intervals are certainly not whole days, as dates are (UTC)."""
    columns = [f"- `{name}`: `{stream.interval_column}`" for name, stream in streams.items() if stream.interval_column]
    is_utc = str(getattr(_timezone(start_date), "name", _timezone(start_date))) == "UTC"
    if isinstance(schedule, timedelta):
        is_midnight = start_date is None or start_date.astimezone(UTC).time() == time()
        is_whole = schedule % timedelta(days=1) == timedelta(0) and is_midnight
    elif isinstance(schedule, str) and schedule not in _NOT_PERIODIC:
        is_whole = is_utc and (schedule in _WHOLE_DAYS or schedule.split()[:2] == ["0", "0"])
    else:
        return []
    if is_whole or not columns:
        return []
    said = (
        "The intervals of this DAG are not whole days (UTC): a backfill is refused where the interval column is a date."
    )
    return ["", said, "", *columns]


def _documentation(
    streams: dict[str, Stream], obstacles: dict[str, str], schedule: Any, start_date: datetime | None
) -> list[str]:
    lines = ["| stream | reads | transform | writes | backfill by | suite |", "|---|---|---|---|---|---|"]
    for name, stream in streams.items():
        reads = ", ".join(f"`{source.location}`" for source in stream.sources.values())
        column = f"`{stream.interval_column}`" if stream.interval_column else "-"
        writes = f"`{stream.sink.location or stream.sink.kind}`"
        suite = f"`{stream.quality}`" if stream.quality else "-"
        lines.append(f"| {name} | {reads} | `{stream.transform_name}` | {writes} | {column} | {suite} |")
    if obstacles:
        lines += ["", "This DAG can't be backfilled; each task of a backfill fails at once:", ""]
        lines += [f"- `{name}`: {obstacle}" for name, obstacle in obstacles.items()]
    return lines if obstacles else lines + _parts_of_days(streams, schedule, start_date)
