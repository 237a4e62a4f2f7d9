"""One Spark for several streams, one after the other: each has a session of its own in it.

What a session has for itself (settings of SQL, functions, views, tables that are not kept, cached rows, listeners) is a
stream's own. What only Spark's start can set is one for all of them: a stream that declares it otherwise has another
Spark. What else a run leaves in Spark is forgotten before the next one begins, as by a process that ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.project import Project
from sluice.spark.driver_jvm import end_jvm, is_gone
from sluice.spark.java import Work
from sluice.spark.left_behind import forget_functions, forget_state, forget_tables, forget_workers
from sluice.spark.python_zone import PYTHON_ZONE, set_python_zone
from sluice.spark.session import (
    check_taken,
    chosen_master,
    is_local_master,
    open_session,
    spark_conf,
    start_spark,
)
from sluice.spark.start_settings import of_session, of_start
from sluice.spark_master import is_submitted
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


class PackedSessions:
    """Opens a session for one stream after the other.

    Args:
        work: What all of them are going to do together; None when nobody knows.
        say: Is told when a stream gets another Spark than the one before it.
    """

    def __init__(self, work: Work | None, say: Callable[[str], None]) -> None:
        self._work, self._say = work, say
        self._start: dict[str, str] = {}
        self._base: SparkSession | None = None
        self._opened: SparkSession | None = None

    def start_settings(self, project: Project, stream: Stream) -> dict[str, str]:
        """The settings of a stream that only a start of Spark can set.

        Raises:
            DeclarationError: See `spark_conf`.
            JarsError: The stream needs jars that are not in the cache.
        """
        if project.is_remote:
            return {}
        master = chosen_master(project)
        conf = spark_conf(project, stream, master, self._work)
        is_local = is_local_master(master)
        return {key: value for key, value in of_start(conf).items() if not (is_local and key == PYTHON_ZONE)}

    def open(self, project: Project, stream: Stream, *, work: Work | None) -> SparkSession:
        """A session with the settings of a stream alone; see `open_session`.

        Raises:
            DeclarationError: `spark-submit` has started a Spark that is not as the stream needs it.
        """
        if project.is_remote:
            return open_session(project, stream, work=work)
        start, master = self.start_settings(project, stream), chosen_master(project)
        if self._base is not None and self._is_gone():
            self._say("Spark is gone; another one is started")
            self.close()
        elif self._base is not None and (differing := self._differing(start)):
            if is_submitted():
                raise DeclarationError(
                    f"it needs a Spark of its own: {', '.join(differing)}",
                    where=stream.place,
                    remedy="run it by itself: `spark-submit` starts one Spark, for the first of several streams",
                )
            self._say(f"`{stream.name}` has a Spark of its own: {', '.join(differing)}")
            self.close()
        if self._base is None:
            self._base, self._start = start_spark(master, start, name="sluice", stream=stream), start
        conf = spark_conf(project, stream, master, work)
        self._opened = session = _first_session(self._base, of_session(conf))
        check_taken(session, stream)
        if is_local_master(master):
            set_python_zone(session, conf.get(PYTHON_ZONE))
        return session

    def _differing(self, start: Mapping[str, str]) -> list[str]:
        """The settings for which a stream needs another Spark than there is."""
        keys = sorted(dict(start.items() ^ self._start.items()))
        # The JVM of `spark-submit` is as it is, and so it would be for a stream alone.
        return [key for key in keys if not (is_submitted() and key.startswith("spark.driver."))]

    def forget(self) -> None:
        """Let Spark forget what the last stream has left in it."""
        session, self._opened = self._opened, None
        forget_functions()
        if session is None or self._is_gone():
            return
        try:
            _forget_all(session)
        except Exception:
            # What has not been forgotten must not reach the next one.
            logger.warning("Spark does not forget the last run, and is ended", exc_info=True)
            self.close()

    def close(self) -> None:
        """End Spark, if it was started."""
        if self._base is not None:
            end_jvm()
        self._base = self._opened = None

    def _is_gone(self) -> bool:
        return self._base is None or is_gone(self._base)


def _first_session(base: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Another session, made as the first one of a process is: with a catalog, a cache and listeners of its own.

    Who asks pyspark or Spark for "the" session gets this one.
    """
    from pyspark.sql import SparkSession

    context: Any = base.sparkContext
    sessions = SparkSession._get_j_spark_session_class(context._jvm)
    sessions.clearActiveSession()
    sessions.clearDefaultSession()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    session: SparkSession = SparkSession(context, options=dict(settings))
    return session


def _forget_all(session: SparkSession) -> None:
    session.catalog.clearCache()
    forget_tables(session)
    forget_state(session)
    forget_workers(session)
    context: Any = session.sparkContext
    spark, listener = context._jsc.sc(), session._jsparkSession.sharedState().statusStore().listener()
    if listener.isDefined():
        # Spark adds one for each first session, and takes none away.
        spark.removeSparkListener(listener.get())
    spark.setLocalProperties(context._jvm.java.util.Properties())
