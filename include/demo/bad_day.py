"""The day that fails the suite: what a person sees at the gate, and what they do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demo.landing import BAD_DAY, land_correction
from demo.standalone import USER, Standalone
from sluice.gate.state import read_gate, release_gate
from sluice.project import Project
from sluice.runs.record import RunRecords, describe_quality
from sluice.times import system_clock

STREAM = "departures"


@dataclass(frozen=True)
class Stopped:
    """A batch that the gate has stopped, as it was found then."""

    batch_id: int
    failed: str
    is_published: bool
    """Whether the table holds it in spite of that."""
    asset_events: int
    """How many events Airflow has of the run whose task failed."""

    @property
    def is_right(self) -> bool:
        """Whether nothing went out."""
        return not self.is_published and not self.asset_events


def release_bad_day(
    airflow: Standalone, dag_id: str, run_id: str, *, project: Project, landing: Path, say: Callable[[str], None]
) -> Stopped | None:
    """Look at the gate; when it is shut, let the batch through, have the day delivered anew, and clear the task.

    The broken rows go to the quarantine all the same: the release is for the rest of the batch.

    Args:
        airflow: Where the DAG runs.
        dag_id: The DAG, which Airflow has paused because a run failed.
        run_id: The run that failed.
        project: The project of the stream.
        landing: Where the corrected file is delivered.
        say: Tells what happens.

    Returns:
        What the gate has stopped; None when it is not shut.
    """
    stream = project.stream(STREAM)
    home = project.stream_home(stream)
    gate = read_gate(home)
    if gate is None or gate.state != "blocked" or gate.batch_id is None:
        return None
    record = RunRecords(home).read(gate.run_id)
    query_id = record.query_id if record is not None else None
    in_sink = stream.sink.state(query_id, storage=home.storage).last_batch if query_id else None
    events = airflow.api("GET", f"/assets/events?source_dag_id={dag_id}&source_run_id={run_id}")
    stopped = Stopped(
        gate.batch_id, gate.failed, in_sink is not None and in_sink >= gate.batch_id, int(events["total_entries"])
    )
    say(f"{STREAM}: the gate is shut: {gate.failed}")
    if record is not None and record.quality is not None:
        say(f"{STREAM}: {describe_quality(record.quality)}")
    say(f"{STREAM}: the table ends with batch {in_sink}, batch {gate.batch_id} is not published, {_events(stopped)}")
    release_gate(home, USER, system_clock())
    say(f"{USER}: lets batch {gate.batch_id} through; its broken rows stay in the quarantine")
    say(f"{USER}: has {BAD_DAY} delivered anew, as {land_correction(landing).name}")
    airflow.api(
        "POST",
        f"/dags/{dag_id}/clearTaskInstances",
        {"dry_run": False, "dag_run_id": run_id, "only_failed": True, "task_ids": [STREAM], "include_downstream": True},
    )
    airflow.api("PATCH", f"/dags/{dag_id}", {"is_paused": False})
    say(f"{USER}: clears the task, and lets the DAG go on")
    return stopped


def _events(stopped: Stopped) -> str:
    return f"{stopped.asset_events or 'no'} asset event" + ("s" if stopped.asset_events > 1 else "")
