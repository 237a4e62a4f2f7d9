"""docker-compose.yaml at work: PostgreSQL, Airflow's components and a Spark cluster, each on a host of its own."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from compose_hosts import Composed, missing
from deltalake import DeltaTable

from demo.airflow_api import AirflowApi
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

    password = composed.secrets["AIRFLOW_ADMIN_PASSWORD"]
    api = AirflowApi(f"http://{composed.address('airflow-apiserver')}:8080", "admin", password)
    runs = "/dags/flights/dagRuns"
    made = composed.wait_for(lambda: api("GET", f"{runs}?order_by=logical_date&limit=1")["dag_runs"], "a run", 120)
    first = made[0]["dag_run_id"]
    run = f"{runs}/{first}"
    state = composed.wait_for(lambda: ended(api("GET", run)["state"]), "the end of the run", 900)

    logs = [file for file in (composed.root / "opt/airflow/logs").rglob("*.log*") if f"run_id={first}" in str(file)]
    assert state == "success", "\n".join(file.read_text("utf-8", "replace")[-3000:] for file in logs)
    assert any(".trigger." in file.name for file in logs)
    tasks = api("GET", f"{run}/taskInstances")["task_instances"]
    assert {task["task_id"]: task["try_number"] for task in tasks} == {"departures": 1, "hourly_delays": 1}
    landed = sum(len(file.read_text().splitlines()) - 1 for file in landing.glob("flights-2013-0[123]-*.csv"))
    found = [days_of(lake / name) for name in ("departures", "departures_quarantine")]
    assert sum(FIRST <= day < NEXT for days in found for day in days) == landed
    assert "hourly_delays" in api.page("/sluice/")


def days_of(table: Path) -> list[date]:
    return DeltaTable(str(table)).to_pyarrow_table(columns=["flight_date"])["flight_date"].to_pylist()


def ended(state: str) -> str:
    """The state of a run that has ended; nothing of another."""
    return state if state in {"success", "failed"} else ""
