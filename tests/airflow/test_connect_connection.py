"""The operator on a Spark Connect server, by a connection of type `spark_connect`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.utils.state import DagRunState
from airflow_project import StreamProject

from sluice.runs.lease import newest_lease
from tests.campaign import in_campaigns
from tests.spark.connect_server import DELTA, serving

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.filterwarnings("ignore"), in_campaigns]

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_run_on_a_server(stream_project: StreamProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is plain Python; Spark works on the server, whose token is in no file and no argument."""
    stream_project.arrive(2, at=START - timedelta(hours=2))
    settings = {**DELTA, "spark.connect.authenticate.token": "hush-hush"}
    with serving(tmp_path / "server", settings) as server:
        connection = {"conn_type": "spark_connect", "host": "sc://localhost", "port": server.port}
        monkeypatch.setenv("AIRFLOW_CONN_CONNECT_TEST", json.dumps({**connection, "password": "hush-hush"}))
        run = stream_project.dag('conn_id="connect_test"').test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    assert stream_project.rows() == [0, 1]
    home = stream_project.home()
    lease = newest_lease(home.storage, home.lease_folder(1))
    assert lease is not None
    assert lease.session is not None
    assert lease.session.server == f"sc://localhost:{server.port}"
    written = b"".join(file.read_bytes() for file in Path(home.location).rglob("*") if file.is_file())
    assert b"hush-hush" not in written
