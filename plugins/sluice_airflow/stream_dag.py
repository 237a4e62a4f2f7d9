"""The DAG factory: a DAG from the names of its streams."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable

from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.projects import airflow_project

if TYPE_CHECKING:
    from sluice.stream import Stream

_INTERVAL_END = "{{ data_interval_end | default('', true) }}"


def stream_dag(
    *streams: str,
    dag_id: str | None = None,
    schedule: Any = None,
    conn_id: str = "spark_default",
    project: str | None = None,
    **dag_arguments: Any,
) -> DAG:
    """Make a DAG that runs streams, one task per stream.

    A stream that reads the sink of another one runs after it, up to the table version that it left. The others take
    what arrived before the end of the data interval. A stream that has nothing to do is skipped; what depends on it
    still runs.

    Args:
        streams: The streams' names; each becomes a task of the same name.
        dag_id: The DAG's id; the first stream's name when not given.
        schedule: A cron expression (which gets real data intervals), or any other schedule that a DAG takes.
        conn_id: The connection that names Spark's master.
        project: The folder of `sluice.toml`; when not given, `$SLUICE_PROJECT`, else the folder above the DAGs.
        dag_arguments: Passed on to `DAG`; `max_active_runs` is 1 unless it is given.

    Raises:
        DeclarationError: A stream is not declared, or a declaration is wrong.
    """
    loaded = airflow_project(project)
    declared = {name: loaded.stream(name) for name in streams}
    if isinstance(schedule, str) and not schedule.startswith("@"):
        # Airflow gives a plain cron string intervals without length: everything would be due at their start.
        schedule = CronDataIntervalTimetable(schedule, timezone=_timezone(dag_arguments.get("start_date")))
    with DAG(
        dag_id or streams[0],
        schedule=schedule,
        **{"max_active_runs": 1, "doc_md": _documentation(declared), **dag_arguments},
    ) as dag:
        tasks: dict[str, RunStreamOperator] = {}
        for name, stream in _in_order(declared):
            upstream = _upstream(stream, declared)
            tasks[name] = RunStreamOperator(
                task_id=name,
                stream=name,
                until="" if upstream else _INTERVAL_END,
                to_version=_version_of(upstream[0]) if len(upstream) == 1 else None,
                conn_id=conn_id,
                project=project,
                trigger_rule="none_failed",
                max_active_tis_per_dag=1,
            )
            for parent in upstream:
                tasks[parent] >> tasks[name]
    return dag


def _timezone(start_date: datetime | None) -> Any:
    """The zone in which a cron expression is meant: that of the start date, else UTC. Airflow takes pendulum's only."""
    return "UTC" if start_date is None or start_date.tzinfo is None else pendulum.instance(start_date).timezone


def _version_of(task_id: str) -> str:
    return f"{{{{ (ti.xcom_pull(task_ids='{task_id}') or {{}}).get('sink_version') or '' }}}}"


def _upstream(stream: Stream, streams: dict[str, Stream]) -> list[str]:
    """The streams whose sink this one reads."""
    read = {source.location for source in stream.sources.values()}
    return [name for name, other in streams.items() if other.sink.location is not None and other.sink.location in read]


def _in_order(streams: dict[str, Stream]) -> list[tuple[str, Stream]]:
    """Streams after those that they read."""
    ordered: list[tuple[str, Stream]] = []
    done: set[str] = set()
    waiting = dict(streams)
    while waiting:
        ready = [name for name, stream in waiting.items() if set(_upstream(stream, streams)) - {name} <= done]
        # A cycle can't be ordered; Airflow refuses it with its own words.
        for name in ready or list(waiting):
            ordered.append((name, waiting.pop(name)))
            done.add(name)
    return ordered


def _documentation(streams: dict[str, Stream]) -> str:
    lines = ["| stream | reads | transform | writes |", "|---|---|---|---|"]
    for name, stream in streams.items():
        reads = ", ".join(f"`{source.location}`" for source in stream.sources.values())
        lines.append(f"| {name} | {reads} | `{stream.transform}` | `{stream.sink.location or stream.sink.kind}` |")
    return "\n".join(lines)
