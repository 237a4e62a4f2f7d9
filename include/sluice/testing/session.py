"""The one Spark of a test process, and a session of it for each bench, with the settings of its stream alone."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError
from sluice.extras import check_extra
from sluice.project import Project
from sluice.spark.delta_extension import has_delta
from sluice.spark.java import Work
from sluice.spark.session import open_session, spark_conf, uses_delta
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
"""As many tasks wherever the tests run: a first batch makes as many partitions of a state."""
_REMOTE = "SPARK_REMOTE"
_SIZES = ("spark.driver.", "spark.executor.", "spark.dynamicAllocation.")
"""Settings of how much there is for a stream: tests have a handful of rows."""


def bench_session(project: Project, stream: Stream) -> SparkSession:
    """A session of this process's Spark, with the settings of a stream; Spark is started where there is none.

    Args:
        project: Its project.
        stream: The stream.

    Raises:
        DeclarationError: The stream needs a Spark that was started otherwise.
        SluiceError: Spark can't be started.
    """
    check_extra("spark", "the test bench")
    running = _running() or _started(project, stream)
    session: SparkSession = running.newSession()
    own = project.conf_of(stream)
    for key, value in spark_conf(project, stream, MASTER, Work(0)).items():
        is_needed = key in own and not key.startswith(_SIZES)
        if not _set(session, key, value) and is_needed and session.conf.get(key, None) != value:
            raise DeclarationError(
                f"`{key}` is a setting that Spark takes only when it starts, and the Spark of these tests has started",
                where=stream.place,
                remedy="leave it out for tests, or test this stream in a process of its own",
            )
    if uses_delta(stream) and not has_delta(session):
        raise DeclarationError(
            "the Spark of this process was started without Delta Lake",
            where=stream.place,
            remedy="let the bench start it: use `bench.spark` where a fixture of yours starts one before; the jars of"
            " Delta are brought by `sluice jars fetch`",
        )
    return session


def _set(session: SparkSession, key: str, value: str) -> bool:
    """Give a session a setting, if it takes that one while it runs."""
    from pyspark.errors import PySparkException

    try:
        session.conf.set(key, value)
    except PySparkException:
        return False
    return True


def _running() -> SparkSession | None:
    """The session that this process has, whoever started it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context  # noqa: SLF001 - pyspark has no word for it
    return None if context is None else SparkSession(context)


def _started(project: Project, stream: Stream) -> SparkSession:
    # pyspark would follow it, and a test would write on a server.
    remote = os.environ.pop(_REMOTE, None)
    try:
        # The settings of the first stream are not those of every other.
        started: SparkSession = open_session(project, replace(stream, conf=None), work=Work(0))
    finally:
        if remote is not None:
            os.environ[_REMOTE] = remote
    return started
