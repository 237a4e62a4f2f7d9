"""`airflow backfill create` on a stream's DAG, in a whole Airflow: every row once, and each reprocess behaviour."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable

from demo.landing import land_flights
from demo.standalone import REPOSITORY, Standalone
from sluice.home import StreamHome
from sluice.project import find_project
from sluice.runs.record import RunRecord, RunRecords
from sluice.template import create_project
from sluice_airflow.run_keys import parse_run_key
from tests.campaign import in_campaigns
from tests.flight_days import DAYS, SCHEMA, FlightDays

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(900),
]

_STREAM = f'''
from sluice import Stream, sinks, sources
departures = Stream(
    name="departures",
    sources={{"flights": sources.files("land", format="csv", schema="""{SCHEMA}""", header=True, null_value="NA")}},
    transform="flights_transform:departures",
    sink=sinks.delta("lake", partition_by=["flight_date"]),
    interval_column="flight_date",
)
fixed = Stream(
    name="fixed",
    sources={{"flights": sources.files("land", format="csv", schema="""{SCHEMA}""", header=True)}},
    transform="flights_transform:departures",
    sink=sinks.delta("other"),
)
'''
_TRANSFORM = """
from pyspark.sql import functions as F
def departures(flights):
    dated = flights.withColumn("flight_date", F.make_date("year", "month", "day"))
    distance = {distance}
    return dated.select(
        "flight_date", "carrier", "flight", "origin", "sched_dep_time", F.upper("tailnum").alias("tailnum"),
        distance.cast("int").alias("distance"),
    )
"""
_MILES, _KILOMETERS = 'F.col("distance")', 'F.round(F.col("distance") * 1.609344)'
_DAGS = """
from datetime import datetime, timedelta, timezone
from sluice_airflow.stream_dag import stream_dag
start = datetime(2013, 1, 1, tzinfo=timezone.utc)
departures = stream_dag("departures", schedule=timedelta(days=5), start_date=start, catchup=False,
                        end_date=datetime(2013, 1, 11, tzinfo=timezone.utc), max_active_runs=4)
fixed = stream_dag("fixed", schedule="@daily", start_date=start, end_date=start, catchup=False)
hourly = stream_dag("departures", dag_id="hourly", schedule="@hourly", start_date=start, end_date=start, catchup=False)
"""


class Backfilled(Standalone):
    """An Airflow whose backfills are created as users do it."""

    def backfill(self, *arguments: str, dag_id: str = "departures") -> None:
        """Call `airflow backfill create`, for ten days unless the arguments say otherwise."""
        command = [str(Path(sys.executable).with_name("airflow")), "backfill", "create", "--dag-id", dag_id]
        command += ["--from-date", "2013-01-01", "--to-date", "2013-01-10", *arguments]
        # Its database is a file here, which one writes at a time: whoever finds it locked comes again.
        for _ in range(3):
            done = subprocess.run(command, env=self._env(), capture_output=True, text=True, timeout=200, check=False)
            if "database is locked" not in done.stderr:
                break
        assert done.returncode == 0, done.stdout + done.stderr

    def is_quiet(self, dag_id: str = "departures") -> bool:
        """Whether no backfill is under way."""
        found = self.api("GET", f"/backfills?dag_id={dag_id}")["backfills"]
        return all(backfill["completed_at"] is not None for backfill in found)

    def live_run(self, dag_id: str = "departures") -> None:
        """Run the live stream by hand, to its end."""
        run_id = self.api("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"]
        self.wait_for(lambda: self.state(dag_id, run_id) == "success", f"live run {run_id}", 180)

    def state(self, dag_id: str, run_id: str) -> str:
        return str(self.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def states(self, dag_id: str = "departures") -> Counter[str]:
        """How many runs of backfills are in which state."""
        found = self.api("GET", f"/dags/{dag_id}/dagRuns?run_type=backfill")["dag_runs"]
        return Counter(run["state"] for run in found)

    def delete_backfills(self, dag_id: str) -> list[str]:
        """Delete the DAG runs of a DAG's backfills; gives their names."""
        found = self.api("GET", f"/dags/{dag_id}/dagRuns?run_type=backfill")["dag_runs"]
        names = [str(run["dag_run_id"]) for run in found]
        for name in names:
            self.api("DELETE", f"/dags/{dag_id}/dagRuns/{quote(name, safe='')}")
        return names

    def logs(self, dag_id: str) -> str:
        """What the tasks of a DAG's backfills have logged."""
        folders = (self.home / "logs" / f"dag_id={dag_id}").glob("run_id=backfill__*")
        return "\n".join(file.read_text() for folder in folders for file in folder.rglob("*.log"))


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> FlightDays:
    """What `sluice init` makes, and flights of ten days, of which the first parts have arrived."""
    root, archive = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("archive")
    create_project(root)
    land_flights(archive)
    (root / "streams" / "flights.py").write_text(_STREAM)
    (root / "dags" / "flights.py").write_text(_DAGS)
    found = FlightDays(root, archive)
    transform(found, _MILES)
    found.land(1, DAYS)
    return found


