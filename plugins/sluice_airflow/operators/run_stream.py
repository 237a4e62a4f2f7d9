"""The operator that runs one stream, once per DAG run."""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)

from sluice.errors import DeclarationError, SluiceError
from sluice.planning.planner import Limits
from sluice.running.driver import Driver, Drivers
from sluice.running.preparation import Request, prepare_run
from sluice.running.record import RunRecord, RunRecords
from sluice.running.session import driver_environment, spark_conf
from sluice.running.stop import request_stop
from sluice.stream import Bound
from sluice.times import parse_time
from sluice_airflow.projects import airflow_project
from sluice_airflow.triggers.run import RunTrigger

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from sluice.home import StreamHome
    from sluice.project import Project

_MOST_LOG_LINES = 5000


class RunStreamOperator(BaseOperator):
    """Runs a stream up to a bound, and stops.

    Plans in the worker; when there is nothing to do, the task is skipped without a JVM and the log says why.
    Otherwise Spark is started through the Spark provider's hook as a driver of its own, which outlives the worker, and
    the task is deferred until the run is over. A lost worker or triggerer leads back to the same run, never to a second
    driver. A retry finishes what the first try planned; a task that is cleared plans again, with the same bound.

    Args:
        stream: The stream's name.
        until: Take only what arrived before this time (ISO 8601); empty for now, which is then kept for retries.
        to_version: Take Delta versions up to this one only; empty for all.
        max_batches: The most data batches.
        conn_id: A connection of type `spark` that names the master.
        project: The folder of `sluice.toml`; when not given, `$SLUICE_PROJECT`, else the folder above the DAGs.
        deferrable: Whether the task leaves its worker while Spark runs; when not given, it does unless the driver would
            end with its task (KubernetesExecutor).
    """

    template_fields: Sequence[str] = ("stream", "until", "to_version", "conn_id", "project")
    ui_color = "#d8ecf3"

    def __init__(
        self,
        *,
        stream: str,
        until: str = "{{ data_interval_end | default('', true) }}",
        to_version: str | int | None = None,
        max_batches: int | None = None,
        conn_id: str = "spark_default",
        project: str | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.until = until
        self.to_version = to_version
        self.max_batches = max_batches
        self.conn_id = conn_id
        self.project = project
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the stream; returns a summary of its run record.

        Raises:
            AirflowSkipException: There was nothing to do.
            AirflowFailException: It failed, and trying again would not help.
            AirflowException: It failed; a retry may succeed.
        """
        with _as_airflow_errors():
            project = airflow_project(self.project)
            request = self._request(project, context)
            home = project.stream_home(request.stream)
            drivers = Drivers(home)
            record = RunRecords(home).find(request.run_key or "")
            if record is not None and drivers.is_running(record, datetime.now(UTC)):
                self.log.info("run %s is still at work: re-attached to it", record.run_id)
                return self._follow(project, record)
            record = prepare_run(project, request)
            if record.status != "planned":
                return _conclude(record)
            self.log.info("run %s: %s", record.run_id, record.plan["reason"])
            try:
                self._launch(project, request, record)
            except BaseException:
                if record.tries == 0:
                    RunRecords(home).forget(record.run_id)
                raise
            return self._follow(project, record)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the run is over; see `execute`."""
        with _as_airflow_errors():
            project = airflow_project(self.project)
            home = project.stream_home(project.stream(self.stream))
            return self._end(home, event["run_id"])

    def on_kill(self) -> None:
        """Ask the driver to end; its batch replays at the next run."""
        if self._run is not None:
            home, run_id = self._run
            request_stop(home, run_id, requested_by="Airflow: the task was killed", now=datetime.now(UTC))

    _run: tuple[StreamHome, str] | None = None
    """The run that this task has begun to follow."""

    def _follow(self, project: Project, record: RunRecord) -> dict[str, Any]:
        home = project.stream_home(project.stream(self.stream))
        self._run = home, record.run_id
        trigger = RunTrigger(project=project.root, stream=self.stream, run_id=record.run_id)
        if self.deferrable or (self.deferrable is None and not _driver_ends_with_its_task()):
            self.defer(trigger=trigger, method_name="resume")
        asyncio.run(_end_of(trigger))
        return self._end(home, record.run_id)

    def _end(self, home: StreamHome, run_id: str) -> dict[str, Any]:
        """What came of a run that is over."""
        driver = Drivers(home).find(run_id)
        if driver is not None:
            self._show_log(driver)
        record = RunRecords(home).read(run_id)
        if record is None:
            # What was planned here was done by another run before the driver had the lease: a skip leaves no record.
            raise AirflowSkipException("nothing to do any more when the driver had started")
        return _conclude(record)

    def _show_log(self, driver: Driver) -> None:
        try:
            lines = Path(driver.log).read_text("utf-8", "replace").splitlines()
        except OSError:
            self.log.info("the driver's log is on another machine: %s", driver.log)
            return
        self.log.info("::group::Driver log (%s)", driver.log)
        for line in lines[-_MOST_LOG_LINES:]:
            self.log.info("%s", line)
        self.log.info("::endgroup::")

    def _request(self, project: Project, context: Context) -> Request:
        return Request(project.stream(self.stream), Limits(self.bound(), self.max_batches), self._run_key(context))

    def bound(self) -> Bound:
        """What the rendered `until` and `to_version` say; a template that finds nothing gives an empty text or `None`.

        Raises:
            DeclarationError: One is neither.
        """
        version = str(self.to_version or "")
        if version.isdigit():
            to_version = int(version)
        elif version in {"", "None"}:
            to_version = None
        else:
            raise DeclarationError(f"{version!r} is no version", where="to_version", remedy="give a whole number")
        return Bound(until=parse_time(self.until), to_version=to_version)

    def _run_key(self, context: Context) -> str:
        ti = context["ti"]
        # Every clear raises max_tries by the tries used so far, a retry does not: this tells them apart.
        generation = ti.max_tries - (self.retries or 0)
        return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}/{generation}"

    def _launch(self, project: Project, request: Request, record: RunRecord) -> None:
        """Start the driver: it is on its own from here on."""
        settings_of_spark = spark_conf(project, request.stream, self._master())
        # Settings may hold secrets: they go into a file that only this user reads, and that the driver removes.
        descriptor, settings = tempfile.mkstemp(prefix="sluice-", suffix=".conf")
        with os.fdopen(descriptor, "w", encoding="latin-1") as file:
            file.write(_properties(settings_of_spark))
        try:
            hook = self._make_hook(project, request, settings)
            # The hook's own `submit` holds the driver in this process: here it only builds the command.
            command = hook._build_spark_submit_command(str(_entry()))
            driver = Drivers(project.stream_home(request.stream)).launch(
                record.run_id, command, {**os.environ, **(hook._env or {})}, datetime.now(UTC)
            )
        except BaseException:
            os.unlink(settings)
            raise
        self.log.info("started the driver: process %s, log %s", driver.process and driver.process.pid, driver.log)

    def _master(self) -> str:
        """The master that the connection names, as the provider's hook reads it."""
        try:
            connection = BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException as exc:
            # The provider's hook would silently submit to YARN.
            raise AirflowFailException(
                f"there is no connection `{self.conn_id}`; create one of type `spark` whose host is the master,"
                " such as local[2] or spark://host:7077"
            ) from exc
        if connection.conn_type != "spark":
            raise AirflowFailException(
                f"connection `{self.conn_id}` has type {connection.conn_type}; `spark` is needed"
            )
        host = connection.host or ""
        if not host:
            raise AirflowFailException(f"connection `{self.conn_id}` names no master; set its host, such as local[2]")
        return host if "://" in host or not connection.port else f"spark://{host}"

    def _make_hook(self, project: Project, request: Request, properties_file: str) -> SparkSubmitHook:
        from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

        arguments = ["--project", project.root, "--stream", self.stream, "--run-key", request.run_key or ""]
        arguments += ["--settings", properties_file]
        if request.limits.bound.until is not None:
            arguments += ["--until", request.limits.bound.until.isoformat()]
        if request.limits.bound.to_version is not None:
            arguments += ["--to-version", str(request.limits.bound.to_version)]
        if self.max_batches is not None:
            arguments += ["--max-batches", str(self.max_batches)]
        return SparkSubmitHook(
            properties_file=properties_file,
            conn_id=self.conn_id,
            name=f"sluice {self.stream}",
            application_args=arguments,
            env_vars=_environment(),
        )


