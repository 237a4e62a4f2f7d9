"""A whole Airflow, parts of which are ended while it runs a stream; and how many drivers there are meanwhile."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numbers_project import STREAM, Numbers

from demo.standalone import Standalone

QUICK = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "12",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "2",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
}
"""Airflow notices in seconds what it would notice in minutes."""
STOPPED_SECONDS = 20.0
"""How long a stopped process stands still: longer than Airflow waits for a heartbeat."""
_PATIENCE_SECONDS = 60.0
"""How long a component may take to end before it is killed."""
_DAG = """
from datetime import datetime, timedelta, timezone
from sluice_airflow.stream_dag import stream_dag
dag = stream_dag(
    "{stream}", dag_id="{dag_id}", project="{project}", schedule=None, max_active_tasks=4,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    default_args={{"retries": 4, "retry_delay": timedelta(seconds=1), "deferrable": {deferrable}}},
)
"""
_SLOW_TO_LOAD = """
import os as _os, time as _time
if _os.path.exists("{marker}"):
    _time.sleep(5)
"""


@dataclass
class FaultyAirflow(Standalone):
    """An Airflow that notices faults soon."""

    environment: dict[str, str] = field(default_factory=lambda: dict(QUICK))
    _groups: list[int] = field(default_factory=list)
    """The process groups of every component that was ever started: a killed scheduler leaves its workers behind."""

    def start_component(self, component: str) -> None:
        super().start_component(component)
        self._groups.append(self._processes[component].pid)

    def stop(self) -> None:
        super().stop()
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def add_dag(self, dag_id: str, numbers: Numbers, *, deferrable: bool) -> None:
        """Write the DAG of a project; its declarations load slowly while the file `slow` is there."""
        declaration = numbers.root / "streams" / f"{STREAM}.py"
        declaration.write_text(declaration.read_text() + _SLOW_TO_LOAD.format(marker=numbers.root / "slow"))
        text = _DAG.format(stream=STREAM, dag_id=dag_id, project=numbers.root, deferrable=deferrable)
        (self.dags / f"{dag_id}.py").write_text(text)

    def task(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """The task instance of the stream."""
        found = self.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")
        return dict(found["task_instances"][0])

    def pid(self, part: str, task: dict[str, Any]) -> int | None:
        """The process of a part of Airflow; `worker` and `supervisor` are those of a task."""
        if part in self._processes:
            return self._processes[part].pid
        title = {"worker": "airflow worker -- ", "supervisor": "airflow worker -- LocalExecutor: "}[part] + task["id"]
        return next((pid for pid, words in processes() if words.strip() == title), None)

    def mend(self, part: str, pid: int, signal_number: int) -> None:
        """Do what a service manager does: start what has ended, and what stands still goes on after a while."""
        if signal_number == signal.SIGSTOP:
            time.sleep(STOPPED_SECONDS)
            os.kill(pid, signal.SIGCONT)
        elif part in self._processes:
            try:
                self._processes[part].wait(timeout=_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                # An executor may wait for an idle worker that never hears of the end.
                os.killpg(pid, signal.SIGKILL)
                self._processes[part].wait(timeout=10)
            self.start_component(part)

    @contextmanager
    def standing_still(self, component: str) -> Iterator[None]:
        """While this lasts, a component does nothing."""
        pid = self._processes[component].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def processes() -> Iterator[tuple[int, str]]:
    """Every process with its words."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue


def drivers(project: Path) -> set[int]:
    """The processes that run a stream of a project; what one is about to start looks like itself for a moment."""
    found = {
        pid
        for pid, words in processes()
        if "/running/submit.py " in words and f"--project {project} " in words and "/java " not in words[:200]
    }
    return {pid for pid in found if (parent := _parent(pid)) is not None and parent not in found}


def _parent(pid: int) -> int | None:
    """None when the process has ended meanwhile, as the helpers do that a JVM starts."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None


@contextmanager
def counting_drivers(project: Path) -> Iterator[Callable[[], int]]:
    """While this lasts, look for drivers; gives what tells the most that there were at once."""
    ended = threading.Event()
    most = 0

    def count() -> None:
        nonlocal most
        while not ended.wait(0.1):
            most = max(most, len(drivers(project)))

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield lambda: most
    finally:
        ended.set()
        thread.join()
