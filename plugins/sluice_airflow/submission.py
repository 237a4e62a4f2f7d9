"""Starts drivers, of runs and of audits: a connection of the Spark provider's and a request become a command."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

from sluice.auditing.table_audit import TableAuditRequest
from sluice.errors import DeclarationError, RunError, SluiceError
from sluice.lineage.settings import given_environment
from sluice.planning.verdict import Request
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.submit import AUDIT_WHERE
from sluice.runs.driver import Driver, Drivers
from sluice.spark.session import driver_environment, is_local_master, spark_conf
from sluice.spark.settings_file import launch_settings, settings_path
from sluice.spark.start_settings import of_start
from sluice.spark_master import SERVE, check_master

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from sluice.project import Project
    from sluice.runs.record import RunRecord
    from sluice.stream import Stream

_SPARK, _SPARK_CONNECT = "spark", "spark_connect"
_OTHER_SPARKS = {"SPARK_REMOTE", "SLUICE_SPARK_MASTER"}


def launch(project: Project, request: Request | BackfillRequest, run_id: str, conn_id: str) -> Driver:
    """Start the driver of a planned run: it is on its own from here on.

    Args:
        project: The project of the stream.
        request: What was planned.
        run_id: The run that was planned.
        conn_id: A connection of type `spark`, whose host is the master, or `spark_connect`.

    Raises:
        AirflowFailException: The connection is missing, has another type, or names nothing.
        SluiceError: The driver can't be started, or lacks something that it needs.
    """
    drivers = Drivers(project.stream_home(request.stream))
    with _submission(project, request.stream, _arguments(request), conn_id) as submission:
        return drivers.launch(
            run_id, submission.command, submission.environment, datetime.now(UTC), inherited=submission.inherited
        )


def launch_together(
    project: Project, streams: Mapping[str, Stream], planned: Mapping[str, RunRecord], conn_id: str
) -> Driver:
    """Start one driver for the planned runs of several streams: it is on its own from here on.

    Args:
        project: The project of the streams.
        streams: The streams by name, as they were when their runs were planned.
        planned: By stream, the record of its run.
        conn_id: As for `launch`.

    Raises:
        AirflowFailException: The connection is missing, has another type, or names nothing.
        SluiceError: The driver can't be started, or lacks something that it needs.
    """
    (first, record), *rest = planned.items()
    others = [(project.home_named(name), other.run_id) for name, other in rest]
    arguments = [f"--run-key={record.run_key or ''}"]
    for name, other in rest:
        arguments += ["--stream", name, f"--run-key={other.run_key or ''}"]
    with _submission(project, streams[first], arguments, conn_id, is_shared=True) as submission:
        return Drivers(project.home_named(first)).launch(
            record.run_id,
            submission.command,
            submission.environment,
            datetime.now(UTC),
            inherited=submission.inherited,
            others=others,
        )


def sharing(project: Project, streams: Mapping[str, Stream], conn_id: str) -> list[str]:
    """Which of some streams one driver can run: `spark-submit` starts one Spark, and others end it and start theirs.

    Args:
        project: The project of the streams.
        streams: The streams by name.
        conn_id: As for `launch`.

    Returns:
        Their names: of several kinds, the most frequent one; not those whose settings are wrong.

    Raises:
        AirflowFailException: The connection is missing, has another type, or names nothing.
    """
    connection = _connection(conn_id)
    if connection.conn_type == _SPARK_CONNECT or _needs_no_submission(connection):
        return list(streams)
    kinds = defaultdict[frozenset[tuple[str, str]], list[str]](list)
    for name, stream in streams.items():
        try:
            conf = spark_conf(project, stream, _master(connection))
        except SluiceError:
            continue
        kinds[frozenset(of_start(conf).items())].append(name)
    return max(kinds.values(), key=len, default=[])


@contextmanager
def audit_driver(
    project: Project, request: TableAuditRequest, audit_id: str, conn_id: str
) -> Iterator[subprocess.Popen[str]]:
    """Start the driver of an audit, in a process group of its own; its output comes through `stdout`.

    What it says is for its follower to write down, who stays with it: see `Drivers.open_log`.

    Args:
        project: The project of the stream.
        request: What is to be audited.
        audit_id: The name of the audit, under which its outcome is found.
        conn_id: As for `launch`.

    Raises:
        AirflowFailException: The connection is missing, has another type, or names nothing.
        SluiceError: The driver can't be started, or lacks something that it needs.
    """
    with _submission(project, request.stream, _audit_arguments(request, audit_id), conn_id) as submission:
        # A condition may tell what nobody else is to know, and everybody may read a command line.
        condition = {} if request.where is None else {AUDIT_WHERE: request.where}
        try:
            driver = subprocess.Popen(
                list(submission.command),
                env={**submission.environment, **condition},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
                pass_fds=submission.inherited,
            )
        except OSError as exc:
            raise RunError(
                f"the driver could not be started: {exc.strerror}",
                where=str(exc.filename),
                remedy="check that pyspark is installed where this task runs",
            ) from exc
        with driver:
            yield driver


@contextmanager
def _submission(
    project: Project, stream: Stream, arguments: Sequence[str], conn_id: str, *, is_shared: bool = False
) -> Iterator[_Submission]:
    """The command of a driver, to be started while this lasts; where it is shared, with no stream's own."""
    connection = _connection(conn_id)
    given = ["--project", project.root, "--stream", stream.name, *arguments]
    # What the worker itself was told of Spark is not what the connection says.
    inherited = {name: value for name, value in os.environ.items() if name not in _OTHER_SPARKS} | given_environment()
    ours = [sys.executable, str(_entry()), *given]
    if connection.conn_type == _SPARK_CONNECT:
        yield _Submission(ours, inherited | _connect_environment(conn_id))
    elif _needs_no_submission(connection):
        # The driver starts its JVM itself, with the launch profile.
        yield _Submission(ours, inherited | driver_environment() | {"SLUICE_SPARK_MASTER": _master(connection)})
    else:
        conf = spark_conf(project, stream, _master(connection))
        with launch_settings(of_start(conf) if is_shared else conf) as files:
            submission = _spark_submit(conn_id, stream.name, files[0], given)
            yield _Submission(submission.command, {**inherited, **submission.environment}, files)


