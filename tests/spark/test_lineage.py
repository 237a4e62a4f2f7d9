"""Lineage of real runs: what a server hears of files, tables, columns and checks, whatever becomes of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.auditing.return_rows import return_rows
from sluice.auditing.table_audit import TableAuditRequest, audit_table
from sluice.errors import BatchFailedError, QualityFailedError, RefusedError
from sluice.interval import Interval
from sluice.lineage.sending import lineage_sent
from sluice.redaction import remember_secrets
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from tests.lineage_server import LineageServer, forget_lineage, lineage_server, states
from tests.spark.lab import Lab, write_files
from tests.unit.quality.suites import document, row

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SCHEMA = "id bigint, name string, at timestamp"
CANARY = "correct-horse-battery"
DAY = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def days(clicks: DataFrame) -> DataFrame:
    wrong = F.when(F.col("id") == -1, F.raise_error(F.lit(f"password={CANARY}"))).otherwise(F.col("id"))
    return clicks.select(wrong.alias("id"), F.upper("name").alias("name"), F.to_date("at").alias("day"))


CLICKS = Stream(
    name="clicks",
    sources={"clicks": sources.files("land", format="json", schema=SCHEMA, max_files_per_batch=1)},
    transform=f"{__name__}:days",
    sink=sinks.delta("out", partition_by=["day"]),
    interval_column="day",
    quality="suite.json",
)
COUNTS = Stream(
    name="counts",
    sources={"days": sources.delta("out")},
    sql="select day, count(*) as n from stream(days) group by day",
    sink=sinks.delta("counts"),
    output_mode="complete",
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lab: Lab) -> Iterator[LineageServer]:
    forget_lineage(monkeypatch, tmp_path)
    most = row("expect_column_values_to_be_between", policy="quarantine", column="id", max_value=5)
    (lab.root / "suite.json").write_bytes(
        document(most, row("expect_column_max_to_be_between", policy="fail", column="id", max_value=90))
    )
    with lineage_server() as found:
        monkeypatch.setenv("OPENLINEAGE_URL", found.url)
        yield found


def land(lab: Lab, number: int, *ids: int) -> None:
    lines = (json.dumps({"id": id_, "name": f"n{id_}", "at": "2026-01-01T10:00:00Z"}) for id_ in ids)
    write_files(lab.root / "land", {f"{number:04d}.json": "\n".join(lines)}, first=number)


def ends(server: LineageServer, job: str = "lab.clicks") -> list[dict[str, Any]]:
    """The last event of each run of a job."""
    return list({event["run"]["runId"]: event for event in server.told.of(job)}.values())


def rows(dataset: dict[str, Any], kind: str = "output") -> int | None:
    count: int | None = dataset[f"{kind}Facets"].get(f"{kind}Statistics", {}).get("rowCount")
    return count


def test_from_files_through_a_table_to_another(lab: Lab, server: LineageServer) -> None:
    """What one stream writes is what the next reads, under one name; a run without anything new is not told."""
    land(lab, 0, 1, 2, 7)
    land(lab, 1, 3)

    record = lab.run(CLICKS)
    lab.run(COUNTS)
    assert lab.run(CLICKS).status == "skipped"

    start, complete = server.told.of("lab.clicks")
    assert states([start, complete]) == ["START", "COMPLETE"]
    read, (out, aside) = complete["inputs"][0], complete["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(lab.root / "land"))
    assert {**read["inputFacets"]["inputStatistics"], "_producer": "", "_schemaURL": ""} == {
        "rowCount": 4,
        "fileCount": 2,
        "size": sum(file.stat().st_size for file in (lab.root / "land").iterdir()),
        "_producer": "",
        "_schemaURL": "",
    }
    assert [(one["name"], one["type"]) for one in out["facets"]["schema"]["fields"]] == [
        ("id", "bigint"),
        ("name", "string"),
        ("day", "date"),
    ]
    made = out["facets"]["columnLineage"]["fields"]
    assert {name: [one["field"] for one in found["inputFields"]] for name, found in made.items()} == {
        "id": ["id"],
        "name": ["name"],
        "day": ["at"],
    }
    assert (rows(out), out["facets"]["version"]["datasetVersion"]) == (3, str(record.batches[-1].sink_version))
    assert (aside["name"], rows(aside)) == (str(lab.root / "out_quarantine"), 1)
    checks = out["facets"]["dataQualityAssertions"]["assertions"]
    # The largest is a value that some row has.
    found = [(one["column"], one["success"], one.get("actual")) for one in checks]
    assert found == [("id", False, "1"), ("id", True, None)]
    assert complete["run"]["facets"]["processing_engine"]["name"] == "spark"
    counted = ends(server, "lab.counts")[0]
    assert (counted["inputs"][0]["namespace"], counted["inputs"][0]["name"]) == (out["namespace"], out["name"])
    assert counted["inputs"][0]["facets"]["version"] == out["facets"]["version"]
    assert counted["job"]["facets"]["sql"]["query"] == COUNTS.sql
    assert rows(counted["outputs"][0]) == 1


def test_a_run_that_fails_is_finished_by_its_retry(lab: Lab, server: LineageServer) -> None:
    """One run for OpenLineage as for Sluice; why it failed is told without what is secret in it."""
    remember_secrets([CANARY])
    land(lab, 0, 1)
    land(lab, 1, -1)
    with pytest.raises(BatchFailedError):
        lab.run(CLICKS, run_key="daily")
    land(lab, 1, 2)

    lab.run(CLICKS, run_key="daily")
    lab.run(CLICKS, run_key="daily")

    events = server.told.of("lab.clicks")
    assert states(events) == ["START", "FAIL", "START", "COMPLETE", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert events[3] == events[4]
    assert (rows(events[1]["outputs"][0]), rows(events[3]["outputs"][0])) == (1, 2)
    assert "Spark failed" in events[1]["run"]["facets"]["errorMessage"]["message"]
    assert CANARY not in json.dumps(events)


def test_what_a_gate_and_a_plan_stop(lab: Lab, server: LineageServer) -> None:
    """A suite that fails, and a checkpoint that is damaged: both are failures, and say why; one that stops is not."""
    land(lab, 0, 1)
    land(lab, 1, 99)
    lab.run(CLICKS, stop_after=1)
    with pytest.raises(QualityFailedError):
        lab.run(CLICKS)
    for commit in (lab.checkpoint(CLICKS) / "commits").glob("*"):
        commit.unlink()
    with pytest.raises(RefusedError):
        lab.run(CLICKS)

    stopped, failed, refused = ends(server)

    assert states([stopped, failed, refused]) == ["ABORT", "FAIL", "FAIL"]
    assert rows(stopped["outputs"][0]) == 1
    checks = failed["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert [one["success"] for one in checks] == [False, False]
    assert failed["run"]["facets"]["sluice"]["gate"] == "fail"
    assert "errorMessage" in refused["run"]["facets"]
    assert states(server.told.of("lab.clicks"))[-2:] == ["START", "FAIL"]


def test_backfills_releases_and_audits(lab: Lab, server: LineageServer) -> None:
    """A backfill is a run of the stream, of an interval; the other two are jobs beside it."""
    land(lab, 0, 1, 7)
    lab.run(CLICKS)
    resolved = lab.project.resolve(CLICKS)
    request = TableAuditRequest(resolved)

    record = backfill_stream(lab.project, BackfillRequest(resolved, DAY), session=lab.spark)
    audit = audit_table(lab.project, request, session=lab.spark)
    (lab.root / "suite.json").write_bytes(document())
    with lineage_sent():
        return_rows(lab.project, resolved, None, "ada", session=lab.spark)

    backfill = server.told.of("lab.clicks")[-1]
    assert states(server.told.of("lab.clicks")) == ["START", "COMPLETE"] * 2
    assert backfill["run"]["facets"]["nominalTime"]["nominalEndTime"] == "2026-01-02T00:00:00.000Z"
    assert record.backfill is not None
    assert rows(backfill["outputs"][0]) == record.backfill.rows_written == 1
    assert backfill["inputs"][0]["inputFacets"]["inputStatistics"]["fileCount"] == 1
    begun, audited = server.told.of("lab.clicks.audit")
    assert states([begun, audited]) == ["START", "COMPLETE"]
    assert audited["inputs"][0]["facets"]["version"]["datasetVersion"] == str(audit.version)
    assert len(audited["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]) == 2
    released = server.told.of("lab.clicks.release")[-1]
    assert [found["name"] for found in released["inputs"]] == [str(lab.root / "out_quarantine")]
    assert (released["outputs"][0]["name"], rows(released["outputs"][0])) == (str(lab.root / "out"), 1)


def test_a_server_that_is_away_and_none(
    lab: Lab, server: LineageServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows are there, and the log says once what is lost. Who tells nobody does not pay for columns, either."""
    away = {"type": "http", "url": "http://127.0.0.1:1", "retry": {"total": 0}}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(away))
    land(lab, 0, 1)

    told = lab.run(CLICKS)

    assert told.status == "succeeded"
    assert told.columns is not None
    (said,) = [found.getMessage() for found in caplog.records if found.name.startswith("sluice.lineage")]
    assert said.startswith("lineage: 2 of the events could not be sent")
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    land(lab, 1, 2)
    assert lab.run(CLICKS).columns is None
    assert server.told.events == []
    assert lab.table("out").count() == 2
