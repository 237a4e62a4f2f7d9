"""A project's own functions in Spark's Python workers, where Airflow has started the driver."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.utils.state import DagRunState
from airflow_project import StreamProject
from deltalake import DeltaTable

from tests.campaign import rarely
from tests.code_project import WRITTEN, make_code_project, written_by_batches

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_CASES = [("row_by_row", "spark_test"), *rarely(("row_by_row", "spark_submitted"), ("in_batches", "spark_test"))]


@pytest.mark.parametrize(("stream", "connection"), _CASES)
def test_functions_of_a_project(tmp_path: Path, stream: str, connection: str) -> None:
    """A plain function of a jobs module, and what it imports, are there: the driver runs in a folder of Airflow's."""
    project = StreamProject(make_code_project(tmp_path), Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]))

    run = project.dag(f'conn_id="{connection}"', streams=f'"{stream}"').test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    if stream == "in_batches":
        assert written_by_batches(tmp_path) == ([11], [31])
    else:
        assert DeltaTable(str(tmp_path / "out" / stream)).to_pyarrow_table()["n"].to_pylist() == WRITTEN[stream]
