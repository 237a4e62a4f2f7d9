"""The operator that runs one stream, once per DAG run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from sluice.errors import LeaseTakenError, SluiceError
from sluice.home import StreamHome
from sluice.interval import Interval
from sluice.locations import join
from sluice.planning.backfill import downstream_effect
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, first_bound
from sluice.running.backfill_preparation import BackfillRequest, prepare_backfill
from sluice.running.preparation import prepare_run
from sluice.runs.driver import Driver, Drivers
from sluice.runs.lease import check_not_taken, newest_lease
from sluice.runs.record import RunRecord, RunRecords, describe_batch
from sluice.runs.stop import request_stop, stop_request
from sluice.runs.summary import RecordedInterval
from sluice.sources.contract import Bound
from sluice.spark.shown_log import words_of_stream
from sluice.stream import Stream
from sluice.times import parse_time
from sluice_airflow.arguments import check_task_arguments, check_trigger, is_default_bound, wanted_until
from sluice_airflow.assets import emit_events, told_outlets
from sluice_airflow.listeners.drivers_pool import POOL
from sluice_airflow.noted_runs import BY_AIRFLOW, NotedRuns, key_of_try, note_runs
from sluice_airflow.openlineage_provider import ToldByProvider, lineage_of_task
from sluice_airflow.operators.driver_task import LIVE_FIRST, RETRIES, DriverTask, wanted_deferrable
from sluice_airflow.outcomes import as_airflow_errors, conclude, has_written
from sluice_airflow.projects import task_project
from sluice_airflow.rendered import is_given, limits_of
from sluice_airflow.run_keys import RunKey, is_backfill
from sluice_airflow.submission import launch
from sluice_airflow.taken_keys import TakenKey, take_key
from sluice_airflow.triggers.lease import LeaseTrigger
from sluice_airflow.triggers.run import RunTrigger
from sluice_airflow.unannounced_runs import Telling, begin_telling, is_untold

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import WeightRuleParam

    from sluice.project import Project

_ENDED = {"succeeded", "failed", "refused", "stopped"}
_STOP_SECONDS = 120.0
"""How long a driver that was asked to end may take; one that still starts hears of it only then."""


class RunStreamOperator(ToldByProvider, DriverTask):
    """Runs a stream up to a bound, and stops. In a run of a backfill, recomputes the rows of its data interval instead.

    Plans in the worker; when there is nothing to do, the task is skipped without a JVM and the log says why.
    Otherwise Spark is started through the Spark provider's hook as a driver of its own, which outlives the worker, and
    the task is deferred until the run is over, unless that is so within seconds. A lost worker or triggerer leads back
    to the same run, never to a second driver; after a lost worker, a retry does that. A retry finishes what the first
    try planned; a task that is cleared plans again, with the same bound. `execution_timeout` holds for the whole run.

    Args:
        stream: The stream's name.
        until: Take only what arrived before this time (ISO 8601); empty for now, which is then kept for retries. When
            not given, the end of the data interval, which is left out where Spark alone can decide the batches: the
            run's reason says which sources it does not bound.
        to_version: Take Delta versions up to this one only; empty for all.
        max_batches: The most data batches; empty for all.
        trigger: When Spark begins batches: `available-now`, `once`, `processing-time=10s`, `continuous=1s` or
            `real-time`; empty for planned batches. With one of the last three the query is kept at work for the time
            of `run_for`. Where Spark decides the batches, `until` is empty unless it is given.
        run_for: How long such a run goes on: a time, or a text such as `5m`.
        conn_id: A connection of type `spark` that names the master, or of type `spark_connect`.
        project: The folder of `sluice.toml`; when not given, `$SLUICE_PROJECT`, else the folder above the DAGs.
        deferrable: Whether the task leaves its worker while Spark runs; when not given, it does unless Airflow's
            `[operators] default_deferrable` is set to false, or the driver would end with its task (KubernetesExecutor
            and others that run each task in a container of its own).
        pool: Where the task takes its slot, also while it is deferred: the slots bound the drivers at work.
        retries: How often it is tried again; when not given, twice, or `core.default_task_retries` if that is more.
        weight_rule: Which tasks come first when slots are few; by default those of live runs before those of backfills.
        kwargs: What every operator takes. The events of `outlets` that `sluice_airflow.assets` makes tell of the run.
    """

    template_fields: Sequence[str] = (
        "stream",
        "until",
        "to_version",
        "max_batches",
        "trigger",
        "run_for",
        "conn_id",
        "project",
    )
    ui_color = "#d8ecf3"

    backfill_obstacle: str | None = None
    """Why no run of a backfill may begin: `stream_dag` tells all of its tasks if one of its streams can't take part."""
    bound_parameter: str | None = None
    """The DAG's parameter by which who starts a run bounds it: `stream_dag` tells."""
    _following: tuple[StreamHome, str] | None = None
    """The run that this task has begun to follow."""
    taken_key: RunKey | None = None
    """The key of its run, once it has taken one."""
    telling: Telling | None = None
    """Its events, once the task is about to succeed."""

    def __init__(
        self,
        *,
        stream: str,
        until: str | None = None,
        to_version: str | int | None = None,
        max_batches: str | int | None = None,
        trigger: str | None = None,
        run_for: str | timedelta | None = None,
        conn_id: str = "spark_default",
        project: str | None = None,
        deferrable: bool | None = None,
        pool: str = POOL,
        retries: int | None = RETRIES,
        weight_rule: WeightRuleParam = LIVE_FIRST,
        **kwargs: Any,
    ) -> None:
        check_task_arguments(type(self), kwargs)
        check_trigger(trigger, run_for, kwargs.get("execution_timeout"))
        super().__init__(pool=pool, retries=retries, weight_rule=weight_rule, **kwargs)
        self.stream = stream
        self.until = wanted_until(until, trigger)
        self.is_default_bound = is_default_bound(until, to_version)
        self.to_version = to_version
        self.max_batches = max_batches
        self.trigger = trigger
        self.run_for = run_for
        self.conn_id = conn_id
        self.project = project
        self.deferrable = wanted_deferrable(given=deferrable)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the stream; returns a summary of its run record (see `sluice_airflow.outcomes.summary`).

        Raises:
            AirflowSkipException: There was nothing to do.
            AirflowFailException: It failed, and trying again would not help.
            AirflowException: It failed; a retry may succeed.
        """
        if is_backfill(context) and self.backfill_obstacle is not None:
            raise AirflowFailException(self.backfill_obstacle)
        with as_airflow_errors(), lineage_of_task(context, self):
            project = task_project(self.project)
            while True:
                try:
                    return self._run(context, project)
                except LeaseTakenError as exc:
                    self._wait_for_lease(context, project, exc)

    def _run(self, context: Context, project: Project) -> dict[str, Any]:
        stream = project.stream(self.stream)
        home = project.stream_home(stream)
        records, drivers = RunRecords(home), Drivers(home)
        taken = take_key(
            context,
            records,
            project=project.root,
            retries=self.retries or 0,
            interval=_recorded_interval(context),
            before=self.upstream_task_ids,
        )
        self.taken_key, earlier = taken.key, taken.earlier(records)
        self._end_what_was_cleared(drivers, earlier)
        if (record := records.find(str(taken.key))) is not None:
            # One that was asked to end ends as stopped: so would who followed it.
            drivers.wait_for_stopped(record.run_id, _STOP_SECONDS)
            record = records.read(record.run_id)
        if record is not None and drivers.is_running(record, datetime.now(UTC)):
            self.log.info("run %s is still at work: re-attached to it", record.run_id)
            self._note(context, project, record, taken)
            return self._follow(context, project, home, record)
        if record is not None and self._is_done_together(context, drivers, record):
            self._note(context, project, record, taken)
            return self._conclude_together(context, project, home, record)
        if record is not None and record.status == "stopped" and record.tries == 0:
            # Before it had begun: there is nothing to go on with, nor a bound to keep.
            records.forget(record.run_id)
        elif record is not None:
            self._show_log_of_lost_try(context, project, drivers, record)
        cleared = [one for one in earlier if taken.is_of_this_life(one)]
        request = self._request(stream, context, str(taken.key), cleared)
        record = self._planned(project, request, home, earlier)
        if record.status != "planned":
            return self._conclude(context, project, record)
        self.log.info("run %s: %s", record.run_id, record.plan.reason)
        self._name_downstream(record)
        try:
            self._note(context, project, record, taken)
            if self.outlets:
                begin_telling(home)
            self.check_alive()
            driver = launch(project, request, record.run_id, self.conn_id)
        except BaseException:
            if record.tries == 0:
                records.forget(record.run_id)
            raise
        self.log.info("started the driver: process %s, log %s", driver.process and driver.process.pid, driver.log)
        return self._follow(context, project, home, record)

    def _note(self, context: Context, project: Project, record: RunRecord, taken: TakenKey) -> None:
        """Note which run the task tells of, for a later try of it, whatever is edited until then."""
        runs = {self.stream: record.run_id}
        note_runs(context, NotedRuns(project.root, runs, generation=taken.key.generation, first=taken.first))

    def _planned(
        self, project: Project, request: Request | BackfillRequest, home: StreamHome, earlier: Sequence[RunRecord]
    ) -> RunRecord:
        """Plan, and end here what needs no Spark; of what has nothing to do, a run before that is untold."""
        record = _prepare(project, request)
        is_live = not isinstance(request, BackfillRequest)
        return (self._untold_try(home, earlier) or record) if is_live and record.status == "skipped" else record

    def _untold_try(self, home: StreamHome, earlier: Sequence[RunRecord]) -> RunRecord | None:
        """The newest run of the task before it was cleared, if it succeeded and its task did not live to tell."""
        done = next((one for one in earlier if one.status == "succeeded" and one.interval is None), None)
        if not self.outlets or done is None or not is_untold(home, done):
            return None
        self.log.info("run %s was done before, and no event has told of it: this task does", done.run_id)
        return done

    @staticmethod
    def _is_done_together(context: Context, drivers: Drivers, record: RunRecord) -> bool:
        """Whether a driver of several streams has ended this run, and nobody has told of it yet."""
        if record.status not in _ENDED or _was_forestalled(record) or context["ti"].try_number != 1:
            return False
        driver, is_stopped = drivers.find(record.run_id), record.status == "stopped"
        # Before it had begun, it may have been stopped before there was a driver.
        if not (is_stopped if record.tries == 0 else driver is not None and driver.is_shared):
            return False
        # Who ends that task does not end this one: the run goes on.
        stop = stop_request(drivers.home, record.run_id) if is_stopped else None
        return stop is None or not stop.requested_by.startswith(BY_AIRFLOW)

    def _conclude_together(
        self, context: Context, project: Project, home: StreamHome, record: RunRecord
    ) -> dict[str, Any]:
        self._following = home, record.run_id
        self.log.info("run %s was done with those of other streams: %s", record.run_id, record.plan.reason)
        for batch in record.batches:
            self.log.info("%s", describe_batch(batch))
        return self._conclude(context, project, record)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the run is over; see `execute`."""
        with as_airflow_errors():
            project = task_project(self.project)
            # By its name: the declaration may be gone, or wrong, by now.
            home = project.home_named(self.stream)
            self._following = home, event["run_id"]
            try:
                return self._end(context, project, home, event["run_id"])
            except LeaseTakenError as exc:
                # Another run was quicker, and may be at work.
                self._wait_for_lease(context, project, exc)
        return self.execute(context)

    def go_on(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the lease is free: plan anew; see `execute`."""
        self.log.info("the lease in %s is free", event["folder"])
        return self.execute(context)

    def on_kill(self) -> None:
        """Ask the driver to end; its batch replays at the next run."""
        self._is_killed = True
        if self._following is not None:
            home, run_id = self._following
            request_stop(home, run_id, requested_by=f"{BY_AIRFLOW} the task was killed", now=datetime.now(UTC))

    @property
    def followed_run(self) -> tuple[str, str] | None:
        """The stream and its run; see `ToldByProvider`."""
        return None if self._following is None else (self.stream, self._following[1])

    def limits(self, context: Context) -> Limits:
        """What the rendered bounds say; see `limits_of`.

        Args:
            context: The task's.

        Raises:
            DeclarationError: One of them says nothing that is right.
        """
        return limits_of(
            until=self.until,
            to_version=self.to_version,
            max_batches=self.max_batches,
            trigger=self.trigger,
            run_for=self.run_for,
            is_default_bound=self.is_default_bound and not is_given(context, self.bound_parameter),
        )

    def _request(
        self, stream: Stream, context: Context, key: str, cleared: Sequence[RunRecord]
    ) -> Request | BackfillRequest:
        if is_backfill(context):
            return BackfillRequest(stream, _data_interval(context), key)
        limits = self.limits(context)
        first = next((record for record in cleared if record.interval is None), None)
        is_planned = limits.strategy is None
        if first is not None and is_planned and limits.bound in (Bound(), Bound(to_version=first.to_version)):
            # Without a time of its own, or the version that a task upstream has left meanwhile.
            is_default = limits.is_default_bound or limits.bound == Bound()
            limits = replace(limits, bound=first_bound(first), is_default_bound=is_default)
            self.log.info("this task was cleared: it goes as far as run %s was to go", first.run_id)
        return Request(stream, limits, key)

    def _end_what_was_cleared(self, drivers: Drivers, cleared: Sequence[RunRecord]) -> None:
        """End a driver of this task from before it was cleared: Airflow may not have done so yet."""
        for record in cleared:
            if drivers.is_running(record, datetime.now(UTC)):
                by = f"{BY_AIRFLOW} the task was cleared"
                request_stop(drivers.home, record.run_id, requested_by=by, now=datetime.now(UTC))
                self.log.info("waiting for the driver of run %s to end: the task was cleared", record.run_id)
            drivers.wait_for_stopped(record.run_id, _STOP_SECONDS)

    def _wait_for_lease(self, context: Context, project: Project, taken: LeaseTakenError) -> None:
        """Wait until the other run is over, which costs no retry: away from the worker, or here where the task stays.

        Raises:
            LeaseTakenError: Nobody is at work, and still the lease is not to be had: a person must look.
            AirflowException: `execution_timeout` is over.
        """
        folder, storage = (taken.file or "").rpartition("/")[0], project.storage()
        try:
            check_not_taken(storage, folder, datetime.now(UTC))
        except LeaseTakenError:
            self.log.info("waiting until the stream is free: %s", taken)
        else:
            newest = newest_lease(storage, folder)
            if newest is None or newest.is_given_up:
                return
            raise taken
        trigger = LeaseTrigger(project=project.root, folder=folder)
        if self.stays:
            asyncio.run(trigger.follow())
            self.check_alive()
            return
        ends_at = parse_time(self.ends_at(context), where="execution_timeout")
        patience = None if ends_at is None else ends_at - datetime.now(UTC)
        if patience is not None and patience <= timedelta(0):
            raise AirflowException(f"`execution_timeout` is over: {taken}")
        self.defer(trigger=trigger, method_name="go_on", timeout=patience)

    def _follow(self, context: Context, project: Project, home: StreamHome, record: RunRecord) -> dict[str, Any]:
        self._following = home, record.run_id
        if self._is_killed:
            self.on_kill()
        trigger = RunTrigger(
            project=project.root, stream=self.stream, run_id=record.run_id, ends_at=self.ends_at(context)
        )
        self.follow(trigger)
        return self._end(context, project, home, record.run_id)

    def _end(self, context: Context, project: Project, home: StreamHome, run_id: str) -> dict[str, Any]:
        """What came of a run that is over."""
        driver = Drivers(home).find(run_id)
        if driver is not None:
            self._show_log(context, project, driver)
        record = RunRecords(home).read(run_id)
        if record is None and driver is None:
            raise AirflowException(f"nothing is known of run {run_id}: is the home there? {home.location}")
        if record is None and driver is not None and driver.is_shared:
            self.log.info("the driver of several streams has not begun it")
            return self._run(context, project)
        if record is None:
            # What was planned here was done by another run before the driver had the lease: a skip leaves no record.
            raise AirflowSkipException("nothing to do any more when the driver had started")
        self._check_not_forestalled(home, record)
        return self._conclude(context, project, record)

    def _check_not_forestalled(self, home: StreamHome, record: RunRecord) -> None:
        """Make sure that the driver has not ended because another one was quicker to take its lease.

        Raises:
            LeaseTakenError: It has, and the other one may be at work, or is done.
        """
        if record.error is None or not _was_forestalled(record):
            return
        # A backfill that Spark publishes needs the live stream's, too.
        folders = RunRecords(home).lease_folder(record), home.lease_folder(home.current_generation())
        newest = {folder: newest_lease(home.storage, folder) for folder in folders}
        taken = next((folder for folder, lease in newest.items() if lease is not None and not lease.is_given_up), None)
        raise LeaseTakenError(record.error.message, where=join(taken or folders[0], "*.json"))

    def _conclude(self, context: Context, project: Project, record: RunRecord) -> dict[str, Any]:
        if record.status == "skipped" and key_of_try(context, self.retries or 0).generation > 0:
            self.log.info(
                "this task was cleared; what it took before is in the table and is not taken again."
                " To recompute rows, use a backfill"
            )
        found = conclude(record)
        telling = self._emit_events(context, project, record) if self.outlets else None
        if not has_written(record) and (telling is None or not telling.has_more()):
            # Airflow sends an event of every task that succeeds.
            raise AirflowSkipException(f"run {record.run_id} found nothing to write")
        self.telling = telling
        return found

    def _emit_events(self, context: Context, project: Project, record: RunRecord) -> Telling | None:
        try:
            stream = project.stream(self.stream)
        except SluiceError as exc:
            # Renamed or deleted while the task was deferred: the rows are committed all the same.
            self.log.warning("the asset events of run %s lack their details: %s", record.run_id, exc)
            return None
        home = project.stream_home(stream)
        if not told_outlets(self.outlets, stream, project=project.root):
            return None
        emitted = emit_events(context, stream, record, home=home, project=project.root)
        # Airflow sends an event of every outlet that the task has at its end.
        self.outlets = [outlet for outlet in self.outlets if not emitted.is_silent(outlet)]
        if emitted.untold is None:
            return None
        assets = told_outlets(self.outlets, stream, project=project.root)
        return Telling(stream, home, assets, record, emitted.untold)

    def _name_downstream(self, record: RunRecord) -> None:
        """Say which streams a backfill concerns that read what it replaces."""
        for found in record.plan.downstream or ():
            effect = downstream_effect(skips_changes=found.skips_changes, only_adds=found.only_adds)
            self.log.warning("stream %s reads this table, and %s", found.stream, effect)

    def _show_log_of_lost_try(self, context: Context, project: Project, drivers: Drivers, record: RunRecord) -> None:
        """Show what the driver of a try before said, if that try did not live to do so."""
        driver = drivers.find(record.run_id)
        if driver is not None and not self.has_shown(context, driver):
            self._show_log(context, project, driver)

    def _show_log(self, context: Context, project: Project, driver: Driver) -> None:
        if driver.is_shared:
            self.log.info("the driver ran other streams, too: its log is that of the task which started it")
        else:
            self.show_log(context, driver, words_of_stream(project, self.stream))


def _was_forestalled(record: RunRecord) -> bool:
    """Whether a run has ended because another one had its lease."""
    return record.error is not None and record.error.type == LeaseTakenError.__name__


def _prepare(project: Project, request: Request | BackfillRequest) -> RunRecord:
    if isinstance(request, BackfillRequest):
        return prepare_backfill(project, request)
    return prepare_run(project, request)


def _recorded_interval(context: Context) -> RecordedInterval | None:
    """What the record of a task's run bears: the interval of a backfill, and none for the live stream."""
    interval = _data_interval(context) if is_backfill(context) else None
    return None if interval is None else RecordedInterval(interval.start, interval.end)


def _data_interval(context: Context) -> Interval:
    # In partitioned runs these keys are absent, not None.
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        raise AirflowFailException(
            "this backfill has no data interval, so nothing says which rows to recompute;"
            " schedule the DAG with a cron expression, or with sluice_airflow.timetables.data_intervals"
        )
    # Airflow's are pendulum's, whose arithmetic is its own.
    return Interval.parse(start.isoformat(), end.isoformat())
