"""The events of what is done with a stream's tables apart from its runs: audits, and releases of quarantined rows."""

from __future__ import annotations

from dataclasses import replace

from openlineage.client.event_v2 import InputDataset, RunEvent, RunState

from sluice.lineage.jobs import SluiceRunFacet, StreamJob, error_facet
from sluice.lineage.quality_facets import assertions_facet, checks_facet, input_metrics_facet
from sluice.lineage.run_datasets import read_dataset, written_dataset
from sluice.lineage.table_work import TableWork
from sluice.times import iso_time


def table_event(job: StreamJob, work: TableWork) -> RunEvent:
    """What is to be told of it now."""
    job = replace(job, part=work.kind)
    over = RunState.COMPLETE if work.error is None else RunState.FAIL
    state = RunState.START if work.ended_at is None else over
    verdict = work.quality.verdict if work.quality is not None else None
    return job.event(
        state,
        iso_time(work.ended_at or work.began_at),
        job.run_id(work.began_at, work.work_id),
        {
            "sluice": SluiceRunFacet(runId=work.work_id, stream=job.stream.name, gate=verdict),
            "errorMessage": error_facet(work.error),
            "test": checks_facet(work.quality),
        },
        inputs=[_read(work)],
        outputs=[] if work.writes is None else [written_dataset(work.writes, work.rows)],
    )


def _read(work: TableWork) -> InputDataset:
    found = read_dataset(work.reads, work.quality.columns if work.quality is not None else None)
    if work.quality is not None:
        found.inputFacets = {
            "dataQualityAssertions": assertions_facet(work.quality),
            "dataQualityMetrics": input_metrics_facet(work.quality),
        }
    return found
