"""Whatever part of Airflow ends while it runs a stream: every row once, one driver at a time, and none left behind."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from faulty_airflow import FaultyAirflow, counting_drivers, drivers
from numbers_project import STREAM, Numbers, make_numbers

from tests.campaign import CAMPAIGN, in_campaigns

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

PARTS = ["worker", "supervisor", "scheduler", "triggerer", "api_server"]
SIGNALS = ["SIGTERM", "SIGKILL", "SIGSTOP"]
MOMENTS = ["planning", "running", "deferred"]
ALL = [
    (part, name, moment)
    for part in PARTS
    for name in SIGNALS
    for moment in MOMENTS
    if not (moment == "deferred" and part in {"worker", "supervisor"})  # a deferred task has neither
]
FEW = [
    ("worker", "SIGKILL", "planning"),
    ("supervisor", "SIGKILL", "running"),
    ("triggerer", "SIGKILL", "deferred"),
]
CELLS = ALL if CAMPAIGN else FEW


@pytest.fixture(scope="module")
def airflow(airflow_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyAirflow]:
    """An Airflow that runs for all of these tests."""
    root = tmp_path_factory.mktemp("airflow")
    (root / "dags").mkdir()
    with FaultyAirflow(root / "home", root / "dags", root, tables=airflow_tables) as started:
        started.wait_until_healthy()
        yield started


@pytest.mark.parametrize(("part", "name", "moment"), CELLS)
def test_a_part_of_airflow_ends(airflow: FaultyAirflow, tmp_path: Path, part: str, name: str, moment: str) -> None:
    dag_id = f"{part}_{name}_{moment}".lower()
    # A task is deferred once its driver has been at work for 30 s: three batches of two tasks with four rows or more.
    numbers = make_numbers(tmp_path, delay_ms=3000 if moment == "deferred" else 150)
    numbers.arrive(6)
    _add_dag(airflow, dag_id, numbers, deferrable=moment != "running")
    if moment == "planning":
        (numbers.root / "slow").touch()

    with counting_drivers(numbers.root) as most:
        run_id = _start(airflow, dag_id, numbers, moment)
        victim = airflow.wait_for(lambda: airflow.pid(part, airflow.task(dag_id, run_id)), f"the {part}", 30)
        os.kill(victim, signal.Signals[name])
        (numbers.root / "slow").unlink(missing_ok=True)
        airflow.mend(part, victim, signal.Signals[name])
        airflow.wait_until_healthy()
        airflow.wait_for(lambda: _state(airflow, dag_id, run_id) in {"success", "failed"}, "the end", 240)

    assert _state(airflow, dag_id, run_id) == "success"
    assert numbers.rows() == list(range(numbers.arrived))
    assert most() == 1
    deadline = time.monotonic() + 10
    while drivers(numbers.root):
        assert time.monotonic() < deadline, "a driver is left"
        time.sleep(0.1)


MARKS = [(moment, marked) for moment in ("running", "untriggered", "deferred") for marked in ("task", "run")]
"""When a person marks, and what: `untriggered` is after the deferral and before any trigger is at work."""


@pytest.mark.parametrize(("moment", "marked"), MARKS if CAMPAIGN else [("untriggered", "run")])
def test_what_is_marked_as_failed_ends_its_driver(
    airflow: FaultyAirflow, tmp_path: Path, moment: str, marked: str
) -> None:
    """The run is stopped in the middle of a batch, which a cleared task finishes: every row is there once."""
    dag_id = f"marked_{marked}_{moment}"
    numbers = make_numbers(tmp_path, delay_ms=30_000)
    numbers.arrive(1)
    _add_dag(airflow, dag_id, numbers, deferrable=moment != "running")
    with airflow.standing_still("triggerer") if moment == "untriggered" else nullcontext():
        run_id = _start(airflow, dag_id, numbers, moment)
        if marked == "run":
            airflow.api("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}", {"state": "failed"})
        else:
            airflow.api("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{STREAM}", {"new_state": "failed"})
        airflow.wait_for(lambda: not drivers(numbers.root), "the end of the driver", 25)

    (record,) = numbers.records()
    assert record.status == "stopped"
    assert "Airflow: the task was" in record.error.message
    assert (numbers.checkpoint / "offsets" / "0").exists()
    assert not (numbers.checkpoint / "commits" / "0").exists()
    if not CAMPAIGN:
        return

    numbers.delay(0)
    _clear(airflow, dag_id, run_id)
    airflow.wait_for(lambda: _state(airflow, dag_id, run_id) == "success", "the cleared task", 120)
    assert numbers.rows() == list(range(numbers.arrived))
    assert [found.plan.verdict for found in numbers.records()] == ["resume", "run"]


@in_campaigns
def test_a_second_dag_of_a_stream_waits_for_the_first(airflow: FaultyAirflow, tmp_path: Path) -> None:
    """Deferred, without a driver of its own, and without using up a try; then it takes what came meanwhile."""
    numbers = make_numbers(tmp_path, delay_ms=15_000)
    numbers.arrive(1)
    for dag_id in ("first_of_two", "second_of_two"):
        airflow.add_dag(dag_id, numbers, deferrable=True)
        airflow.wait_for(lambda dag_id=dag_id: _is_known(airflow, dag_id), f"the DAG {dag_id}", 60)
    with counting_drivers(numbers.root) as most:
        first = _start(airflow, "first_of_two", numbers, "deferred")
        numbers.arrive(1)
        second = str(airflow.api("POST", "/dags/second_of_two/dagRuns", {"logical_date": None})["dag_run_id"])
        airflow.wait_for(lambda: airflow.task("second_of_two", second)["state"] == "deferred", "the second", 60)
        assert _state(airflow, "first_of_two", first) == "running"
        numbers.delay(0)
        ends = {"success", "failed"}
        airflow.wait_for(lambda: _state(airflow, "second_of_two", second) in ends, "the end of the second", 180)

    assert _state(airflow, "first_of_two", first) == _state(airflow, "second_of_two", second) == "success"
    assert airflow.task("second_of_two", second)["try_number"] == 1
    assert numbers.rows() == list(range(numbers.arrived))
    assert most() == 1


@in_campaigns
def test_clearing_a_running_task_ends_its_driver_and_goes_on(airflow: FaultyAirflow, tmp_path: Path) -> None:
    """Airflow counts it as a retry, which finds a driver that was asked to end: the second try does the rest."""
    dag_id = "cleared_running"
    numbers = make_numbers(tmp_path, delay_ms=15_000)
    numbers.arrive(1)
    _add_dag(airflow, dag_id, numbers, deferrable=False)
    with counting_drivers(numbers.root) as most:
        run_id = _start(airflow, dag_id, numbers, "running")
        planned = numbers.arrived
        numbers.arrive(1)
        _clear(airflow, dag_id, run_id)
        airflow.wait_for(lambda: numbers.records()[-1].status == "stopped", "the end of the driver", 60)
        numbers.delay(0)
        airflow.wait_for(lambda: _state(airflow, dag_id, run_id) in {"success", "failed"}, "the cleared task", 120)

    assert _state(airflow, dag_id, run_id) == "success"
    assert airflow.task(dag_id, run_id)["try_number"] == 2
    assert numbers.rows() == list(range(planned))
    assert most() == 1


@in_campaigns
@pytest.mark.parametrize("moment", ["untriggered", "deferred"])
def test_clearing_a_deferred_task_ends_its_driver_and_goes_on(
    airflow: FaultyAirflow, tmp_path: Path, moment: str
) -> None:
    """Its trigger does, or where none is at work yet, the next try before it plans."""
    dag_id = f"cleared_{moment}"
    numbers = make_numbers(tmp_path, delay_ms=30_000)
    numbers.arrive(1)
    _add_dag(airflow, dag_id, numbers, deferrable=True)
    with counting_drivers(numbers.root) as most:
        with airflow.standing_still("triggerer") if moment == "untriggered" else nullcontext():
            run_id = _start(airflow, dag_id, numbers, moment)
            numbers.delay(0)
            _clear(airflow, dag_id, run_id)
            airflow.wait_for(lambda: numbers.records()[-1].status == "stopped", "the end of the driver", 60)
        airflow.wait_for(lambda: _state(airflow, dag_id, run_id) in {"success", "failed"}, "the cleared task", 120)

    assert _state(airflow, dag_id, run_id) == "success"
    assert numbers.rows() == list(range(numbers.arrived))
    assert most() == 1


@in_campaigns
def test_a_task_that_is_cleared_at_once_in_a_paused_dag(airflow: FaultyAirflow, tmp_path: Path) -> None:
    """Nobody tells the driver, so it ends by itself; the next try finds nothing left to do."""
    dag_id = "cleared_paused"
    numbers = make_numbers(tmp_path, delay_ms=10_000)
    numbers.arrive(1)
    _add_dag(airflow, dag_id, numbers, deferrable=True)
    with counting_drivers(numbers.root) as most:
        with airflow.standing_still("triggerer"):
            run_id = _start(airflow, dag_id, numbers, "untriggered")
            airflow.api("PATCH", f"/dags/{dag_id}?update_mask=is_paused", {"is_paused": True})
            _clear(airflow, dag_id, run_id)
            airflow.wait_for(lambda: not drivers(numbers.root), "the end of the driver", 120)
        assert [record.status for record in numbers.records()] == ["succeeded"]
        airflow.api("PATCH", f"/dags/{dag_id}?update_mask=is_paused", {"is_paused": False})
        airflow.wait_for(lambda: _state(airflow, dag_id, run_id) in {"success", "failed"}, "the cleared task", 120)

    assert _state(airflow, dag_id, run_id) == "success"
    assert airflow.task(dag_id, run_id)["state"] == "skipped"
    assert numbers.rows() == list(range(numbers.arrived))
    assert most() == 1


@in_campaigns
def test_pausing_a_dag_lets_its_run_end(airflow: FaultyAirflow, tmp_path: Path) -> None:
    """The driver finishes what is planned; the task hears of it once the DAG goes on, and starts no other."""
    dag_id = "paused"
    numbers = make_numbers(tmp_path, delay_ms=3_000)
    numbers.arrive(2)
    _add_dag(airflow, dag_id, numbers, deferrable=True)
    with counting_drivers(numbers.root) as most:
        run_id = _start(airflow, dag_id, numbers, "deferred")
        airflow.api("PATCH", f"/dags/{dag_id}?update_mask=is_paused", {"is_paused": True})
        planned = numbers.arrived
        numbers.arrive(1)
        airflow.wait_for(lambda: not drivers(numbers.root), "the end of the driver", 60)
        airflow.wait_for(lambda: airflow.task(dag_id, run_id)["state"] == "scheduled", "the trigger's event", 30)
        assert _state(airflow, dag_id, run_id) == "running"

        airflow.api("PATCH", f"/dags/{dag_id}?update_mask=is_paused", {"is_paused": False})
        airflow.wait_for(lambda: _state(airflow, dag_id, run_id) in {"success", "failed"}, "the end", 120)

    assert _state(airflow, dag_id, run_id) == "success"
    assert [record.status for record in numbers.records()] == ["succeeded"]
    assert numbers.rows() == list(range(planned))
    assert most() == 1


def _add_dag(airflow: FaultyAirflow, dag_id: str, numbers: Numbers, *, deferrable: bool) -> None:
    airflow.add_dag(dag_id, numbers, deferrable=deferrable)
    airflow.wait_for(lambda: _is_known(airflow, dag_id), f"the DAG {dag_id}", 60)


def _start(airflow: FaultyAirflow, dag_id: str, numbers: Numbers, moment: str) -> str:
    """Start a run and wait until it is at a moment; gives its id."""
    run_id = str(airflow.api("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"])
    airflow.wait_for(lambda: _is_at(airflow, dag_id, run_id, numbers, moment), f"{dag_id} at {moment}", 120)
    return run_id


def _clear(airflow: FaultyAirflow, dag_id: str, run_id: str) -> None:
    clear = {"dry_run": False, "dag_run_id": run_id, "task_ids": [STREAM], "only_failed": False, "reset_dag_runs": True}
    airflow.api("POST", f"/dags/{dag_id}/clearTaskInstances", clear)


def _is_known(airflow: FaultyAirflow, dag_id: str) -> bool:
    dags = airflow.api("GET", "/dags?limit=100")["dags"]
    return any(dag["dag_id"] == dag_id and not dag["is_paused"] for dag in dags)


def _is_at(airflow: FaultyAirflow, dag_id: str, run_id: str, numbers: Numbers, moment: str) -> bool:
    task = airflow.task(dag_id, run_id)
    if moment == "planning":
        return bool(task["state"] == "running")
    is_at_work = (numbers.checkpoint / "offsets" / "0").exists()
    if moment == "untriggered":
        return is_at_work and task["state"] == "deferred"
    if moment == "deferred":
        # From the log that the trigger writes when it begins: before that, nobody tells it of a mark.
        logs = airflow.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}"
        is_at_work = is_at_work and any(logs.rglob("*.log.trigger.*"))
    return is_at_work and task["state"] == {"running": "running", "deferred": "deferred"}[moment]


def _state(airflow: FaultyAirflow, dag_id: str, run_id: str) -> str:
    return str(airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])