@pytest.fixture(scope="module")
def airflow(days: FlightDays, airflow_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backfilled]:
    """Every component, on loopback."""
    environment = {
        "PYTHONPATH": f"{REPOSITORY / 'include'}:{REPOSITORY / 'plugins'}:{days.root}",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
        # The sample's first run is due before the api-server may be there to hear of it.
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "2",
    }
    home = tmp_path_factory.mktemp("airflow")
    with Backfilled(home, days.root / "dags", days.root, environment=environment, tables=airflow_tables) as started:
        started.wait_until_healthy(400)
        started.wait_for(lambda: len(started.api("GET", "/dags")["dags"]) == 4, "the DAGs", 200)
        yield started


@pytest.fixture(scope="module")
def before(airflow: Backfilled, days: FlightDays) -> dict[str, bytes]:
    """The live checkpoint before the backfill, which a changed transform and late rows of the same days go with."""
    airflow.live_run()
    assert days.rows() == days.expected(0, 0)
    checkpoint = checkpoint_of(days)

    transform(days, _KILOMETERS)
    airflow.backfill()
    days.land(1, DAYS, rest=True)
    airflow.live_run()
    airflow.wait_for(lambda: airflow.states() == {"success": 2}, "two runs", 300)
    return checkpoint


@in_campaigns
def test_ten_days_through_airflow(days: FlightDays, before: dict[str, bytes]) -> None:
    """The two intervals run side by side: every row once, and nobody but the live stream writes its checkpoint."""
    assert days.rows() == days.expected(1, DAYS)
    one, other = succeeded(days)
    assert max(one.started_at or "", other.started_at or "") < min(one.ended_at or "", other.ended_at or "")
    assert checkpoint_of(days).items() >= before.items()


@in_campaigns
def test_each_reprocess_behavior_does_what_it_says(
    airflow: Backfilled, days: FlightDays, before: dict[str, bytes]
) -> None:
    """Of runs that succeeded, failed, and succeeded again; no row changes."""
    assert before
    live = checkpoint_of(days)
    airflow.wait_for(airflow.is_quiet, "the first backfill", 180)

    # Completed, with a transform that is wrong: every run fails, without replacing anything.
    (days.root / "flights_transform.py").write_text("def departures(flights):\n    return 1\n")
    airflow.backfill("--reprocess-behavior", "completed")
    airflow.wait_for(lambda: airflow.states() == {"failed": 2} and airflow.is_quiet(), "two failed runs", 180)
    errors = [record.error for record in backfills(days).values() if record.error is not None]
    assert ["not a DataFrame" in error.message for error in errors] == [True, True]
    assert days.rows() == days.expected(1, DAYS)

    # None: what has run stays as it is.
    transform(days, _KILOMETERS)
    airflow.backfill("--reprocess-behavior", "none")
    airflow.wait_for(airflow.is_quiet, "the backfill that does nothing", 180)
    assert airflow.states() == {"failed": 2}

    # Failed: these run again.
    airflow.backfill("--reprocess-behavior", "failed")
    airflow.wait_for(lambda: airflow.states() == {"success": 2} and airflow.is_quiet(), "two runs", 300)
    assert len(succeeded(days)) == 4

    # Failed, where none has: nothing runs. Completed: they really run again.
    done = backfills(days)
    airflow.backfill("--reprocess-behavior", "failed")
    airflow.wait_for(airflow.is_quiet, "the backfill that does nothing", 180)
    assert backfills(days) == done
    airflow.backfill("--reprocess-behavior", "completed")
    airflow.wait_for(lambda: len(succeeded(days)) == 6 and airflow.is_quiet(), "two more runs", 300)
    assert airflow.states() == {"success": 2}
    assert all(record.backfill is not None for record in succeeded(days))
    assert days.rows() == days.expected(1, DAYS)
    assert checkpoint_of(days) == live


def test_the_sample_can_be_backfilled(airflow: Backfilled, days: FlightDays) -> None:
    """With the DAG that `sluice init` makes, as the README says; the rows are the same."""
    airflow.live_run("visits")
    before = sample_rows(days)
    assert before

    airflow.backfill("--from-date", "2026-01-01", "--to-date", "2026-01-02", dag_id="visits")
    airflow.wait_for(lambda: airflow.states("visits") == {"success": 2}, "two runs", 300)

    assert sample_rows(days) == before
    replaced = {
        record.interval.start.date(): record.backfill.rows_replaced
        for record in RunRecords(home_of(days, "visits")).newest(9)
        if record.interval is not None and record.backfill is not None
    }
    assert replaced == {day: before[day] for day in (date(2026, 1, 1), date(2026, 1, 2))}


