"""The events of a run, by its record alone: told twice, they are the same."""

from __future__ import annotations

from openlineage.client.event_v2 import RunEvent, RunState
from openlineage.client.facet_v2 import nominal_time_run

from sluice.lineage.jobs import StreamJob, error_facet, run_facet
from sluice.lineage.quality_facets import checks_facet
from sluice.lineage.run_datasets import inputs_of, outputs_of
from sluice.runs.record import RunRecord
from sluice.times import iso_time

_STATES = {
    "running": RunState.START,
    "succeeded": RunState.COMPLETE,
    "failed": RunState.FAIL,
    "refused": RunState.FAIL,
    "stopped": RunState.ABORT,
}
"""What is told of a run by its status; of one that is only planned, and of one that had nothing to do, nothing is."""


def run_events(job: StreamJob, record: RunRecord) -> tuple[RunEvent, ...]:
    """What is to be told of a run now that its record says this; one that ends without having begun, begins first."""
    state = _STATES.get(record.status)
    if state is None:
        return ()
    began_at = record.started_at or iso_time(record.planned_at)
    if state is RunState.START:
        return (_event(job, record, state, began_at),)
    ended = _event(job, record, state, record.ended_at or began_at)
    if record.started_at is not None:
        return (ended,)
    return _event(job, record, RunState.START, began_at), ended


def _event(job: StreamJob, record: RunRecord, state: RunState, at: str) -> RunEvent:
    is_over = state is not RunState.START
    error = record.error.message if is_over and record.error is not None else None
    interval = record.interval
    nominal = None
    if interval is not None:
        nominal = nominal_time_run.NominalTimeRunFacet(iso_time(interval.start), iso_time(interval.end))
    return job.event(
        state,
        at,
        job.id_of(record),
        {
            "sluice": run_facet(record),
            "nominalTime": nominal,
            "errorMessage": error_facet(error),
            "test": checks_facet(record.quality if is_over else None),
        },
        inputs=inputs_of(job.stream, record),
        outputs=outputs_of(job.stream, record),
        is_endless=record.trigger is not None,
    )
