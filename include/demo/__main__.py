"""`make demo`: the main job, end to end, on real data, through Airflow."""

from __future__ import annotations

import shutil
import signal
import sys
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

from demo.bad_day import Stopped, release_bad_day
from demo.comparison import compare
from demo.killing import kill_in_mid_batch
from demo.landing import BAD_DAY, flights_archive, land_flights
from demo.standalone import REPOSITORY, Standalone
from sluice.cli.printing import print_table
from sluice.exit_code import leave_with
from sluice.home import StreamHome
from sluice.monitoring.inspection import inspect_stream
from sluice.project import find_project
from sluice.runs.record import QualityRecord, RunRecord, RunRecords, describe_batch
from sluice.times import system_clock

WORK = REPOSITORY / "var" / "demo"
LANDING = WORK / "data" / "landing" / "flights"
DAG_ID = "flights"
STREAMS = ("departures", "hourly_delays")
INTERVALS = 5
TIMEOUT_SECONDS = 900
_ENDED = {"success", "failed"}

_PROJECT = f"""\
[project]
name = "flights-demo"
home = "sluice"
streams = ["{REPOSITORY}/include/streams"]
path = ["{REPOSITORY}"]

[spark]
master = "local[2]"
"""


def main() -> int:
    """Run the demo; 0 when all tables are exactly what DuckDB computes from the original data."""
    began = time.monotonic()
    # Being told to end must end Airflow too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    (WORK / "sluice.toml").write_text(_PROJECT)
    shutil.copytree(REPOSITORY / "include" / "expectations", WORK / "include" / "expectations")
    with Standalone(WORK / "airflow", REPOSITORY / "dags", WORK) as airflow:
        _say(began, f"Airflow is starting at {airflow.url} (user admin, password {airflow.password})")
        files = land_flights(LANDING)
        _say(began, f"landed {files} daily files, one of them twice, and that of {BAD_DAY} half broken")
        airflow.wait_until_healthy()
        _say(began, "Airflow is up; the DAG runs five quarters, the last one without any flight")
        states, stopped = _follow(airflow, began)
    _say(began, "Airflow is stopped")
    is_right = _report(states, stopped)
    _say(began, "exactly once, as DuckDB says" if is_right else "WRONG: see above")
    return 0 if is_right else 1


def _follow(airflow: Standalone, began: float) -> tuple[dict[str, str], Stopped | None]:
    """Show every batch as it is committed, and wait for the last DAG run.

    On the way, one driver is killed, and the batch that the gate stops is let through.
    """
    project = find_project(str(WORK))
    homes = {name: project.stream_home(project.stream(name)) for name in STREAMS}
    shown: set[tuple[str, str, int]] = set()
    told: dict[str, str] = {}
    killed = False
    stopped: Stopped | None = None

    def step() -> dict[str, str] | None:
        nonlocal killed, stopped
        for name, home in homes.items():
            _show_batches(name, home, shown, began)
        if not killed and sum(1 for stream, _, _ in shown if stream == "departures") >= 6:
            killed = _kill_driver(homes["departures"], began)
        found = _task_states(airflow)
        for task, state in found.items():
            if told.get(task) != state and state in {"success", "failed", "skipped", "up_for_retry"}:
                _say(began, f"Airflow: {task} is {state}")
                told[task] = state
        runs = _runs(airflow)
        failed = next((run["dag_run_id"] for run in runs if run["state"] == "failed"), None)
        if failed is not None and stopped is None:
            stopped = release_bad_day(
                airflow, DAG_ID, failed, project=project, landing=LANDING, say=partial(_say, began)
            )
            return None if stopped is not None else found
        if failed is not None or (len(runs) == INTERVALS and all(run["state"] in _ENDED for run in runs)):
            return found
        return None

    states = dict(airflow.wait_for(step, f"{INTERVALS} DAG runs", TIMEOUT_SECONDS))
    return states, stopped


def _show_batches(name: str, home: StreamHome, shown: set[tuple[str, str, int]], began: float) -> None:
    for record in RunRecords(home).newest(3):
        for batch in record.batches:
            if (name, record.run_id, batch.batch_id) not in shown:
                shown.add((name, record.run_id, batch.batch_id))
                _say(began, f"{name}: {describe_batch(batch)}")


def _kill_driver(home: StreamHome, began: float) -> bool:
    batch_id = kill_in_mid_batch(home)
    if batch_id is not None:
        _say(began, f"departures: killed the driver with SIGKILL in the middle of batch {batch_id}; Airflow retries")
    return batch_id is not None


def _runs(airflow: Standalone) -> list[dict[str, Any]]:
    try:
        return list(airflow.api("GET", f"/dags/{DAG_ID}/dagRuns?order_by=run_after")["dag_runs"])
    except OSError:
        # The DAG is not parsed yet.
        return []


def _task_states(airflow: Standalone) -> dict[str, str]:
    states = {}
    for run in _runs(airflow):
        answer = airflow.api("GET", f"/dags/{DAG_ID}/dagRuns/{run['dag_run_id']}/taskInstances")
        for task in answer["task_instances"]:
            quarter = (run["data_interval_start"] or "")[:10]
            states[f"{task['task_id']} of the quarter from {quarter}"] = task["state"] or "none"
    return states


def _report(states: dict[str, str], stopped: Stopped | None) -> bool:
    project = find_project(str(WORK))
    homes = {name: project.stream_home(project.stream(name)) for name in STREAMS}
    print()
    for name, home in homes.items():
        records = list(RunRecords(home).newest(100))[::-1]
        columns = ("run", "until", "tries", "status", "batches", "rows in", "rows out", "watermark", "quality")
        print_table(name, columns, [_row(record) for record in records])
        checked = home.checked()
        if checked is not None:
            print(f"{name}: skipped without a JVM: {checked.reason}")
    print_table("Airflow", ("task", "state"), list(states.items()))
    watermark = inspect_stream(project.stream("hourly_delays"), homes["hourly_delays"], system_clock())["watermark"]
    is_right = _compare(str(watermark)) and stopped is not None and stopped.is_right
    return is_right and all(state in {"success", "skipped"} for state in states.values())


def _row(record: RunRecord) -> tuple[Any, ...]:
    return (
        record.run_id,
        record.until.date() if record.until else f"version {record.to_version}",
        record.tries,
        record.status,
        ", ".join(str(batch.batch_id) for batch in record.batches),
        f"{sum(batch.input_rows or 0 for batch in record.batches):,}",
        f"{sum(batch.output_rows or 0 for batch in record.batches):,}",
        record.batches[-1].watermark if record.batches else None,
        _verdict(record.quality) if record.quality else None,
    )


def _verdict(quality: QualityRecord) -> str:
    return quality.verdict + (f", released by {quality.released_by}" if quality.released_by else "")


def _compare(watermark: str) -> bool:
    with zipfile.ZipFile(flights_archive()) as archive:
        original = Path(archive.extract("flights.csv", WORK))
    results = compare(original, WORK / "data" / "lake", watermark)
    rows = [(name, f"{found:,}", missing, extra) for name, found, missing, extra in results]
    print_table(
        f"Against DuckDB on the original CSV (hours that ended by {watermark})",
        ("table", "rows", "missing", "too many"),
        rows,
    )
    return all(found > 0 and missing == extra == 0 for _, found, missing, extra in results)


def _say(began: float, text: str) -> None:
    print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    leave_with(main)
