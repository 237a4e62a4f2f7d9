"""Which run key a task takes: one that no other run bears, nor one of an earlier life of its DAG run.

A DAG run may be made again under its name: after it was deleted, or its DAG, or all of Airflow's database. The keys of
its tasks are those of before then, and the records that are kept under them are no tries of these tasks. What a task
notes goes with its DAG run. So a record is a try of a task if the task has noted its key, which it does before it looks
for a record; or if the driver of a task before it has done that run, in this life of the DAG run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sluice_airflow.noted_runs import NotedRuns, key_of_try, note_runs, runs_of_try, told_runs
from sluice_airflow.run_keys import RunKey, parse_run_key

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.runs.driver import Drivers
    from sluice.runs.record import RunRecord, RunRecords
    from sluice.runs.summary import RecordedInterval


@dataclass(frozen=True)
class TakenKey:
    """The key of a task's run."""

    key: RunKey
    first: int
    """The generation with which this life of the DAG run has begun."""

    def earlier(self, records: RunRecords) -> list[RunRecord]:
        """What bears the keys before it, newest first: of the task before it was cleared, and of earlier lives."""
        keys = (replace(self.key, generation=generation) for generation in reversed(range(self.key.generation)))
        found = (records.find(str(key)) for key in keys)
        return [record for record in found if record is not None]

    def is_of_this_life(self, record: RunRecord) -> bool:
        """Whether one of those is of this life of the DAG run."""
        key = parse_run_key(record.run_key)
        return key is not None and key.generation >= self.first


def take_key(
    context: Context,
    records: RunRecords,
    *,
    project: str,
    retries: int,
    interval: RecordedInterval | None,
    before: Iterable[str],
) -> TakenKey:
    """Take the key of a task's run, and note it: a retry takes the same.

    A DAG run that a backfill has taken over has been the live stream's before. Its task may have the first key even so:
    Airflow counts no clear before its first try, while the run may have been done by the task before it.

    Args:
        context: The task's.
        records: The records of its stream's runs.
        project: The folder of `sluice.toml`.
        retries: How often the task may be retried.
        interval: What its run recomputes; None for a run of the live stream.
        before: The tasks before it.

    Raises:
        RefusedError: A record is damaged.
    """
    noted, key = runs_of_try(context), key_of_try(context, retries)
    first = 0 if noted is None else noted.first
    is_noted = noted is not None and noted.generation == key.generation
    while (found := records.find(str(key))) is not None:
        is_own = is_noted or found.run_id in told_runs(context, before)
        if is_own and found.interval == interval:
            break
        key, is_noted = replace(key, generation=key.generation + 1), False
        first = first if is_own else key.generation
    if noted is None or noted.generation != key.generation:
        note_runs(context, NotedRuns(project, {}, generation=key.generation, first=first))
    return TakenKey(key, first)


def free_key(records: RunRecords, drivers: Drivers, key: RunKey, now: datetime) -> RunKey:
    """The first key from one on that no run bears which was begun; for who has noted nothing yet, and begins first.

    Args:
        records: The records of the stream's runs.
        drivers: Their drivers.
        key: The key.
        now: The time.

    Raises:
        RefusedError: A record is damaged.
    """
    while (found := records.find(str(key))) is not None and (found.tries > 0 or drivers.is_running(found, now)):
        key = replace(key, generation=key.generation + 1)
    return key
