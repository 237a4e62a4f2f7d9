"""Answers what somebody types into a DAG, an operator or a sensor and what these do not take."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator

from sluice.declaration_checks import refuse_name
from sluice.errors import DeclarationError
from sluice.planning.planner import Limits
from sluice.planning.triggers import triggered
from sluice.trigger import LIVE, duration


def _each(names: str, answer: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), answer)


PLANNED = (None, "", "once")
"""The triggers with which a run is planned, and may be bounded."""
TOGETHER = "together"
"""The task that runs the streams of a DAG with one driver."""
_UNTIL = "{{ data_interval_end | default('', true) }}"
_MISSPELT = 0.8
"""How much a word is like another that was meant."""
_OF_TASKS = 'give it to the tasks: `default_args={{"{name}": ...}}`'
_TASK_ARGUMENTS = (
    *("depends_on_past", "wait_for_downstream", "retries", "retry_delay", "owner", "pool", "queue", "email"),
    *("execution_timeout", "priority_weight", "on_success_callback", "trigger_rule", "executor"),
)
_IN_CONF = "write it into `sluice.toml`, under [spark.conf]"
_BACKFILL = "leave it out: a run of `airflow backfill create` recomputes its data interval"
_BY_RUN = "give it to a run: the DAG has it as a parameter"
_TRIGGER_WORDS: Mapping[str, str] = {
    **_each("available_now", 'write `trigger="available-now"`'),
    **_each("once", 'write `trigger="once"`'),
    **_each("processing_time trigger_interval", 'write `trigger="processing-time=10s"`, with `run_for`'),
    **_each("continuous", 'write `trigger="continuous=1s"`, with `run_for`'),
    **_each("real_time", 'write `trigger="real-time"`, with `run_for`'),
    **_each("duration run_time timeout_after", "write it as `run_for`"),
}
_DAG_WORDS: Mapping[str, str] = {
    **_each("schedule_interval timetable cron", "write it as `schedule`"),
    **{name: _OF_TASKS.format(name=name) for name in _TASK_ARGUMENTS},
    **_each("concurrency", "write it as `max_active_tasks`"),
    **_each("stream streams names", 'name the streams first: `stream_dag("visits", "users")`'),
    **_each("until max_batches", _BY_RUN),
    **_each("conn connection spark_conn_id connection_id", "write it as `conn_id`"),
    **_each("project_dir project_folder", "write it as `project`"),
    **_each("checkpoint_location", "leave it out: a run knows its own"),
    **_TRIGGER_WORDS,
    **_each("conf spark_conf packages jars master", _IN_CONF),
    **_each("full_refresh backfill start end", _BACKFILL),
    **_each("name", "write it as `dag_id`"),
    **_each("timezone tz", "say it by `start_date`, whose zone a cron expression is meant in"),
    **_each("packed pack shared one_driver one_session", "write it as `together=True`"),
    **_each("deferrable", "leave it out: a task is deferred while its driver runs"),
}
_TASK_WORDS: Mapping[str, str] = {
    **_each("stream_name name streams", "write it as `stream`"),
    **_each("conn connection spark_conn_id connection_id", "write it as `conn_id`"),
    **_each("project_dir project_folder", "write it as `project`"),
    **_each("conf spark_conf packages jars driver_memory executor_memory num_executors files py_files", _IN_CONF),
    **_each("master", "write it into the connection that `conn_id` names"),
    **_each("application application_args java_class", "leave it out: the stream's declaration names its transform"),
    **_each("full_refresh start end interval start_date_interval", _BACKFILL),
    **_each("checkpoint_location", "leave it out: a run knows its own"),
    **_TRIGGER_WORDS,
    **_each("strategy", "leave it out: planning chooses it; `trigger` says when Spark begins batches"),
    **_each("provide_context", "leave it out: Airflow gives every task its context"),
    **_each("schedule schedule_interval catchup max_active_runs", "give it to the DAG"),
    **_each("condition row_condition filter", "write it as `where`"),
    **_each("version versions", "write it as `to_version`, with `from_version` for what versions added"),
    **_each("max_versions", "write it as `max_files`: what waits in a Delta table is counted in files"),
    **_each("max_messages max_records max_lag", "write it as `max_offsets`"),
    **_each("quality expectation_suite suite_name data_asset_name checkpoint_name", "write it as `suite`"),
}


def check_dag_arguments(streams: tuple[Any, ...], given: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse what `stream_dag` does not take.

    Args:
        streams: What was given as the names of streams.
        given: What is to be passed on to `DAG`.
        ours: The parameters of `stream_dag` itself.

    Raises:
        DeclarationError: A name is unknown, or what names the streams does not.
    """
    place = "stream_dag(...)"
    known = [*ours, *inspect.signature(DAG).parameters]
    for name in given:
        if name not in known:
            refuse_name(name, known, what="argument", place=place, words=_DAG_WORDS)
    for name in ("start_date", "end_date"):
        if name in given and not isinstance(given[name], datetime | None):
            raise DeclarationError(
                f"`{name}` is {given[name]!r}", where=place, remedy="give a `datetime` with a zone: `tzinfo=UTC`"
            )
    _check_default_arguments(given.get("default_args"), place)
    if not streams:
        raise DeclarationError("no stream is named", where=place, remedy='name one or more: `stream_dag("visits")`')
    for index, name in enumerate(streams):
        if not isinstance(name, str):
            raise DeclarationError(
                f"the name of a stream is {name!r}", where=place, remedy='name them one by one: `stream_dag("a", "b")`'
            )
        if name in streams[:index]:
            raise DeclarationError(f"stream `{name}` is named twice", where=place, remedy="name it once")


