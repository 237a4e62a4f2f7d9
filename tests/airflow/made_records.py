"""Records of runs as drivers leave them, and the events that are made of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow.sdk.execution_time.context import OutletEventAccessors

from sluice import Stream
from sluice.home import StreamHome
from sluice.plan_document import BatchDocument, PlanDocument
from sluice.runs.record import BatchRecord, RunRecord, RunRecords
from sluice.storage import Storage
from sluice_airflow import assets
from tests.builders import NOW, QUERY_ID


def emitted(stream: Stream, run: RunRecord, home: Path) -> OutletEventAccessors:
    events = OutletEventAccessors()
    context: Any = {"outlet_events": events}
    assets.emit_events(context, stream, run, home=StreamHome(str(home), Storage()))
    return events


def plan_of(batches: Iterable[int]) -> PlanDocument:
    return PlanDocument(batches=tuple(BatchDocument(batch_id=batch_id) for batch_id in batches))


def live_run(number: int, status: str, batches: dict[int, int | None], **changes: Any) -> RunRecord:
    """A run that is the `number`-th by time, with the versions of the sink that its batches made."""
    values: dict[str, Any] = {
        "run_id": f"20260131T1200{number:02d}000Z-0f1e2d3c",
        "stream": "visits",
        "generation": 1,
        "query_id": QUERY_ID,
        "planned_at": NOW,
        "plan": plan_of(batches),
        "status": status,
        "batches": tuple(
            BatchRecord(batch_id=n, kind="data", input_rows=1, output_rows=1, watermark=None, sink_version=version)
            for n, version in batches.items()
        ),
    }
    return RunRecord(**values | changes)


def kept(home: Path, *runs: RunRecord) -> RunRecord:
    """Save records; gives the last one."""
    records = RunRecords(StreamHome(str(home), Storage()))
    for run in runs:
        records.save(run)
    return runs[-1]
