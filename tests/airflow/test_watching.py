"""A whole Airflow that watches: commits over restarts of the triggerer, arrivals, partitions, and time-outs."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import urllib.error
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow_project import StreamProject, make_stream_project
from committed import commit

from demo.standalone import REPOSITORY, Standalone
from tests.builders import make_delta
from tests.campaign import in_campaigns

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]

SOON = 120.0
_DAGS = """
from datetime import datetime, timedelta, timezone
from airflow.sdk import DAG, task
from airflow.providers.standard.operators.empty import EmptyOperator
from sluice.plan_document import PlanDocument
from sluice.project import find_project
from sluice.runs.record import BatchRecord, RunRecord
from sluice_airflow.assets import emit_events, outlets
from sluice_airflow.sensors.progress import BatchSensor
from sluice_airflow.timetables import after_run, data_intervals, on_arrival, on_commit, per_partition

PROJECT = find_project()
TABLE = PROJECT.stream("events")
with DAG("listens", schedule=on_commit("events")):
    EmptyOperator(task_id="listen")
with DAG("starts", schedule=on_arrival("landed")):
    EmptyOperator(task_id="start")
with DAG("writes", schedule=data_intervals("0 0 1 1 *"), catchup=False,
         start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
    @task(outlets=outlets(TABLE))
    def write(**context):
        batches = tuple(
            BatchRecord(batch_id=n, kind="data", input_rows=2, output_rows=2, watermark=None, sink_version=n)
            for n in (0, 1)
        )
        record = RunRecord(run_id="r1", stream="events", generation=1, planned_at=datetime.now(timezone.utc),
                           plan=PlanDocument(), status="succeeded", batches=batches)
        emit_events(context, TABLE, record, home=PROJECT.stream_home(TABLE))
    write()
with DAG("per_part", schedule=per_partition("events")):
    EmptyOperator(task_id="take")
with DAG("after", schedule=after_run("events")):
    EmptyOperator(task_id="follow")
with DAG("waits", schedule=None):
    BatchSensor(task_id="wait", stream="events", batch_id=1000, timeout=3)
with DAG("begins_in_triggerer", schedule=None):
    BatchSensor(task_id="wait", stream="events", batch_id=0, timeout=60, start_from_trigger=True)
"""
_SORTING = """
import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from sluice.runs.driver import Drivers
from sluice.runs.record import BatchRecord, RunRecords
from sluice_airflow.operators import run_stream
from sluice_airflow.stream_dag import stream_dag
from sluice_airflow.timetables import after_run


def launch(project, request, run_id, _conn_id):
    # A driver whose run has written what the file says.
    home = project.stream_home(request.stream)
    rows = json.loads(Path(project.root, "rows.json").read_text())
    batch = BatchRecord(batch_id=0, kind="data", input_rows=9, output_rows=9, watermark=None, rows_by_sink=rows)
    record = RunRecords(home).read(run_id)
    RunRecords(home).save(msgspec.structs.replace(record, status="succeeded", tries=1, batches=(batch,)))
    return Drivers(home).launch(run_id, [sys.executable, "-c", "pass"], dict(os.environ), datetime.now(timezone.utc))


run_stream.launch = launch
sorts = stream_dag("sorted", schedule=None)
for name, schedule in (
    ("after_good", after_run("sorted", sink="good")),
    ("after_rest", after_run("sorted", sink="rest")),
    ("after_any", after_run("sorted")),
):
    with DAG(name, schedule=schedule):
        EmptyOperator(task_id="follow")
"""
_SORTED = """
sorted_out = Stream(
    name="sorted",
    sources={"events": sources.files("unsorted", format="json", schema="n bigint")},
    transform="transform_events:events",
    sinks={"good": sinks.delta("out/good"), "rest": sinks.delta("out/rest")},
)
"""
_LANDED = """
landed = Stream(
    name="landed",
    sources={"events": sources.files("in", format="json", schema="n bigint")},
    transform="transform_events:events",
    sink=sinks.noop(),
)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> StreamProject:
    """The project that Airflow serves; its sink is partitioned."""
    root = tmp_path_factory.mktemp("watching")
    found = make_stream_project(root, root / "dags")
    declaration = root / "streams" / "events.py"
    partitioned = declaration.read_text().replace('"out/events")', '"out/events", partition_by=["part"])', 1)
    declaration.write_text(partitioned + _LANDED + _SORTED)
    found.dags.mkdir()
    (found.dags / "watching.py").write_text(_DAGS)
    (found.dags / "sorting.py").write_text(_SORTING)
    (root / "unsorted").mkdir()
    (root / "unsorted" / "0.json").write_text('{"n": 0}')
    make_delta(root / "out" / "events", [1, 2], [2, 3])
    return found


@pytest.fixture(scope="module")
def airflow(
    project: StreamProject, airflow_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standalone]:
    """Every component, on loopback."""
    environment = {
        "PYTHONPATH": f"{REPOSITORY / 'include'}:{REPOSITORY / 'plugins'}",
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
    }
    home = tmp_path_factory.mktemp("airflow")
    with Standalone(home, project.dags, project.root, environment=environment, tables=airflow_tables) as started:
        started.wait_until_healthy(400)
        started.wait_for(lambda: len(ask(started, "GET", "/dags")["dags"]) == 11, "the DAGs", 200)
        yield started


def restart_triggerer(airflow: Standalone, how: signal.Signals) -> None:
    """End the triggerer with all of its processes, and start another one."""
    old = airflow._processes.pop("triggerer")
    os.killpg(old.pid, how)
    old.wait(60)
    airflow.start_component("triggerer")


def ask(airflow: Standalone, method: str, path: str, body: Any = None) -> Any:
    """Call the API: it can't show events (500) while a run that one of them made has yet to start."""

    def answer() -> Any:
        try:
            return airflow.api(method, path, body)
        except urllib.error.HTTPError as exc:
            if exc.code < 500:
                raise
            return None

    return airflow.wait_for(answer, path, SOON)


def events(airflow: Standalone, name: str) -> list[dict[str, Any]]:
    """The events of an asset, oldest first."""
    found = ask(airflow, "GET", "/assets/events?limit=100&order_by=timestamp")["asset_events"]
    return [event for event in found if event["name"] == name]


def told(airflow: Standalone) -> list[tuple[int, int]]:
    payloads = [event["extra"]["payload"] for event in events(airflow, "events/commits")]
    return [(payload["first_batch_id"], payload["batch_id"]) for payload in payloads]


def runs(airflow: Standalone, dag_id: str) -> list[dict[str, Any]]:
    return list(ask(airflow, "GET", f"/dags/{dag_id}/dagRuns")["dag_runs"])


def confirmed(airflow: Standalone) -> int:
    """The newest batch of which the watcher knows that Airflow has its event."""
    with sqlite3.connect(f"file:{airflow.home / 'airflow.db'}?mode=ro", uri=True) as database:
        (kept,) = database.execute("select value from asset_state_store where key = 'sluice_commits'").fetchone()
    return int(json.loads(kept)["told"].get("batch_id", -1))


def wait_for_told(airflow: Standalone, batch_id: int) -> None:
    airflow.wait_for(lambda: told(airflow) and told(airflow)[-1][1] == batch_id, f"batch {batch_id}", SOON)


def test_commits_are_told_once_over_restarts(airflow: Standalone, project: StreamProject) -> None:
    """The triggerer ends politely, and is killed; batches come while it is there, and while it is not."""
    commit(project, 0)
    wait_for_told(airflow, 0)
    for batch_id, how in ((1, signal.SIGTERM), (3, signal.SIGKILL)):
        commit(project, batch_id)
        wait_for_told(airflow, batch_id)
        # A triggerer that is killed before it hears that the event is safe repeats it, as documented.
        airflow.wait_for(lambda told_until=batch_id: confirmed(airflow) == told_until, "the confirmation", SOON)
        restart_triggerer(airflow, how)
        commit(project, batch_id + 1)
        wait_for_told(airflow, batch_id + 1)
    airflow.wait_for(lambda: any(run["state"] == "success" for run in runs(airflow, "listens")), "a run", SOON)

    assert told(airflow) == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_file_starts_a_run(airflow: Standalone, project: StreamProject) -> None:
    """The file lands, the watcher sees it, and Airflow starts the DAG run: seconds (measured: 1 to 5)."""
    project.arrive(1, at=datetime.now(UTC))
    landed = datetime.now(UTC)
    started = airflow.wait_for(
        lambda: [run for run in runs(airflow, "starts") if run["start_date"]], "a run to start", SOON
    )
    delay = (datetime.fromisoformat(started[0]["start_date"]) - landed).total_seconds()

    assert len(events(airflow, "landed/arrivals")) == 1
    assert 0 <= delay < 60, delay


@in_campaigns
def test_a_run_tells_which_partitions_it_touched(airflow: Standalone) -> None:
    """One plain event for those that follow the run, one per partition for those that follow partitions."""
    ask(airflow, "POST", "/dags/writes/dagRuns", {"logical_date": None})
    airflow.wait_for(lambda: len(runs(airflow, "per_part")) >= 3, "a run per partition", SOON)
    airflow.wait_for(lambda: runs(airflow, "after"), "a run after the run", SOON)

    assert sorted(run["partition_key"] for run in runs(airflow, "per_part")) == ["1", "2", "3"]
    (event,) = events(airflow, "events")
    assert event["extra"] | {"generation": 1} == {
        "run_id": "r1", "stream": "events", "generation": 1, "batches": [0, 1], "input_rows": 4, "output_rows": 4,
        "watermark": None, "sink_version": 1, "status": "succeeded", "quality": None, "since_runs": [],
        "partition_count": 3, "partitions": ["1", "2", "3"],
    }  # fmt: skip


def test_who_follows_one_of_several_sinks(airflow: Standalone, project: StreamProject) -> None:
    """A run that wrote into one of them starts what follows that one, and nothing that follows another one."""
    wanted = {"after_good": 0, "after_rest": 0, "after_any": 0}
    for good, rest in ((3, 0), (0, 2), (1, 1)):
        (project.root / "rows.json").write_text(json.dumps({"good": good, "rest": rest}))
        ask(airflow, "POST", "/dags/sorted/dagRuns", {"logical_date": None})
        more = {"after_good": good > 0, "after_rest": rest > 0, "after_any": True}
        wanted = {dag_id: count + more[dag_id] for dag_id, count in wanted.items()}

        def are_done(wanted: dict[str, int] = wanted) -> bool:
            done = {dag_id: [run["state"] for run in runs(airflow, dag_id)].count("success") for dag_id in wanted}
            return all(done[dag_id] >= count for dag_id, count in wanted.items())

        airflow.wait_for(are_done, f"the runs after {good} good rows and {rest} others", SOON)

    assert [event["extra"]["output_rows"] for event in events(airflow, "sorted")] == [3, 1]
    assert [event["extra"]["output_rows"] for event in events(airflow, "sorted.rest")] == [2, 1]
    assert {dag_id: len(runs(airflow, dag_id)) for dag_id in wanted} == wanted


@in_campaigns
def test_a_deferred_sensor_times_out(airflow: Standalone) -> None:
    """Its time-out holds in the triggerer, too."""
    run = ask(airflow, "POST", "/dags/waits/dagRuns", {"logical_date": None})
    state = airflow.wait_for(
        lambda: next(
            (found["state"] for found in runs(airflow, "waits") if found["dag_run_id"] == run["dag_run_id"]
             and found["state"] in {"failed", "success"}), None
        ), "the time-out", SOON
    )  # fmt: skip

    assert state == "failed"


def test_a_sensor_begins_in_the_triggerer(airflow: Standalone, project: StreamProject) -> None:
    """The scheduler hands it over: a worker hears of it when the waiting is over, and not before."""
    commit(project, 0)
    run_id = ask(airflow, "POST", "/dags/begins_in_triggerer/dagRuns", {"logical_date": None})["dag_run_id"]
    task = f"/dags/begins_in_triggerer/dagRuns/{urllib.parse.quote(run_id, safe='')}/taskInstances/wait"
    airflow.wait_for(lambda: ask(airflow, "GET", task)["state"] == "success", "the batch", SOON)

    said = [line["event"] for line in ask(airflow, "GET", f"{task}/logs/1?full_content=true")["content"]]
    at_work = "Worker startup parse complete"
    assert said.count(at_work) == 1
    assert said.index("Trigger fired event") < said.index(at_work)
