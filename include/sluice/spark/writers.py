"""What writes for a run: it is noted in the run's lease, and ended there where the run is dead."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError
from sluice.gate.state import keep_record
from sluice.lineage.sending import tell_run
from sluice.project import Project
from sluice.runs.journal import Journal
from sluice.runs.lease import Lease, RemoteSession
from sluice.spark.connect_session import end_remote, is_connected, remote_session, sees
from sluice.spark.served import end_served, served_session
from sluice.spark.session import jvm_pid
from sluice.stream import Stream
from sluice.times import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)


def open_journal(project: Project, stream: Stream, clock: Clock) -> Journal:
    """The journal of a stream's runs."""

    def end_session(remote: RemoteSession) -> bool:
        if remote.process is None:
            return project.is_remote and end_remote(project.spark_master, remote)
        if (obstacle := end_served(project, remote)) is not None:
            logger.warning("a session on %s can't be ended: %s", remote.server, obstacle)
        return obstacle is None

    tell = partial(tell_run, project, stream)
    return Journal(project.stream_home(stream), clock, stream.sink.is_fenced, end_session, keep_record, tell)


def name_writer(project: Project, session: SparkSession, lease: Lease) -> None:
    """Note in the lease what writes for it: a JVM outlives its driver by a second, a server for good."""
    if is_connected(session):
        lease.add_session(_named(project, session))
    elif (pid := jvm_pid(session)) is not None:
        lease.add_process(pid)


def _named(project: Project, session: SparkSession) -> RemoteSession:
    return served_session(session) or remote_session(session, project.spark_master)


def check_home(project: Project, session: SparkSession, file: str) -> None:
    """Make sure that a server sees the home as this process does; it would begin a checkpoint of its own.

    Args:
        project: The project.
        session: The session.
        file: One that is there, in the home.

    Raises:
        DeclarationError: It does not.
    """
    if is_connected(session) and not sees(session, file):
        raise DeclarationError(
            "the Spark Connect server does not see the files of this home",
            where=f"{file}, {_named(project, session).server}",
            remedy="put it where both see it by the same name: on a shared disk, or at a URL that both may read",
        )