@dataclass(frozen=True)
class _Submission:
    command: Sequence[str]
    environment: Mapping[str, str]
    inherited: Sequence[int] = ()
    """Descriptors that the driver is to have: of its settings."""


def _needs_no_submission(connection: Connection) -> bool:
    """Whether a connection says nothing but a local master, or the warm Spark; only `spark-submit` follows the rest."""
    master = _master(connection)
    return (is_local_master(master) or master == SERVE) and not connection.extra_dejson.keys() - {"deploy-mode"}


def _spark_submit(conn_id: str, stream: str, settings: int, arguments: list[str]) -> _Submission:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    hook = SparkSubmitHook(
        properties_file=settings_path(settings),
        conn_id=conn_id,
        name=f"sluice {stream}",
        application_args=arguments,
        env_vars=_environment(),
    )
    # The hook's own `submit` holds the driver in this process: here it only builds the command.
    return _Submission(hook._build_spark_submit_command(str(_entry())), hook._env or {})


def _connection(conn_id: str) -> Connection:
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as exc:
        # The provider's hook would silently submit to YARN.
        raise AirflowFailException(
            f"there is no connection `{conn_id}`; create one of type `spark` whose host is the master,"
            " such as local[2] or spark://host:7077, or of type `spark_connect`"
        ) from exc
    if connection.conn_type not in {_SPARK, _SPARK_CONNECT}:
        raise AirflowFailException(
            f"connection `{conn_id}` has type {connection.conn_type}; `spark` or `spark_connect` is needed"
        )
    if not connection.host:
        raise AirflowFailException(f"connection `{conn_id}` names no master; set its host, such as local[2]")
    if connection.conn_type == _SPARK:
        try:
            check_master(_master(connection), f"the host of connection `{conn_id}`")
        except DeclarationError as exc:
            raise AirflowFailException(str(exc)) from exc
    if connection.host == SERVE and connection.extra_dejson.keys() - {"deploy-mode"}:
        raise AirflowFailException(
            f"connection `{conn_id}` names the Spark of `sluice serve`, which is started as the project says: remove"
            " what else it says"
        )
    if connection.extra_dejson.get("deploy-mode", "client") != "client":
        raise AirflowFailException(
            f"connection `{conn_id}` has another deploy mode than `client`: drivers run on the machine of the task that"
            " starts them; Spark's executors may be anywhere"
        )
    return connection


def _master(connection: Connection) -> str:
    """The master that a connection names, as the provider's hook reads it."""
    host = connection.host or ""
    return host if "://" in host or not connection.port else f"spark://{host}"


def _connect_environment(conn_id: str) -> dict[str, str]:
    """The server's address; it may hold a token, which is nobody's business who lists processes."""
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    return {**driver_environment(), "SPARK_REMOTE": SparkConnectHook(conn_id).get_connection_url()}


def _environment() -> dict[str, str]:
    """Let `spark-submit` be the one of this Python's environment, and its driver this Python."""
    scripts = sysconfig.get_path("scripts")
    return {
        **driver_environment(),
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _arguments(request: Request | BackfillRequest) -> list[str]:
    """What `sluice/running/submit.py` is called with; never part of a shell's command line.

    How far a run goes stands in its record, which is there before the driver is.
    """
    # A key begins with the name of a DAG, which may begin with a dash.
    arguments = [f"--run-key={request.run_key or ''}"]
    if isinstance(request, BackfillRequest):
        start, end = request.interval.start.isoformat(), request.interval.end.isoformat()
        return [*arguments, "--start", start, "--end", end]
    return arguments


def _audit_arguments(request: TableAuditRequest, audit_id: str) -> list[str]:
    given = {
        "audit": audit_id,
        "suite": request.suite,
        "from-version": request.from_version,
        "to-version": request.to_version,
    }
    # In one word each: a name may begin with a dash.
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def _entry() -> Path:
    import sluice.running

    return Path(sluice.running.__file__).with_name("submit.py")
