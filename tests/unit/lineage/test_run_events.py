"""The events of runs, made of records as they are on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openlineage.client.serde import Serde

from sluice import Stream, sinks, sources
from sluice.interval import Interval
from sluice.lineage.jobs import StreamJob
from sluice.lineage.run_events import run_events
from sluice.lineage.settings import LineageSettings, Parent
from sluice.plan_document import DownstreamDocument, PlanDocument, SliceDocument
from sluice.runs.record import BackfillRecord, RunRecord
from sluice.runs.recorded_columns import ColumnOrigin, RecordedColumns, ResultColumn
from sluice.runs.summary import RecordedInterval
from sluice.trigger import LiveTrigger
from tests.builders import put
from tests.lineage_server import check_event
from tests.unit.lineage.records import (
    ERROR,
    JOINED,
    LATER,
    QUALITY,
    batch,
    make_job,
    make_record,
    planned,
    taken,
)

UUID = "01a2190e-9322-75e2-a43f-5f099be5f183"


def told(job: StreamJob, record: RunRecord) -> list[dict[str, Any]]:
    """The events of a record as they are sent, each of them right."""
    events = [json.loads(Serde.to_json(event)) for event in run_events(job, record)]
    for event in events:
        check_event(event)
    return events


def only(job: StreamJob, record: RunRecord) -> dict[str, Any]:
    (event,) = told(job, record)
    return event


@pytest.mark.parametrize(
    ("status", "state", "at"),
    [
        ("running", "START", "2026-01-31T12:00:01.000Z"),
        ("succeeded", "COMPLETE", "2026-01-31T12:00:09.000Z"),
        ("failed", "FAIL", "2026-01-31T12:00:09.000Z"),
        ("refused", "FAIL", "2026-01-31T12:00:09.000Z"),
        ("stopped", "ABORT", "2026-01-31T12:00:09.000Z"),
    ],
)
def test_what_becomes_of_a_run(status: Any, state: str, at: str) -> None:
    """Each status of a record that says that something has happened."""
    event = only(make_job(), make_record(status=status))

    assert (event["eventType"], event["eventTime"]) == (state, at)
    assert (event["job"]["namespace"], event["job"]["name"]) == ("shop", "shop.visits")
    assert [(found["namespace"], found["name"]) for found in event["inputs"]] == [("file", "/in")]
    assert [(found["namespace"], found["name"]) for found in event["outputs"]] == [("file", "/out")]


@pytest.mark.parametrize("status", ["planned", "skipped"])
def test_what_has_not_happened_is_not_told(status: Any) -> None:
    """A plan, and a run that had nothing to do."""
    assert told(make_job(), make_record(status=status)) == []


def test_a_run_that_is_refused_begins_before_it_ends() -> None:
    """Who counts runs has to see both; it begins when it was planned."""
    record = make_record(status="refused", started_at=None, batches=(), error=ERROR)

    start, fail = told(make_job(), record)

    assert (start["eventType"], start["eventTime"]) == ("START", "2026-01-31T12:00:00.000Z")
    assert fail["eventType"] == "FAIL"
    assert start["run"]["runId"] == fail["run"]["runId"]
    assert "errorMessage" not in start["run"]["facets"]
    assert fail["run"]["facets"]["errorMessage"]["message"] == "Spark failed"


def test_the_id_is_the_same_for_every_try() -> None:
    """A retry finds the record by its run key; where that is lost, the plan's time and the key are the same."""
    job = make_job()
    first = make_record(run_key="dag/task/1", status="failed", error=ERROR)
    retry = msgspec.structs.replace(first, tries=2, status="succeeded", error=None, started_at="2026-01-31T13:00:00Z")

    ids = [only(job, record)["run"]["runId"] for record in (first, retry, first)]

    assert len(set(ids)) == 1
    assert ids[0] == "019c13ec-9e00-79d9-86b3-2c10b02cb6d7"
    others = [
        make_record(run_key="dag/task/2"),
        make_record(run_key="dag/task/1", generation=2),
        make_record(run_key="dag/task/1", planned_at=LATER),
        make_record(run_key=None),
        make_record(run_key=None, run_id="20260131T120000000Z-00000002"),
    ]
    assert len({only(job, record)["run"]["runId"] for record in (first, *others)}) == len(others) + 1


def test_told_twice_it_is_the_same() -> None:
    """A driver may die after its record is closed; the retry tells again."""
    record = make_record(quality=QUALITY)
    assert told(make_job(), record) == told(make_job(), msgspec.convert(msgspec.to_builtins(record), RunRecord))


def test_whose_run_it_is() -> None:
    """A task of Airflow's and its DAG run; without a root, the task is it."""
    parent, root = Parent("airflow", "dag.task", UUID), Parent("airflow", "dag", UUID)

    facet = only(make_job(settings=LineageSettings("lake", parent, root)), make_record())["run"]["facets"]["parent"]
    alone = only(make_job(settings=LineageSettings("lake", parent)), make_record())

    assert facet["job"] == {"namespace": "airflow", "name": "dag.task", "facets": {}}
    assert (facet["run"]["runId"], facet["root"]["job"]["name"]) == (UUID, "dag")
    assert alone["run"]["facets"]["parent"]["root"]["job"]["name"] == "dag.task"
    assert alone["job"]["namespace"] == "lake"
    assert (
        "parent" not in only(make_job(settings=LineageSettings("lake", parent)).without_parent(), make_record())["run"]
    )


