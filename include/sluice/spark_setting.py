"""A setting of a Spark session that holds for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_setting(session: SparkSession, key: str, value: str) -> Iterator[None]:
    """Set a key of the session; afterwards it is what it was, or not set if it was not."""
    with _set_back(session, key):
        session.conf.set(key, value)
        yield


@contextmanager
def without_setting(session: SparkSession, key: str) -> Iterator[None]:
    """Take a key out of the session, which has Spark's default for it then; afterwards it is what it was."""
    with _set_back(session, key):
        session.conf.unset(key)
        yield


@contextmanager
def _set_back(session: SparkSession, key: str) -> Iterator[None]:
    before = session.conf.get(key, None)
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, before)
