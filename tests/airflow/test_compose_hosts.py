"""docker-compose.yaml at work: PostgreSQL, Airflow's components and a Spark cluster, each on a host of its own."""

from __future__ import annotations

import json
import secrets
import time
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from compose_hosts import Composed, missing
from deltalake import DeltaTable

from demo.landing import land_flights
from tests.campaign import in_campaigns

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    in_campaigns,
    pytest.mark.skipif(bool(missing()), reason=missing() or "nothing is missing"),
]

FIRST, NEXT = date(2013, 1, 1), date(2013, 4, 1)
"""The first quarter, and the first day after it."""


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """All services, healthy by their own checks."""
    names = ("POSTGRES_PASSWORD", "AIRFLOW_API_SECRET_KEY", "AIRFLOW_JWT_SECRET", "AIRFLOW_ADMIN_PASSWORD")
    given = {name: secrets.token_hex(24) for name in names}
    given["AIRFLOW_FERNET_KEY"] = urlsafe_b64encode(secrets.token_bytes(32)).decode()
    made = Composed(tmp_path_factory.mktemp("composed"), given)
    with made.up():
        yield made


def test_a_quarter_of_flights(composed: Composed) -> None:
    """The DAG runs on the cluster: the triggerer follows a driver on another host, through the shared home alone."""
    landing, lake = composed.project / "data" / "landing" / "flights", composed.project / "data" / "lake"
    land_flights(landing)
    done = composed.run("airflow-scheduler", "airflow", "dags", "unpause", "flights")
    assert done.returncode == 0, done.stderr

    call = login(composed)
    runs = "/api/v2/dags/flights/dagRuns"
    first = wait_for(lambda: call(f"{runs}?order_by=logical_date&limit=1")["dag_runs"])[0]["dag_run_id"]
    state = wait_for(lambda: (found := call(f"{runs}/{first}")["state"]) in {"success", "failed"} and found)

    logs = [file for file in (composed.root / "opt/airflow/logs").rglob("*.log*") if f"run_id={first}" in str(file)]
    assert state == "success", "\n".join(file.read_text("utf-8", "replace")[-3000:] for file in logs)
    assert any(".trigger." in file.name for file in logs)
    tasks = call(f"{runs}/{first}/taskInstances")["task_instances"]
    assert {task["task_id"]: task["try_number"] for task in tasks} == {"departures": 1, "hourly_delays": 1}
    landed = sum(len(file.read_text().splitlines()) - 1 for file in landing.glob("flights-2013-0[123]-*.csv"))
    found = [days_of(lake / name) for name in ("departures", "departures_quarantine")]
    assert sum(FIRST <= day < NEXT for days in found for day in days) == landed
    assert "hourly_delays" in call("/sluice/", is_json=False)


def days_of(table: Path) -> list[date]:
    return DeltaTable(str(table)).to_pyarrow_table(columns=["flight_date"])["flight_date"].to_pylist()


def login(composed: Composed) -> Callable[..., Any]:
    """Gives a function that calls the API server as the administrator."""
    server = f"http://{composed.address('airflow-apiserver')}:8080"
    token = ""

    def call(path: str, body: Any = None, *, is_json: bool = True) -> Any:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(server + path, data, headers), timeout=60) as answer:
            text = answer.read().decode()
        return json.loads(text) if is_json else text

    password = composed.secrets["AIRFLOW_ADMIN_PASSWORD"]
    token = call("/auth/token", {"username": "admin", "password": password})["access_token"]
    return call


def wait_for(condition: Callable[[], Any], timeout_seconds: float = 900) -> Any:
    """Wait until a condition holds; gives what it gave."""
    deadline = time.monotonic() + timeout_seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(1)
    return found
