"""A Spark of this process that goes on to another stream: what the one before has set is taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.spark.left_behind import forget_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON_ZONE = "spark.executorEnv.TZ"
"""What Python functions take for the time zone: with local tasks, each function brings it along."""

_before: dict[str, str | None] = {}
"""What the settings were that a stream has set in the session that is still this process's; None for unset."""


def set_back() -> None:
    """Take back what was set for the stream before."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        forget_functions()
        for key, value in _before.items():
            if session.conf.isModifiable(key):
                session.conf.unset(key) if value is None else session.conf.set(key, value)
    _before.clear()


def note_before(conf: Mapping[str, str]) -> None:
    """Remember what the settings are that are set now for a stream, where Spark runs already."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    known = {} if session is None else session.conf.getAll
    _before.update({key: known.get(key) for key in conf})


def set_python_zone(session: SparkSession, zone: str | None) -> None:
    """Let Python functions of local tasks take a zone for theirs; None for the machine's."""
    context: Any = session.sparkContext
    if zone is None:
        context.environment.pop("TZ", None)
    else:
        context.environment["TZ"] = zone
