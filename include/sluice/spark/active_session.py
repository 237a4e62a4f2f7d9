"""Which session whoever asks Spark for one gets, in this thread and in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Let what a transform asks Spark for by itself be asked of this session, and then of the one before again."""
    # pyspark has no word for it, and keeps it beside Spark for itself.
    python: Any = type(session)
    of_python, made = python._activeSession, python._instantiatedSession  # noqa: SLF001
    sessions: Any = session._get_j_spark_session_class(session._jvm)  # noqa: SLF001
    before = sessions.getActiveSession()
    python._activeSession = python._instantiatedSession = session  # noqa: SLF001
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        python._activeSession, python._instantiatedSession = of_python, made  # noqa: SLF001
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def copied(session: SparkSession) -> SparkSession:
    """A session with the settings, the functions and the views of another one, which gets none of this one's."""
    # pyspark's own `newSession` has none of them.
    copy: SparkSession = type(session)(session.sparkContext, session._jsparkSession.cloneSession())  # noqa: SLF001
    return copy
