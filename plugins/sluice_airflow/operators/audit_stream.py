"""The operator that audits the table of a stream, apart from the stream's own runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sluice.auditing.table_audit import TableAuditRequest, check_audit, new_audit_id, read_table_audit, summary
from sluice.errors import DeclarationError, RefusedError, RunError
from sluice.home import StreamHome
from sluice.runs.driver import Drivers
from sluice.runs.record import describe_quality
from sluice.spark.query_words import QueryWords
from sluice.spark.shown_log import shown_lines, words_of_stream
from sluice_airflow.arguments import check_task_arguments
from sluice_airflow.listeners.drivers_pool import POOL
from sluice_airflow.openlineage_provider import ToldByProvider, lineage_of_task
from sluice_airflow.outcomes import as_airflow_errors
from sluice_airflow.projects import task_project
from sluice_airflow.rendered import number, text
from sluice_airflow.submission import audit_driver

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.project import Project

_WORTHLESS_RETRIES = (DeclarationError.exit_code, RefusedError.exit_code)
"""Exit codes of a driver that say that a person has to do something."""


class AuditStreamOperator(ToldByProvider, BaseOperator):
    """Checks the Delta table of a stream as it stands, with the stream's suite or another one.

    All of it, the rows that meet a condition, or what versions added. Spark is started through the same connection as
    for the stream's runs, as a driver of its own: the worker needs no memory for it. The task stays with its driver and
    ends it when it is killed; an audit writes nothing but its outcome, so a lost worker costs only time. It takes no
    lease: whoever must wait for the audit is downstream of it.

    Args:
        stream: The stream's name.
        suite: Another suite: a JSON file, `module:function` or a Python file, as `Stream(quality=...)` takes them.
        where: Only the rows that meet this condition in Spark SQL, such as `flight_date = '{{ ds }}'`; empty for all.
        from_version: Only what this version and later ones added; empty for the table as it stands.
        to_version: The table as this version left it; empty for the newest.
        conn_id: A connection of type `spark` that names the master, or of type `spark_connect`.
        project: The folder of `sluice.toml`; when not given, `$SLUICE_PROJECT`, else the folder above the DAGs.
        pool: Where the task takes its slot: the slots bound the drivers at work.
        kwargs: What every operator takes.
    """

    template_fields: Sequence[str] = ("stream", "suite", "where", "from_version", "to_version", "conn_id", "project")
    ui_color = "#e4f3e1"

    _driver: subprocess.Popen[str] | None = None
    _audit_id: str | None = None
    _is_killed = False

    def __init__(
        self,
        *,
        stream: str,
        suite: str | None = None,
        where: str | None = None,
        from_version: str | int | None = None,
        to_version: str | int | None = None,
        conn_id: str = "spark_default",
        project: str | None = None,
        pool: str = POOL,
        **kwargs: Any,
    ) -> None:
        check_task_arguments(type(self), kwargs)
        super().__init__(pool=pool, **kwargs)
        self.stream = stream
        self.suite = suite
        self.where = where
        self.from_version = from_version
        self.to_version = to_version
        self.conn_id = conn_id
        self.project = project

    def execute(self, context: Context) -> dict[str, Any]:
        """Audit the table; returns a summary (see `sluice.auditing.table_audit.summary`).

        Raises:
            AirflowFailException: The verdict is `fail`, or trying again would not help.
            AirflowException: It failed; a retry may succeed.
        """
        with as_airflow_errors(), lineage_of_task(context, self):
            project = task_project(self.project)
            request = self._request(project)
            home = project.stream_home(request.stream)
            check_audit(project, request)
            self._audit_id = audit_id = new_audit_id()
            with (
                _open_log(home, audit_id) as log,
                audit_driver(project, request, audit_id, self.conn_id) as driver,
            ):
                code, said = self._follow(driver, log, words_of_stream(project, self.stream))
            audit = read_table_audit(home, audit_id)
            if audit is None:
                message = f"the driver of audit {audit_id} ended with exit code {code}: {said}; its log is {log.name}"
                raise (AirflowFailException if code in _WORTHLESS_RETRIES else AirflowException)(message)
            self.log.info("audit %s of version %s: %s", audit_id, audit.version, describe_quality(audit.quality))
            found = summary(audit)
            if audit.quality.verdict == "fail":
                # A failed task returns nothing; whoever looks at it may want to know.
                context["ti"].xcom_push(key="return_value", value=found)
                raise AirflowFailException(
                    f"audit {audit_id}: {describe_quality(audit.quality)}: {', '.join(found['failed'])}"
                )
            return found

    def on_kill(self) -> None:
        """End the driver."""
        self._is_killed = True
        if self._driver is not None and self._driver.poll() is None:
            os.killpg(self._driver.pid, signal.SIGKILL)

    @property
    def followed_run(self) -> tuple[str, str] | None:
        """The stream and the audit of its table; see `ToldByProvider`."""
        return None if self._audit_id is None else (self.stream, self._audit_id)

    def _request(self, project: Project) -> TableAuditRequest:
        return TableAuditRequest(
            project.stream(self.stream),
            suite=text(self.suite),
            where=text(self.where),
            from_version=number("from_version", self.from_version),
            to_version=number("to_version", self.to_version),
        )

    def _follow(self, driver: subprocess.Popen[str], log: TextIO, words: QueryWords) -> tuple[int, str]:
        """Show what a driver says until it ends, and write all of it down; gives its exit code and its last words."""
        said = "it said nothing"
        self._driver = driver
        if self._is_killed:
            self.on_kill()
        self.log.info("::group::Driver log (process %s, %s)", driver.pid, log.name)
        try:
            for line in shown_lines(_written_down(driver.stdout or (), log), words):
                self.log.info("%s", line)
                said = line.strip() or said
        except BaseException:
            self.on_kill()
            raise
        self.log.info("::endgroup::")
        return driver.wait(), said


def _open_log(home: StreamHome, audit_id: str) -> TextIO:
    try:
        return Drivers(home).open_log(audit_id)
    except OSError as exc:
        raise RunError(
            f"the driver's log can't be written: {exc.strerror}",
            where=str(exc.filename),
            remedy="make room on that disk, or let this user write there",
        ) from exc


def _written_down(lines: Iterable[str], log: TextIO) -> Iterator[str]:
    for line in lines:
        # A disk that is full ends no audit.
        with contextlib.suppress(OSError):
            log.write(line)
            log.flush()
        yield line.rstrip()
