"""`sluice serve`: starts a project's warm Spark, watches it, and ends it.

The server is Spark Connect in a JVM of this process, as a driver's is: it ends when this process does, however that
ends, for its standard input is a pipe from here. It listens on loopback only, on a port that the system chooses, and
asks for a token, which is made anew for each server and stands in the server's file alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.documents import encode_document
from sluice.errors import BatchFailedError, RunError
from sluice.local_disk import PRIVATE_FILE, make_folder
from sluice.project import Project
from sluice.redaction import remember_secrets
from sluice.runs.process import boot_id, machine, process
from sluice.spark.classic_plan import java_class
from sluice.spark.connect_session import CONNECT_PATIENCE_SECONDS
from sluice.spark.driver_jvm import end_jvm, is_gone
from sluice.spark.java import EXTRA_JAVA_OPTIONS
from sluice.spark.left_behind import forget_tables, forget_workers
from sluice.spark.python_zone import PYTHON_ZONE
from sluice.spark.served import NotServed, ServerFile, fitting_server, running_server, server_path, told_apart
from sluice.spark.session import SERVED_MASTER, jvm_pid, spark_conf, start_settings, start_spark
from sluice.spark.start_settings import of_start
from sluice.storage import Storage
from sluice.trigger import duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_PLUGIN, _PLUGINS = "org.apache.spark.sql.connect.SparkConnectPlugin", "spark.plugins"
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"
_OTHER_SPARKS = ("SPARK_REMOTE", "SPARK_CONNECT_AUTHENTICATE_TOKEN")
_OURS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    # As pyspark starts its own: what one session brings along, no other sees.
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}
_POLL_SECONDS = 0.5
_ZONE_LINK = re.compile(r".*/zoneinfo/(.+)")


@dataclass(frozen=True)
class Served:
    """A server that is ready."""

    file: ServerFile
    wait: Callable[[], str]
    """Waits until it ends by itself, and says why."""


@contextmanager
def serving(project: Project, idle_ms: int) -> Iterator[Served]:
    """Serve a project for as long as this lasts.

    Args:
        project: The project.
        idle_ms: How long nothing has to happen before the server ends by itself.

    Raises:
        RunError: Another server of the project is there; see `server_there`.
        BatchFailedError: Spark could not be started.
        DeclarationError: The project's settings are wrong.
        StorageError: The server's file could not be written.
    """
    path = server_path(project)
    make_folder(str(path.parent))
    with _locked(path):
        # Of a server that was killed.
        path.unlink(missing_ok=True)
        token = secrets.token_hex(32)
        remember_secrets([token])
        conf = spark_conf(project, None, SERVED_MASTER)
        start = start_settings(conf, project.spark_conf)
        try:
            # Each session sets its own: what a project does not say any more must not be there.
            session = _start(of_start(conf), token)
            file = _describe(project, session, told_apart(start, token), token=token, idle=duration(idle_ms))
            announce = partial(Storage().replace, str(path), encode_document(file))
            announce()
            yield Served(file, _Watch(session, idle_ms / 1000, path, announce).wait)
        finally:
            # First: who finds no file starts a Spark of its own, and waits for none that ends.
            path.unlink(missing_ok=True)
            end_jvm()


def server_there(project: Project) -> ServerFile:
    """The server that runs for a project, as it is needed now.

    Raises:
        RunError: It is no server that runs of this project can take.
        NotServed: None runs.
    """
    server = running_server(project)
    try:
        return fitting_server(project, start_settings(spark_conf(project, None, SERVED_MASTER), project.spark_conf))
    except NotServed as exc:
        raise RunError(
            f"a server of this project runs that no run takes: {exc}",
            where=f"process {server.watcher.pid}",
            remedy=f"end it (kill {server.watcher.pid}), and start another one",
        ) from exc


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a second server out; the system gives the lock back, however this process ends."""
    lock, flags = path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(lock, flags, PRIVATE_FILE)
    except OSError as exc:
        raise RunError(
            f"the lock of the server can't be opened: {exc.strerror}",
            where=str(lock),
            remedy="see who owns the folder, and whether its disk is full",
        ) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        raise RunError(
            "another `sluice serve` of this project is there, and is just starting, or ending",
            where=str(path),
            remedy="try again in some seconds",
        ) from exc
    try:
        yield
    finally:
        os.close(descriptor)


