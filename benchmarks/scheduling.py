"""What Airflow costs beside the work: waiting between tasks, against a DAG of three; and from a file to its commit."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import ROUNDS, Figure, ratio
from benchmarks.workload import arrive, make_project
from demo.standalone import REPOSITORY, Standalone
from sluice.project import find_project
from sluice.runs.record import RunRecords

BAR_GAPS = 0.4
_DAGS = """
from datetime import datetime, timezone
from airflow.sdk import DAG, task
from sluice_airflow.stream_dag import stream_dag
from sluice_airflow.timetables import on_arrival
start = datetime(2026, 1, 1, tzinfo=timezone.utc)
ours = stream_dag("events", dag_id="ours", schedule=None, start_date=start)
watched = stream_dag("events", dag_id="watched", schedule=on_arrival("events"), start_date=start,
                     is_paused_upon_creation=True)
with DAG("by_hand", schedule=None, start_date=start):
    @task
    def check(): return True
    @task
    def load(found): return 1
    @task
    def validate(rows): return rows
    validate(load(check()))
"""


def measure() -> list[Figure]:
    """The ratio of gaps and of tasks per run, and the seconds from a file's arrival to its commit in Delta."""
    with tempfile.TemporaryDirectory() as folder, _airflow(Path(folder)) as airflow:
        ours, theirs = [], []
        for number in range(ROUNDS + 1):
            arrive(airflow.project / "in", 1, 100, prefix=f"r{number}_")
            ours.append(_run_stream(airflow))
            theirs.append(_run_by_hand(airflow))
        # The first of each has found cold caches.
        ours, theirs = ours[1:], theirs[1:]
        gaps = _ratio("scheduling gaps per run, to three tasks", [r.gap for r in ours], [r.gap for r in theirs], "s")
        tasks = _ratio("tasks per run, to three tasks", [r.tasks for r in ours], [r.tasks for r in theirs], "tasks")
        seconds = _arrivals(airflow)
    detail = f"seconds, {len(seconds)} files one by one, through the watcher, Spark's start included"
    committed = Figure(
        "from a file's arrival to its commit", statistics.median(seconds), None, (min(seconds), max(seconds)), detail
    )
    return [gaps, tasks, committed]


@contextmanager
def _airflow(root: Path) -> Iterator[Standalone]:
    make_project(root / "project", files_per_batch=100)
    (root / "dags").mkdir()
    (root / "dags" / "benchmark.py").write_text(_DAGS)
    environment = {"PYTHONPATH": f"{REPOSITORY / 'include'}:{REPOSITORY / 'plugins'}:{root / 'project'}"}
    started = Standalone(root / "airflow", root / "dags", root / "project", environment=environment)
    with started as airflow:
        airflow.wait_until_healthy(400)
        airflow.wait_for(lambda: len(airflow.api("GET", "/dags")["dags"]) == 3, "the DAGs", 200)
        yield airflow


@dataclass(frozen=True)
class _Run:
    gap: float
    """Seconds in which no work is done: Airflow schedules, and starts and ends processes."""
    tasks: float


def _ratio(name: str, ours: list[float], theirs: list[float], unit: str) -> Figure:
    return ratio(name, ours, theirs, BAR_GAPS, unit)


def _run_by_hand(airflow: Standalone) -> _Run:
    """Three tasks that do nothing: the whole run is waiting, and starting processes."""
    run, tasks = _run(airflow, "by_hand")
    return _Run((_moment(run["end_date"]) - _moment(run["queued_at"])).total_seconds(), len(tasks))


def _run_stream(airflow: Standalone) -> _Run:
    """Before the task plans, and after its driver has ended, no work is done."""
    run, tasks = _run(airflow, "ours")
    project = find_project(str(airflow.project))
    record = next(RunRecords(project.stream_home(project.stream("events"))).newest(1))
    before = record.planned_at - _moment(run["queued_at"])
    after = _moment(run["end_date"]) - _moment(str(record.ended_at))
    return _Run((before + after).total_seconds(), len(tasks))


def _run(airflow: Standalone, dag_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    run_id = airflow.api("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"]
    path = f"/dags/{dag_id}/dagRuns/{run_id}"
    run = airflow.wait_for(lambda: _ended(airflow.api("GET", path)), f"a run of {dag_id}", 180)
    return run, airflow.api("GET", f"{path}/taskInstances")["task_instances"]


def _ended(run: dict[str, Any]) -> dict[str, Any] | None:
    if run["state"] == "failed":
        raise RuntimeError(f"the run {run['dag_run_id']} failed")
    return run if run["state"] == "success" else None


def _arrivals(airflow: Standalone) -> list[float]:
    """Seconds from each file's arrival until a version of the table has it."""
    airflow.api("PATCH", "/dags/watched?update_mask=is_paused", {"is_paused": False})
    # A paused DAG has no watcher: it gets one when its file is parsed next, which is at once if that has changed.
    (airflow.dags / "benchmark.py").touch()
    log = airflow.project / "out" / "_delta_log"
    seconds = []
    for number in range(ROUNDS + 1):
        versions = len(list(log.glob("*.json")))
        began = time.monotonic()
        arrive(airflow.project / "in", 1, 100, prefix=f"w{number}_")
        airflow.wait_for(partial(_has_more, log, versions), "the commit", 180)
        seconds.append(time.monotonic() - began)
        airflow.wait_for(lambda: _is_idle(airflow), "the run's end", 120)
    return seconds[1:]


def _has_more(log: Path, versions: int) -> bool:
    return len(list(log.glob("*.json"))) > versions


def _is_idle(airflow: Standalone) -> bool:
    runs = airflow.api("GET", "/dags/watched/dagRuns")["dag_runs"]
    return all(run["state"] in {"success", "failed"} for run in runs)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