def _check_default_arguments(given: Any, place: str) -> None:
    """Refuse what is misspelt; what no task takes may be there for others, for many DAGs share them."""
    known = _parameters(BaseOperator)
    for name in given if isinstance(given, Mapping) else ():
        near = difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELT) if name not in known else []
        if near:
            raise DeclarationError(
                f"unknown argument `{name}` in `default_args`", where=place, remedy=f"did you mean `{near[0]}`?"
            )


def check_trigger(trigger: str | None, run_for: str | timedelta | None, execution_timeout: timedelta | None) -> None:
    """Refuse a wrong trigger where a DAG file is parsed; templates are looked at once they are rendered.

    Args:
        trigger: As somebody typed it.
        run_for: How long a live run is to go on.
        execution_timeout: Of the task, where it is known.

    Raises:
        DeclarationError: It is none, lacks its interval or its time, or the task would be over before.
    """
    if "{{" in f"{trigger}{run_for}":
        return
    found = triggered(Limits(), trigger, run_for, names=("trigger", "run_for")).trigger
    if found is None or execution_timeout is None:
        return
    if timedelta(milliseconds=found.run_for_ms) >= execution_timeout:
        raise DeclarationError(
            f"the run goes on for {duration(found.run_for_ms)}, and `execution_timeout` ends the task after"
            f" {execution_timeout}",
            where="run_for",
            remedy="give the task more time than the run, which has to start Spark and to end its last batch, too",
        )


def wanted_until(until: str | None, trigger: str | None) -> str:
    """How far a run goes that is given a trigger: a planned one to the end of the interval, unless it is told."""
    # What Spark decides has no bound, unless somebody asks for one, who then hears of it.
    return until if until is not None else _UNTIL if trigger in PLANNED else ""


def is_default_bound(until: str | None, to_version: str | int | None) -> bool:
    """Whether nobody has typed a bound: the end of the data interval is one, and gives way where it can't be kept."""
    return until is None and to_version is None


def is_live(trigger: str | None) -> bool:
    """Whether a trigger, as somebody typed it, or as a template has rendered it, keeps a stream at work for a time."""
    return str(trigger).partition("=")[0] in LIVE


def check_together(together: Any, streams: tuple[str, ...], trigger: str | None) -> None:
    """Refuse what can't be run with one driver.

    Args:
        together: As somebody typed it.
        streams: The streams' names.
        trigger: As somebody typed it.

    Raises:
        DeclarationError: It is no bool, there is one stream only, or each would go on for a time of its own.
    """
    place = "stream_dag(..., together=...)"
    if not isinstance(together, bool):
        raise DeclarationError(f"`together` is {together!r}", where=place, remedy="give True, or leave it out")
    if not together:
        return
    if len(streams) == 1:
        raise DeclarationError(
            f"`{streams[0]}` is the only stream", where=place, remedy="name several, or leave `together` out"
        )
    if TOGETHER in streams:
        raise DeclarationError(
            f"a stream is called `{TOGETHER}`, as is the task that starts the driver",
            where=place,
            remedy="give that stream a DAG of its own",
        )
    if is_live(trigger):
        raise DeclarationError(
            f"with the trigger {trigger!r} a stream goes on for a time, and the next one would wait for its end",
            where=place,
            remedy="leave `together` out: each stream has a driver of its own then",
        )


def check_streams(task_id: Any, streams: Any) -> None:
    """Refuse what names no streams.

    Args:
        task_id: Of the task that is given them.
        streams: As somebody typed it.

    Raises:
        DeclarationError: It is no list of names.
    """
    if isinstance(streams, str) or not all(isinstance(name, str) for name in streams):
        raise DeclarationError(
            f"`streams` is {streams!r}",
            where=f"RunTogetherOperator(task_id={task_id!r})",
            remedy='give a list of names: `["a", "b"]`',
        )


def check_task_arguments(operator: type, given: Mapping[str, Any]) -> None:
    """Refuse what neither an operator of ours nor Airflow's own base takes.

    Args:
        operator: The operator's class.
        given: What is to be passed on to its base.

    Raises:
        DeclarationError: A name is unknown.
    """
    known = _parameters(operator)
    for name in given:
        if name not in known and not name.startswith("_"):
            place = f"{operator.__name__}(task_id={given.get('task_id')!r})"
            refuse_name(name, known, what="argument", place=place, words=_TASK_WORDS)


def _parameters(operator: type) -> set[str]:
    """What an operator takes by its name, and what its bases do."""
    return {
        name
        for kind in operator.__mro__
        if kind is not object
        for name, found in inspect.signature(kind).parameters.items()
        if found.kind in {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD} and name != "self"
    }