def test_how_much_was_read_and_written() -> None:
    """Files and bytes are the plan's, rows are Spark's."""
    plan = PlanDocument(batches=(planned(0, visits=taken(2)), planned(1, visits=taken(1)), planned(2, visits=taken(9))))
    record = make_record(plan=plan, batches=(batch(0), batch(1, quarantined_rows=1)), status="stopped")

    event = only(make_job(), record)

    read = event["inputs"][0]["inputFacets"]["inputStatistics"]
    assert (read["fileCount"], read["size"], read["rowCount"]) == (3, 30, 6)
    written, aside = event["outputs"]
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert written["facets"]["version"]["datasetVersion"] == "1"
    assert (aside["name"], aside["outputFacets"]["outputStatistics"]["rowCount"]) == ("/out_quarantine", 1)


def test_what_is_not_known_is_not_told() -> None:
    """A retry has the plan of what was left; a drain has none; at the start nothing was read."""
    retried = make_record(plan=PlanDocument(batches=(planned(1, visits=taken()),)), batches=(batch(0), batch(1)))
    drained = make_record(plan=PlanDocument(strategy="drain"), batches=(batch(0, input_rows=None, output_rows=None),))

    read = only(make_job(), retried)["inputs"][0]["inputFacets"]["inputStatistics"]

    assert (read["rowCount"], "fileCount" in read, "size" in read) == (6, False, False)
    event = only(make_job(), drained)
    assert (event["inputs"][0]["inputFacets"], event["outputs"][0]["outputFacets"]) == ({}, {})
    event = only(make_job(), make_record(status="running", batches=()))
    assert (event["inputs"][0]["inputFacets"], event["outputs"][0]["outputFacets"]) == ({}, {})


