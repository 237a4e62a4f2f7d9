"""The operator that runs several streams with one driver, before the tasks of these streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import DownstreamTasksSkipped

from sluice.errors import SluiceError
from sluice.foreign_code import described, is_failure
from sluice.planning.stream_order import in_order, upstreams
from sluice.planning.verdict import Request
from sluice.running.preparation import prepare_run, reserve_run
from sluice.runs.driver import Drivers
from sluice.runs.record import RunRecord, RunRecords
from sluice.runs.stop import stop_request
from sluice.sources.contract import Bound
from sluice.spark.shown_log import words_of_streams
from sluice_airflow.arguments import check_streams, check_task_arguments, is_default_bound, is_live, wanted_until
from sluice_airflow.listeners.drivers_pool import POOL
from sluice_airflow.noted_runs import BY_AIRFLOW, NotedRuns, forget_runs, key_of_try, note_runs, runs_of_try, tell_runs
from sluice_airflow.openlineage_provider import ToldByProvider, lineage_of_task
from sluice_airflow.operators.driver_task import LIVE_FIRST, RETRIES, DriverTask, wanted_deferrable
from sluice_airflow.outcomes import as_airflow_errors
from sluice_airflow.projects import task_project
from sluice_airflow.rendered import is_given, limits_of
from sluice_airflow.run_keys import RunKey, is_backfill
from sluice_airflow.submission import launch_together, sharing
from sluice_airflow.taken_keys import free_key
from sluice_airflow.triggers.together import TogetherTrigger
from sluice_airflow.unannounced_runs import begin_telling

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import WeightRuleParam

    from sluice.planning.planner import Limits
    from sluice.project import Project
    from sluice.stream import Stream

_RUN_BEFORE = "its run before"


class RunTogetherOperator(ToldByProvider, DriverTask):
    """Runs streams with one driver, one after the other, before their own tasks; these then tell what came of it.

    It plans all of them in the worker. Of those that have nothing to do, it skips the tasks; for the others, if there
    are several, it starts one driver, and ends when that does, whatever became of the runs. Each bears the key of the
    task of its stream, which has the stream's name and comes after this one: that task succeeds, fails, has outlets
    and retries for its stream alone, and runs by itself what was not begun here.

    What can't be run so is left to its task: a stream of which a run is at work, whose declaration or plan is refused,
    whose task waits for other tasks, too, or that reads one of these. So are all of them in a run of a backfill, and
    when this task is cleared.

    Args:
        streams: The streams' names, which are those of their tasks.
        until: As for `RunStreamOperator`, of those streams that read no other one of these.
        max_batches: The most data batches of each.
        trigger: As for `RunStreamOperator`; with one that goes on for a time, each stream is left to its own task.
        conn_id: As for `RunStreamOperator`.
        project: As for `RunStreamOperator`.
        deferrable: As for `RunStreamOperator`.
        pool: As for `RunStreamOperator`: the driver takes one slot.
        retries: As for `RunStreamOperator`.
        weight_rule: As for `RunStreamOperator`.
        kwargs: What every operator takes.
    """

    template_fields: Sequence[str] = ("streams", "until", "max_batches", "trigger", "conn_id", "project")
    ui_color = "#d8ecf3"

    bound_parameter: str | None = None
    """See `RunStreamOperator`."""
    _started: NotedRuns | None = None
    """The runs of the driver that this task follows."""
    idle: Sequence[str] = ()
    """The streams that had nothing to do."""

    def __init__(
        self,
        *,
        streams: Sequence[str],
        until: str | None = None,
        max_batches: str | int | None = None,
        trigger: str | None = None,
        conn_id: str = "spark_default",
        project: str | None = None,
        deferrable: bool | None = None,
        pool: str = POOL,
        retries: int | None = RETRIES,
        weight_rule: WeightRuleParam = LIVE_FIRST,
        **kwargs: Any,
    ) -> None:
        check_task_arguments(type(self), kwargs)
        check_streams(kwargs.get("task_id"), streams)
        super().__init__(pool=pool, retries=retries, weight_rule=weight_rule, **kwargs)
        self.streams = streams
        self.until = wanted_until(until, trigger)
        self.is_default_bound = is_default_bound(until, None)
        self.max_batches = max_batches
        self.trigger = trigger
        self.conn_id = conn_id
        self.project = project
        self.deferrable = wanted_deferrable(given=deferrable)

    def execute(self, context: Context) -> None:
        """Run the streams that have something to do, as far as they can be run together.

        Raises:
            DownstreamTasksSkipped: Some had nothing to do; this task succeeds.
            AirflowException: The driver can't be started.
        """
        if is_backfill(context):
            self.log.info("a backfill: each stream recomputes its rows in its own task")
            return
        if key_of_try(context, self.retries or 0).generation > 0:
            with as_airflow_errors():
                self._end_what_was_cleared(context)
            self.log.info("this task was cleared: each stream is run by its own task, with a driver of its own")
            return
        if is_live(self.trigger):
            self.log.info("each stream goes on for a time, and is run by its own task, with a driver of its own")
            return
        with as_airflow_errors(), lineage_of_task(context, self):
            project = task_project(self.project)
            self._started = runs_of_try(context)
            if self._started is None:
                self._begin(context, project)
            else:
                self.log.info("the driver of this task was started before: re-attached to it")
                tell_runs(context, self._started.planned)
                self.idle = self._started.idle
            if self._started is not None:
                self._follow(context, self._started)
                self._end(context, project, self._started)
        self._skip_idle()

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Go on when the driver is done; see `execute`."""
        with as_airflow_errors():
            project = task_project(self.project)
            started = runs_of_try(context) or NotedRuns(project.root, event["runs"])
            self.idle = started.idle
            self._end(context, project, started)
        self._skip_idle()

    def on_kill(self) -> None:
        """Ask the driver to end; the batch under way replays at the next run of its stream."""
        self._is_killed = True
        if self._started is not None:
            self._started.end(f"{BY_AIRFLOW} the task was killed")

    @property
    def followed_run(self) -> tuple[str, str] | None:
        """None: the tasks of the streams tell of their runs."""
        return None

    def _end_what_was_cleared(self, context: Context) -> None:
        started = runs_of_try(context)
        if started is not None:
            started.end(f"{BY_AIRFLOW} the task was cleared")
            # A task that has yet to begin tells what came of its run.
            tell_runs(context, started.planned)

    def _begin(self, context: Context, project: Project) -> None:
        limits = limits_of(
            until=self.until,
            max_batches=self.max_batches,
            trigger=self.trigger,
            is_default_bound=self.is_default_bound and not is_given(context, self.bound_parameter),
        )
        planning = _Planning(project, self.streams, limits, context["ti"], self._waits())
        planned = planning.planned
        try:
            for name in planning.order:
                self.log.info("%s: %s", name, planning.plan(name))
            self.idle = planning.idle
            runs = self._shared(project, planning.declared, planned)
            tell_runs(context, [record.run_id for record in planned.values()])
            if runs:
                ids = {name: planned[name].run_id for name in runs}
                left = [planned[name].run_id for name in planned if name not in runs]
                self._started = NotedRuns(project.root, ids, planning.idle, left)
                note_runs(context, self._started)
                for name in runs:
                    begin_telling(project.home_named(name))
                self.check_alive()
                shared = {name: planned[name] for name in runs}
                driver = launch_together(project, planning.declared, shared, self.conn_id)
                self.log.info(
                    "started the driver: process %s, log %s", driver.process and driver.process.pid, driver.log
                )
        except BaseException:
            self._started = None
            _end_planned(project, planned)
            forget_runs(context)
            raise
        _end_planned(project, {name: planned[name] for name in planned if name not in runs})

    def _waits(self) -> dict[str, set[str]]:
        """By stream, what its task waits for beside this one; nothing of a stream that has no task behind this one."""
        waits = {}
        for task in self.get_direct_relatives(upstream=False):
            waits[task.task_id] = task.upstream_task_ids - {self.task_id}
            if task.depends_on_past or task.wait_for_downstream:
                waits[task.task_id].add(_RUN_BEFORE)
        return waits

    def _shared(
        self, project: Project, declared: Mapping[str, Stream], planned: Mapping[str, RunRecord]
    ) -> Sequence[str]:
        """Those of the planned runs that one driver does; none if it were for one of them."""
        if len(planned) == 1:
            self.log.info("%s alone has something to do: its own task runs it", *planned)
        if len(planned) <= 1:
            return []
        able = sharing(project, {name: declared[name] for name in planned}, self.conn_id)
        if len(able) < len(planned):
            others = ", ".join(name for name in planned if name not in able)
            self.log.info("of another Spark, or with wrong settings, and left to their own tasks: %s", others)
        kept: list[str] = []
        for name in planned:
            # To start a driver forgets who has asked the run to end: that was a try before.
            is_stopped = stop_request(project.home_named(name), planned[name].run_id) is not None
            # What it reads may come later otherwise, from a task of its own.
            if name in able and not is_stopped and set(planned[name].after) <= set(kept):
                kept.append(name)
        return kept if len(kept) > 1 else []

    def _follow(self, context: Context, started: NotedRuns) -> None:
        if self._is_killed:
            self.on_kill()
        self.follow(TogetherTrigger(project=started.project, runs=started.runs, ends_at=self.ends_at(context)))

    def _end(self, context: Context, project: Project, started: NotedRuns) -> None:
        """Show what the driver said; what it has not begun is done by the tasks of the streams."""
        first = next(iter(started.runs))
        try:
            driver = Drivers(project.home_named(first)).find(started.runs[first])
            if driver is not None and not self.has_shown(context, driver):
                self.show_log(context, driver, words_of_streams(project, started.runs))
        except SluiceError as exc:
            self.log.warning("the driver's log can't be shown: %s", exc)
        for name, run_id in started.runs.items():
            try:
                self._tell(name, RunRecords(project.home_named(name)), run_id)
            except SluiceError as exc:
                # Its own task fails with it.
                self.log.warning("%s: %s", name, exc)

    def _tell(self, name: str, records: RunRecords, run_id: str) -> None:
        ended = records.end_planned(run_id, datetime.now(UTC))
        if ended is not None and ended.status == "planned":
            self.log.info("%s: not begun; its own task runs it", name)
            return
        record = ended or records.read(run_id)
        if record is None:
            self.log.info("%s: not begun, or with nothing to do by then; its own task tells", name)
            return
        why = "" if record.error is None else f": {record.error.whole}"
        self.log.info("%s: run %s %s%s", name, run_id, record.status, why)

    def _skip_idle(self) -> None:
        # No worker begins a task only to find that there is nothing to do.
        self.check_alive()
        if self.idle:
            raise DownstreamTasksSkipped(tasks=list(self.idle))  # type: ignore[no-untyped-call]


