"""Records of runs, and the job that they are told of as."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sluice import Stream, sinks, sources
from sluice.lineage.jobs import StreamJob
from sluice.lineage.settings import LineageSettings
from sluice.plan_document import BatchDocument, PlanDocument, RangeDocument
from sluice.project import Project
from sluice.runs.record import BatchRecord, CheckRecord, QualityRecord, RecordedError, RunRecord
from tests.builders import NOW

STREAM = Stream(
    name="visits",
    sources={"visits": sources.files("/in", format="json", schema="id bigint")},
    transform="jobs:visits",
    sink=sinks.delta("/out"),
)
JOINED = Stream(
    name="joined",
    sources={"a": sources.delta("/a"), "b": sources.kafka("broker:9092", topics=["b"])},
    sql="select * from stream(a) join stream(b) using (id)",
    sink=sinks.delta("/out"),
)


def make_job(stream: Stream = STREAM, settings: LineageSettings | None = None, *, root: str = "/project") -> StreamJob:
    project = Project(root=root, name="shop", home=f"{root}/home", stream_folders=(), import_roots=())
    return StreamJob(project, stream, settings or LineageSettings())


def batch(batch_id: int = 0, **changes: Any) -> BatchRecord:
    given = {"kind": "data", "input_rows": 3, "output_rows": 2, "watermark": None, "sink_version": batch_id}
    return BatchRecord(batch_id=batch_id, **given | changes)


def planned(batch_id: int = 0, **sources: RangeDocument) -> BatchDocument:
    return BatchDocument(batch_id=batch_id, kind="data", sources=sources)


def taken(files: int | None = 1, rows: int | None = 3, end: Any = 1) -> RangeDocument:
    return RangeDocument(start=0, end=end, files=files, size_bytes=None if files is None else 10 * files, rows=rows)


def make_record(**changes: Any) -> RunRecord:
    given: dict[str, Any] = {
        "run_id": "20260131T120000000Z-00000001",
        "stream": "visits",
        "generation": 1,
        "planned_at": NOW,
        "plan": PlanDocument(reason="1 new file", strategy="exact", batches=(planned(visits=taken()),)),
        "status": "succeeded",
        "started_at": "2026-01-31T12:00:01.000Z",
        "ended_at": "2026-01-31T12:00:09.000Z",
        "batches": (batch(),),
    }
    return RunRecord(**given | changes)


QUALITY = QualityRecord(
    verdict="warn",
    rows=3,
    checks=(
        CheckRecord(
            id="1",
            type="expect_column_values_to_not_be_null",
            kwargs={"column": "id"},
            policy="fail",
            success=True,
            result={"element_count": 3, "unexpected_count": 0, "partial_unexpected_list": ["a value of a row"]},
        ),
        CheckRecord(
            type="expect_column_max_to_be_between",
            kwargs={"column": "id", "max_value": 5},
            policy="warn",
            result={"observed_value": 7},
        ),
        CheckRecord(
            type="expect_column_max_to_be_between",
            kwargs={"column": "name", "max_value": "x"},
            policy="warn",
            result={"observed_value": "a value of a row"},
        ),
    ),
)
ERROR = RecordedError(type="BatchFailedError", message="Spark failed")
LATER = NOW + timedelta(hours=1)
