"""A database of Airflow's own for these tests, set up before Airflow is imported."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.airflow_tables import copy_tables

if TYPE_CHECKING:
    from airflow_project import StreamProject

REPOSITORY = Path(__file__).resolve().parents[2]
_HOME = tempfile.TemporaryDirectory(prefix="sluice-airflow-")
# Airflow reads its settings when it is imported, which happens while these tests are collected.
os.environ |= {
    "AIRFLOW_HOME": _HOME.name,
    "AIRFLOW__CORE__DAGS_FOLDER": f"{_HOME.name}/dags",
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-these-tests-and-never-anywhere-else",
    "AIRFLOW_CONN_SPARK_TEST": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    # What only `spark-submit` follows: the driver is started by it.
    "AIRFLOW_CONN_SPARK_SUBMITTED": json.dumps({"conn_type": "spark", "host": "local[2]", "extra": {"queue": "any"}}),
    "AIRFLOW_CONN_POSTGRES_TEST": json.dumps({"conn_type": "postgres", "host": "localhost"}),
}


@pytest.fixture(scope="session", autouse=True)
def airflow_database(airflow_tables: Path) -> Iterator[None]:
    """Airflow's tables, in a folder that goes away."""
    Path(_HOME.name, "dags").mkdir()
    copy_tables(airflow_tables, Path(_HOME.name))
    yield
    _HOME.cleanup()


@pytest.fixture
def stream_project(tmp_path: Path) -> StreamProject:
    """A project without a file yet."""
    from airflow_project import make_stream_project

    return make_stream_project(tmp_path, Path(_HOME.name, "dags"))
