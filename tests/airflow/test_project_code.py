"""A project's own functions in Spark's Python workers, where Airflow has started the driver."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.utils.state import DagRunState
from airflow_project import StreamProject
from deltalake import DeltaTable

from tests.campaign import CAMPAIGN
from tests.code_project import WRITTEN, import_at_the_top, make_code_project, written_by_batches
from tests.spark.connect_server import DELTA, serving

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CONNECTIONS = ("spark_test", "spark_submitted", "spark_served")
_CASES = (
    [(stream, connection) for connection in _CONNECTIONS for stream in (*WRITTEN, "in_batches")]
    if CAMPAIGN
    else [("row_by_row", "spark_test")]
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Spark Connect server."""
    with serving(tmp_path_factory.mktemp("server"), {**DELTA, _PROVIDER: _ROCKSDB}) as running:
        yield running.port


@pytest.mark.parametrize(("stream", "connection"), _CASES)
def test_functions_of_a_project(
    tmp_path: Path, stream: str, connection: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain function of a jobs module, and what it imports, are there: the driver runs in a folder of Airflow's."""
    project = StreamProject(make_code_project(tmp_path), Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]))
    # Assets bear the project's name: Airflow lets two tables of one name be written by nobody.
    settings = tmp_path / "sluice.toml"
    settings.write_text(settings.read_text().replace('name = "code"', f'name = "{tmp_path.name}"'))
    if connection == "spark_served":
        served = {"conn_type": "spark_connect", "host": "sc://localhost", "port": request.getfixturevalue("server")}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_SERVED", json.dumps(served))
        import_at_the_top(tmp_path)
    elif CAMPAIGN:
        with settings.open("a") as file:
            file.write(f'[spark]\nconf = {{ "{_PROVIDER}" = "{_ROCKSDB}" }}\n')

    run = project.dag(f'conn_id="{connection}"', streams=f'"{stream}"').test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    if stream == "in_batches":
        assert written_by_batches(tmp_path) == ([11], [31])
    else:
        assert DeltaTable(str(tmp_path / "out" / stream)).to_pyarrow_table()["n"].to_pylist() == WRITTEN[stream]