def test_a_backfill_that_is_created_again_after_its_dag_run_was_deleted(airflow: Backfilled, days: FlightDays) -> None:
    """Airflow gives the new DAG run the old one's name: it computes the rows anew all the same."""
    airflow.live_run("visits")
    rows, records = sample_rows(days), RunRecords(home_of(days, "visits"))
    airflow.wait_for(lambda: airflow.is_quiet("visits"), "the backfills before", 200)
    airflow.delete_backfills("visits")
    earlier = set(records.run_ids())
    names: list[str] = []
    for _ in range(2):
        airflow.backfill("--from-date", "2026-01-01", "--to-date", "2026-01-01", dag_id="visits")
        airflow.wait_for(
            lambda: airflow.states("visits") == {"success": 1} and airflow.is_quiet("visits"), "a run", 300
        )
        names += airflow.delete_backfills("visits")

    done = [record for record in records.newest(9) if record.run_id not in earlier]
    keys = [parse_run_key(record.run_key) for record in done]
    assert [key and key.run_id for key in keys] == names == [names[0]] * 2
    assert [record.backfill and record.backfill.rows_written for record in done] == [rows[date(2026, 1, 1)]] * 2
    assert sample_rows(days) == rows


@pytest.mark.parametrize(
    ("dag_id", "said"),
    [
        ("fixed", "can't be backfilled, and nothing was changed: `fixed`: it declares no `interval_column`"),
        ("hourly", "`flight_date` has dates, and 2013-01-01T01:00:00.000Z is no midnight (UTC)"),
    ],
)
def test_what_can_not_be_backfilled_says_so(airflow: Backfilled, days: FlightDays, dag_id: str, said: str) -> None:
    """Its tasks fail at once, for good and without Spark; the DAG's documentation has told it before."""
    airflow.live_run()
    rows = days.rows()
    day = ("--from-date", "2013-01-01", "--to-date", "2013-01-01T00:00:00+00:00")
    airflow.backfill(*day, dag_id=dag_id)
    airflow.wait_for(lambda: airflow.states(dag_id)["failed"] == 1, "a run that failed", 200)

    assert said in airflow.logs(dag_id)
    assert "started the driver" not in airflow.logs(dag_id)
    assert days.rows() == rows
    details: dict[str, Any] = airflow.api("GET", f"/dags/{dag_id}/details")
    assert ("can't be backfilled" if dag_id == "fixed" else "not whole days (UTC)") in details["doc_md"]


def test_a_pool_bounds_the_drivers(airflow: Backfilled) -> None:
    """The scheduler has made it when it started, and it counts deferred tasks."""
    pool = airflow.api("GET", "/pools/sluice")

    assert pool["include_deferred"] is True
    assert pool["slots"] >= 2


@pytest.mark.parametrize("conf", [{"until": "; rm -rf /"}, {"max_batches": 0}, {"max_batches": "$(id)"}])
def test_what_a_person_gives_to_a_run_is_checked(airflow: Backfilled, conf: dict[str, Any]) -> None:
    """What fits no schema starts no run."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        airflow.api("POST", "/dags/fixed/dagRuns", {"logical_date": None, "conf": conf})
    with refused.value as answer:
        assert answer.code == 400


def transform(days: FlightDays, distance: str) -> None:
    (days.root / "flights_transform.py").write_text(_TRANSFORM.format(distance=distance))


def home_of(days: FlightDays, stream: str = "departures") -> StreamHome:
    project = find_project(str(days.root))
    return project.stream_home(project.stream(stream))


def sample_rows(days: FlightDays) -> Counter[date]:
    """How many rows the sample's table has of each day; every one is another."""
    rows = DeltaTable(str(days.root / "data" / "lake" / "visits")).to_pyarrow_table().to_pylist()
    assert len({row["visit_id"] for row in rows}) == len(rows)
    return Counter(row["visit_date"] for row in rows)


def checkpoint_of(days: FlightDays) -> dict[str, bytes]:
    """Every file of the live checkpoint."""
    folder = Path(home_of(days).checkpoint_location(1))
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def backfills(days: FlightDays) -> dict[str, RunRecord]:
    found = RunRecords(home_of(days)).newest(50)
    return {record.run_id: record for record in found if record.interval is not None}


def succeeded(days: FlightDays) -> list[RunRecord]:
    return [record for record in backfills(days).values() if record.status == "succeeded"]
