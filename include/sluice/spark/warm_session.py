"""A Spark of this process that goes on to another stream: what the one before has set is taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sluice.spark.left_behind import forget_functions, forget_workers


@dataclass
class _Settings:
    """What the settings were that a stream has set in a session; None for unset."""

    session: Any = None
    before: Mapping[str, str | None] = field(default_factory=dict)


_last = _Settings()


def set_back() -> None:
    """Take back what was set for the stream before, where Spark goes on."""
    session = _running()
    if session is None:
        return
    forget_functions()
    if session is _last.session:
        forget_workers(session)
        for key, value in _last.before.items():
            if session.conf.isModifiable(key):
                session.conf.unset(key) if value is None else session.conf.set(key, value)


@contextmanager
def noted(conf: Mapping[str, str]) -> Iterator[None]:
    """Remember what the settings are before they are set for a stream."""
    session = _running()
    known = {} if session is None else session.conf.getAll
    before = {key: known.get(key) for key in conf}
    try:
        yield
    finally:
        _last.session, _last.before = _running(), before


def _running() -> Any:
    """The session that is this process's, whichever thread asks; None where Spark does not run."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession._instantiatedSession
    return None if session is None or session.sparkContext._jsc is None else session