def _start(conf: dict[str, str], token: str) -> SparkSession:
    plugins = ",".join(filter(None, (_PLUGIN, conf.get(_PLUGINS, ""))))
    # What ran out of memory once does nothing right any more, and would be everybody's Spark.
    options = ["-XX:+ExitOnOutOfMemoryError"]
    zone, machines = conf.get(PYTHON_ZONE), _machine_zone()
    if zone is not None:
        # Python functions of a server take the zone of its process for theirs. Java keeps the machine's.
        options += [] if machines is None else [f"-Duser.timezone={machines}"]
        os.environ["TZ"] = zone
    for name in _OTHER_SPARKS:
        os.environ.pop(name, None)
    ours = {_PLUGINS: plugins, "spark.connect.authenticate.token": token}
    options.append(conf[EXTRA_JAVA_OPTIONS])
    conf = conf | _OURS | ours | {EXTRA_JAVA_OPTIONS: " ".join(options)}
    return start_spark(SERVED_MASTER, conf, name="sluice serve")


def _machine_zone() -> str | None:
    """The time zone that a Java started here would have; None where it can't be told."""
    if given := os.environ.get("TZ"):
        return given.removeprefix(":")
    with contextlib.suppress(OSError):
        if found := _ZONE_LINK.fullmatch(os.path.realpath("/etc/localtime")):
            return found[1]
    return None


def _describe(
    project: Project, session: SparkSession, settings: dict[str, str], *, token: str, idle: str
) -> ServerFile:
    jvm = jvm_pid(session)
    if jvm is None:
        raise BatchFailedError("Spark's process can't be told", where="sluice serve")
    return ServerFile(
        project=os.path.realpath(project.root),
        watcher=process(os.getpid()),
        jvm=process(jvm),
        machine=machine(),
        boot_id=boot_id(),
        spark=str(session.version),
        python=sys.prefix,
        port=int(_service(session).localPort()),
        token=token,
        settings=settings,
        idle=idle,
        started_at=datetime.now(UTC),
    )


def _service(session: SparkSession) -> Any:
    return getattr(java_class(session, _SERVICE), "MODULE$")


@dataclass
class _Watch:
    """Looks after a server: whether it is there, and when it was last asked for something."""

    session: SparkSession
    idle_seconds: float
    path: Path
    """The server's file."""
    announce: Callable[[], None]
    """Writes it."""
    _newest: int = 0
    """When Spark was last asked for something, by its own clock."""
    _since: float = field(default_factory=time.monotonic)
    """When that was seen first."""
    _has_to_forget: bool = False

    def wait(self) -> str:
        """Wait until the server is to end, or has ended.

        Returns:
            Why it ends.

        Raises:
            RunError: Spark has ended.
            StorageError: A run came at the last moment, and the server's file could not be written once more.
        """
        while True:
            while not self._rests(self.idle_seconds):
                pass
            # From now on, nobody finds the server; who has just found it connects within this time, or gives up.
            self.path.unlink(missing_ok=True)
            if self._rests(self.idle_seconds + CONNECT_PATIENCE_SECONDS):
                return f"no run has asked for anything in {duration(round(self.idle_seconds * 1000))}"
            self.announce()

    def _rests(self, seconds: float) -> bool:
        """Wait until nothing has been asked for so long; False as soon as something is."""
        since = self._since
        while time.monotonic() - since < seconds:
            time.sleep(_POLL_SECONDS)
            self._look_after()
            if self._since != since:
                return False
        return True

    def _look_after(self) -> None:
        from py4j.protocol import Py4JError

        if is_gone(self.session):
            raise _gone()
        try:
            self._look()
        except (Py4JError, OSError) as exc:
            if is_gone(self.session):
                raise _gone() from exc
            logger.warning("Spark could not be looked after", exc_info=True)

    def _look(self) -> None:
        service = _service(self.session)
        executions, sessions = service.listActiveExecutions(), service.sessionManager().listActiveSessions()
        accesses = [sessions.apply(number).lastAccessTimeMs() for number in range(sessions.size())]
        newest = max([*accesses, -1 if executions.isRight() else executions.left().get()], default=-1)
        if executions.isRight() or newest != self._newest:
            self._newest, self._since = newest, time.monotonic()
        if accesses:
            self._has_to_forget = True
        elif self._has_to_forget:
            # As a process does that ends. Python's workers are each session's own, and stay behind.
            forget_workers(self.session)
            forget_tables(self.session)
            self.session.catalog.clearCache()
            self._has_to_forget = False


def _gone() -> RunError:
    return RunError(
        "Spark is gone: its process has ended, or somebody has stopped it",
        where="sluice serve",
        remedy="look into what it printed, and start it again; runs that were at work go on from what is on disk",
    )