def _entry() -> Path:
    import sluice.running

    return Path(sluice.running.__file__).with_name("submit.py")


def _environment() -> dict[str, str]:
    """Let `spark-submit` be the one of this Python's environment, and its driver this Python."""
    scripts = sysconfig.get_path("scripts")
    return {
        **driver_environment(),
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _properties(conf: dict[str, str]) -> str:
    """Settings in the format of Java's properties."""
    escapes = {"\\": r"\\", "\n": r"\n", "\r": r"\r"}

    def escaped(value: str) -> str:
        characters = (escapes.get(c, c if c.isascii() else f"\\u{ord(c):04x}") for c in value)
        return "".join(characters)

    return "".join(f"{key}={escaped(value)}\n" for key, value in conf.items())


@contextmanager
def _as_airflow_errors() -> Iterator[None]:
    """Let Airflow try again what may succeed then, and nothing else."""
    try:
        yield
    except SluiceError as exc:
        raise (AirflowException if exc.retryable else AirflowFailException)(str(exc)) from exc


async def _end_of(trigger: RunTrigger) -> None:
    async for _ in trigger.run():
        return


def _driver_ends_with_its_task() -> bool:
    return "Kubernetes" in conf.get("core", "executor")


def _conclude(record: RunRecord) -> dict[str, Any]:
    """The summary of a run that did its work; an error of Airflow's for any other."""
    if record.status == "skipped":
        raise AirflowSkipException(f"nothing to do: {record.plan['reason']}")
    if record.status == "succeeded":
        return _summary(record)
    error = record.error
    if error is not None:
        failure = AirflowException if error["retryable"] else AirflowFailException
        raise failure(f"run {record.run_id} {record.status}: {error['message']}")
    if record.status == "stopped":
        raise AirflowException(f"run {record.run_id} was stopped between two batches; a retry goes on")
    raise AirflowException(f"the driver of run {record.run_id} ended without a word; its log is above; a retry goes on")


def _summary(record: RunRecord) -> dict[str, Any]:
    """What downstream tasks may want to know."""
    versions = [batch.sink_version for batch in record.batches if batch.sink_version is not None]
    return {
        "run_id": record.run_id,
        "status": record.status,
        "batches": [batch.batch_id for batch in record.batches],
        "input_rows": sum(batch.input_rows or 0 for batch in record.batches),
        "output_rows": sum(batch.output_rows or 0 for batch in record.batches),
        "watermark": record.batches[-1].watermark if record.batches else None,
        "sink_version": max(versions, default=None),
    }