@dataclass
class _Planning:
    """Plans the streams one by one, each after those that it reads."""

    project: Project
    names: Sequence[str]
    limits: Limits
    ti: Any
    waits: Mapping[str, set[str]]
    """By stream, what its task waits for."""
    planned: dict[str, RunRecord] = field(default_factory=dict)
    """The records of the runs that are to be begun."""
    idle: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    """Those that are left to their own tasks."""

    @cached_property
    def declared(self) -> dict[str, Stream]:
        """The streams by name, as far as their declarations are right."""
        return {name: found for name, found in self._declarations.items() if not isinstance(found, SluiceError)}

    @cached_property
    def order(self) -> list[str]:
        """The names of the streams, each after those that it reads; what is not declared rightly first."""
        return [*(name for name in self.names if name not in self.declared), *in_order(self._read)]

    @cached_property
    def _declarations(self) -> dict[str, Stream | SluiceError]:
        found: dict[str, Stream | SluiceError] = {}
        for name in self.names:
            try:
                found[name] = self.project.stream(name)
            except SluiceError as exc:
                found[name] = exc
        return found

    @cached_property
    def _read(self) -> dict[str, list[str]]:
        return upstreams(self.declared)

    def plan(self, name: str) -> str:
        """Plan a stream; says in words what becomes of it."""
        if name not in self.declared:
            return f"left to its own task: {self._declarations[name]}"
        before = [other for other in self._read[name] if other != name]
        if name not in self.waits:
            self.left.add(name)
            return "no task of that name is behind this one, to tell what came of a run"
        if others := self.waits[name].difference(before):
            self.left.add(name)
            return f"its task waits for {', '.join(sorted(others))}, too, and runs it then"
        if any(other in self.left for other in before):
            self.left.add(name)
            return "it reads what another task writes; its own task runs it"
        try:
            record = self._prepare(name, before)
        except BaseException as exc:
            if not is_failure(exc):
                raise
            self.left.add(name)
            return f"left to its own task: {exc if isinstance(exc, SluiceError) else described(exc)}"
        if record.status == "planned":
            self.planned[name] = record
        elif record.status == "skipped":
            self.idle.append(name)
        return f"{record.plan.verdict}: {record.plan.reason}"

    def _prepare(self, name: str, before: Iterable[str]) -> RunRecord:
        first = RunKey(self.ti.dag_id, self.ti.run_id, name, -1, 0)
        home = self.project.home_named(name)
        # What was begun under a key is of an earlier life of the DAG run: this task has begun nothing yet.
        key = free_key(RunRecords(home), Drivers(home), first, datetime.now(UTC))
        limits = replace(self.limits, bound=Bound()) if before else self.limits
        request = Request(self.declared[name], limits, str(key))
        after = [other for other in before if other in self.planned]
        if after:
            return reserve_run(self.project, request, after)
        return prepare_run(self.project, request)


def _end_planned(project: Project, planned: Mapping[str, RunRecord]) -> None:
    for name, record in planned.items():
        RunRecords(project.home_named(name)).end_planned(record.run_id, datetime.now(UTC))