def test_every_run_in_complete_mode_writes_all_anew() -> None:
    """What was written are the rows of the last batch."""
    stream = Stream(**{**vars(make_job().stream), "output_mode": "complete"})
    record = make_record(batches=(batch(0, output_rows=5), batch(1, output_rows=7)))

    assert only(make_job(stream), record)["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 7


def test_several_sources_and_a_query() -> None:
    """Spark counts their rows together; versions and topics are the offsets' own, the query is the declaration's."""
    version = {"reservoirId": "x", "reservoirVersion": 4, "index": -1}
    sources_ = {"a": taken(files=2, end=version), "b": taken(files=None, rows=None, end={"b": {"0": 9}})}
    record = make_record(plan=PlanDocument(batches=(planned(**sources_),)), stream="joined")

    event = only(make_job(JOINED), record)

    a, b = event["inputs"]
    assert (a["facets"]["version"]["datasetVersion"], a["inputFacets"]["inputStatistics"]["rowCount"]) == ("3", 3)
    assert (b["namespace"], b["name"], b["inputFacets"]) == ("kafka://broker:9092", "b", {})
    assert event["job"]["facets"]["sql"]["query"] == JOINED.sql
    assert event["job"]["facets"]["sql"]["dialect"] == "spark"


def test_two_sources_that_read_the_same_are_one_input() -> None:
    """An input has a name once; of whose rows they are, nothing is told."""
    twice = Stream(
        name="twice",
        sources={name: sources.files("/in", format="text") for name in ("a", "b")},
        transform="jobs:twice",
        sink=sinks.console(),
    )
    record = make_record(plan=PlanDocument(batches=(planned(a=taken(), b=taken()),)))

    event = only(make_job(twice), record)

    assert [(found["name"], found["inputFacets"]) for found in event["inputs"]] == [("/in", {})]
    assert event["outputs"] == []


def test_columns() -> None:
    """Of which columns each is made, and which ones decide on rows; types as Spark has them."""
    origin = ColumnOrigin("a", "id")
    columns = RecordedColumns(
        result=(
            ResultColumn(name="id", type="bigint", origins=(origin,), is_same=True),
            ResultColumn(name="sum", type="double", origins=(ColumnOrigin("b", "value"), origin)),
            ResultColumn(name="now", type="timestamp"),
        ),
        sources={"a": {"id": "bigint"}, "b": {"value": "binary"}},
        rows_by={"join": (origin, ColumnOrigin("b", "value"))},
        tables={"/static": 12},
    )
    record = make_record(stream="joined", columns=columns, plan=PlanDocument())

    event = only(make_job(JOINED), record)

    assert [found["name"] for found in event["inputs"]] == ["/a", "b", "/static"]
    assert event["inputs"][2]["facets"]["version"]["datasetVersion"] == "12"
    assert event["inputs"][1]["facets"]["schema"]["fields"][0]["name"] == "value"
    facets = event["outputs"][0]["facets"]
    assert [(one["name"], one["type"]) for one in facets["schema"]["fields"]] == [
        ("id", "bigint"),
        ("sum", "double"),
        ("now", "timestamp"),
    ]
    lineage = facets["columnLineage"]
    assert lineage["fields"].keys() == {"id", "sum"}
    assert _fields(lineage["fields"]["id"]["inputFields"]) == [("/a", "id", "DIRECT", "IDENTITY")]
    assert _fields(lineage["fields"]["sum"]["inputFields"]) == [
        ("b", "value", "DIRECT", "TRANSFORMATION"),
        ("/a", "id", "DIRECT", "TRANSFORMATION"),
    ]
    assert _fields(lineage["dataset"]) == [("/a", "id", "INDIRECT", "JOIN"), ("b", "value", "INDIRECT", "JOIN")]


def _fields(fields: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [
        (one["name"], one["field"], one["transformations"][0]["type"], one["transformations"][0]["subtype"])
        for one in fields
    ]


def test_what_a_suite_has_found() -> None:
    """Each check with its outcome, and numbers of columns; a value of a row is nobody's business."""
    event = only(make_job(), make_record(quality=QUALITY))

    facets, test = event["outputs"][0]["facets"], event["run"]["facets"]["test"]
    found = [
        (one["assertion"], one["column"], one["success"], one["severity"], one.get("actual"))
        for one in facets["dataQualityAssertions"]["assertions"]
    ]
    assert found == [
        ("expect_column_values_to_not_be_null", "id", True, "error", "0"),
        ("expect_column_max_to_be_between", "id", False, "warn", None),
        ("expect_column_max_to_be_between", "name", False, "warn", None),
    ]
    assert [(one["name"], one["status"]) for one in test["tests"]] == [
        ("1", "pass"),
        ("expect_column_max_to_be_between", "fail"),
        ("expect_column_max_to_be_between", "fail"),
    ]
    metrics = facets["dataQualityMetrics"]
    assert metrics["rowCount"] == 3
    assert metrics["columnMetrics"]["id"]["nullCount"] == 0
    assert "max" not in metrics["columnMetrics"]["id"]
    assert "a value of a row" not in json.dumps(event)
    assert event["run"]["facets"]["sluice"]["gate"] == "warn"


def test_a_backfill() -> None:
    """It is a run of the stream's job with an interval; what it reads and replaces stands in its own plan."""
    interval = Interval.parse("2026-01-01", "2026-01-02")
    plan = PlanDocument(
        sources={"visits": SliceDocument(files=4, size_bytes=40, rows=None)},
        downstream=(DownstreamDocument(stream="next"),),
    )
    record = make_record(
        plan=plan,
        batches=(),
        interval=RecordedInterval(interval.start, interval.end),
        backfill=BackfillRecord(attempt=0, version=3, sink_version=5, rows_written=8),
    )

    event = only(make_job(), record)

    nominal = event["run"]["facets"]["nominalTime"]
    assert (nominal["nominalStartTime"], nominal["nominalEndTime"]) == (
        "2026-01-01T00:00:00.000Z",
        "2026-01-02T00:00:00.000Z",
    )
    assert event["inputs"][0]["inputFacets"]["inputStatistics"]["fileCount"] == 4
    written = event["outputs"][0]
    assert written["facets"]["version"]["datasetVersion"] == "5"
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 8
    assert event["job"]["name"] == "shop.visits"


def test_the_tables_beside_a_sink_are_written_as_well() -> None:
    """Those of the deletes of a table of changes."""
    changed = sinks.delta("/out", changes=sinks.changes(keys=["id"], sequence_by="at"))
    stream = Stream(**{**vars(make_job().stream), "sink": changed, "output_mode": "append"})

    event = only(make_job(stream), make_record())

    assert [found["name"] for found in event["outputs"]] == ["/out", "/out_tombstones"]


def test_what_kind_of_job_it_is() -> None:
    """A live run's query is kept at work; every other one ends by itself."""
    live = LiveTrigger(kind="processing-time", interval_ms=1000, run_for_ms=60_000)

    kinds = [
        only(make_job(), record)["job"]["facets"]["jobType"] for record in (make_record(), make_record(trigger=live))
    ]

    assert [(one["processingType"], one["integration"], one["jobType"]) for one in kinds] == [
        ("BATCH", "SLUICE", "STREAM"),
        ("STREAMING", "SLUICE", "STREAM"),
    ]


def test_a_query_in_a_file_is_told_by_its_text(tmp_path: Path) -> None:
    """Where the file is gone by then, nothing else is missing."""
    stream = Stream(
        name="visits",
        sources={"visits": sources.files("/in", format="text")},
        sql="queries/visits.sql",
        sink=sinks.console(),
    )
    job = make_job(stream, root=str(tmp_path))
    assert "sql" not in only(job, make_record())["job"]["facets"]

    put(tmp_path / "queries" / "visits.sql", "select * from stream(visits)")

    assert only(job, make_record())["job"]["facets"]["sql"]["query"] == "select * from stream(visits)"
