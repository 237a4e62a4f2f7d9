"""The operator that runs one stream, once per DAG run."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)

from sluice.errors import DeclarationError, SluiceError
from sluice.planning.planner import Limits
from sluice.running.preparation import Request, settle_without_spark
from sluice.running.record import RunRecord, RunRecords
from sluice.running.session import driver_environment, spark_conf
from sluice.stream import Bound
from sluice.times import parse_time
from sluice_airflow.projects import airflow_project

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from sluice.project import Project


class RunStreamOperator(BaseOperator):
    """Runs a stream up to a bound, and stops.

    Plans in the worker; when there is nothing to do, the task is skipped without a JVM and the log says why.
    Otherwise Spark is started through the Spark provider's hook. A retry finishes what the first try planned; a
    task that is cleared plans again, with the same bound.

    Args:
        stream: The stream's name.
        until: Take only what arrived before this time (ISO 8601); empty for now, which is then kept for retries.
        to_version: Take Delta versions up to this one only; empty for all.
        max_batches: The most data batches.
        conn_id: A connection of type `spark` that names the master.
        project: The folder of `sluice.toml`; when not given, `$SLUICE_PROJECT`, else the folder above the DAGs.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.until = until
        self.to_version = to_version
        self.max_batches = max_batches
        self.conn_id = conn_id
        self.project = project

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the stream; returns a summary of its run record.

        Raises:
            AirflowSkipException: There was nothing to do.
            AirflowFailException: It failed, and trying again would not help.
            AirflowException: It failed; a retry may succeed.
        """
        try:
            project = airflow_project(self.project)
            request = self._request(project, context)
            settled = settle_without_spark(project, request)
        except SluiceError as exc:
            raise _airflow_error(exc) from exc
        if settled is None:
            settled = self._submit(project, request)
        if settled.status == "skipped":
            raise AirflowSkipException(f"nothing to do: {settled.plan['reason']}")
        if settled.status == "stopped":
            raise AirflowException(f"run {settled.run_id} was stopped between two batches; a retry goes on")
        return _summary(settled)

    def on_kill(self) -> None:
        """Kill the driver; its batch replays at the next run."""
        if "_hook" in self.__dict__:
            self._hook.on_kill()

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

    def _submit(self, project: Project, request: Request) -> RunRecord:
        records = RunRecords(project.stream_home(request.stream))
        try:
            # Settings may hold secrets: they go into a file that only this user reads, not into arguments.
            with tempfile.NamedTemporaryFile("w", encoding="latin-1", suffix=".conf") as settings:
                master = self._master()
                settings.write(_properties(spark_conf(project, request.stream, master)))
                settings.flush()
                self._hook = self._make_hook(project, request, settings.name)
                self._hook.submit(str(_entry()))
        except AirflowException as exc:
            record = records.find(request.run_key or "")
            error = record.error if record is not None else None
            if error is None:
                raise
            failure = AirflowException if error["retryable"] else AirflowFailException
            raise failure(f"run {record.run_id if record else ''}: {error['message']}") from exc
        record = records.find(request.run_key or "")
        if record is None:
            # What was planned here was done by another run before the driver had the lease: a skip leaves no record.
            raise AirflowSkipException("nothing to do any more when the driver had started")
        return record

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


def _airflow_error(exc: SluiceError) -> AirflowException:
    return AirflowException(str(exc)) if exc.retryable else AirflowFailException(str(exc))


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
