"""One Spark for the runs that mend what a killed driver left."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numbers_project import STREAM, Numbers, make_numbers
from pyspark.sql import SparkSession

from sluice.spark.java import Work
from sluice.spark.session import open_session
from tests.python_workers import importing_tests


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that the product opens for these streams."""
    numbers = make_numbers(tmp_path_factory.mktemp("session"), delay_ms=0)
    with importing_tests():
        session = open_session(numbers.project, numbers.project.stream(STREAM), work=Work(size_bytes=0))
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Numbers:
    """A project without a row yet."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return make_numbers(tmp_path, delay_ms=0)
