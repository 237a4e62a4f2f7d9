"""What pages show of what was read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.amounts import Waiting
from sluice.errors import Problem
from sluice.home import Checked, Generation, SourceLine
from sluice.interval import Interval
from sluice.monitoring.inspection import SourceLag
from sluice.plan import Judging, Plan
from sluice.plan_document import PlanDocument
from sluice.planning.backfill import BackfillPlan, Downstream
from sluice.quality.expectations import EXPECTATIONS
from sluice.quality.report import Hold
from sluice.quality.report_page import report_page
from sluice.runs.lease import LeaseFile, Process
from sluice.runs.record import (
    BackfillRecord,
    BatchRecord,
    LiveRecord,
    QualityRecord,
    RecordedError,
    RecordedPhase,
    RunRecord,
)
from sluice.runs.stop import StopRequest
from sluice.runs.summary import RecordedInterval, RunLine, Status
from sluice.sources.contract import Slice
from sluice.sources.delta.table_slice import TableSlice
from sluice.times import iso_time
from sluice.trigger import LiveTrigger
from sluice.watermarks import InputWatermark, WatermarkOutlook, Watermarks
from sluice_airflow.ui import wording
from sluice_airflow.ui.next_run import NextRun
from sluice_airflow.ui.quality_view import newest_report, report_on
from sluice_airflow.ui.reading import LeaseOwner, LoggedBatch, RunFile
from sluice_airflow.ui.rows import run_line
from sluice_airflow.ui.run_view import RunPage, run_page
from sluice_airflow.ui.stream_view import PartitionRow, StreamPage, stream_page
from sluice_airflow.ui.streams_view import StreamRow, StreamsPage, is_found, part_of, stream_row, streams_page
from tests.builders import NOW, NOW_MS, QUERY_ID, make_stream
from tests.unit.runs.test_record import make_record

RUN_ID = "20260131T110000000Z-0123abcd"
JANUARY = RecordedInterval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
PLAN = Plan("visits", 1, "run", "`visits`: 2 new files", "exact")
BATCH = BatchRecord(
    batch_id=7,
    kind="data",
    input_rows=500,
    output_rows=480,
    watermark=iso_time(NOW - timedelta(hours=2)),
    duration_ms={"addBatch": 1500, "triggerExecution": 2000},
    malformed_rows={"visits": 3, "others": 0},
    unread_files={"visits": 1},
    sink_version=12,
)


TAKEN = Problem("LEASE_TAKEN", "leases/1.json", "it is being run", "wait", "wait for it", is_blocking=False)


def make_run(**changes: Any) -> RunFile:
    """A run of one batch of two that were planned."""
    planned = [
        {"batch_id": number, "kind": "data", "timestamp": iso_time(NOW),
         "sources": {"visits": {"start": None, "end": {"logOffset": number}, "files": 2, "bytes": 5000, "rows": None}}}
        for number in (7, 8)
    ]  # fmt: skip
    record: dict[str, Any] = {
        "run_id": RUN_ID,
        "stream": "visits",
        "generation": 1,
        "run_key": "web/scheduled__1/visits/-1/0",
        "planned_at": NOW - timedelta(hours=1),
        "plan": msgspec.convert(
            {"verdict": "run", "reason": "`visits`: 4 new files", "strategy": "exact", "batches": planned},
            PlanDocument,
        ),
        "status": "succeeded",
        "started_at": iso_time(NOW - timedelta(minutes=59)),
        "ended_at": iso_time(NOW - timedelta(minutes=58)),
        "batches": (BATCH,),
    }
    record |= changes
    return RunFile(
        RUN_ID, RunRecord(**record | {"quality": msgspec.convert(record.get("quality"), QualityRecord | None)})
    )


def make_next_run(**changes: Any) -> NextRun:
    """A stream that has something to do."""
    lags = {"visits": SourceLag({"files": 2, "bytes": 2_500_000}, NOW_MS - 600_000)}
    known: dict[str, Any] = {
        "looked_at": NOW,
        "generation": 1,
        "plan": PLAN,
        "lags": lags,
        "watermark_ms": NOW_MS - 7_200_000,
    }
    return NextRun(**known | changes)


def make_page(**changes: Any) -> StreamPage:
    """The page of a stream that ran once."""
    next_run = changes.get("next_run", make_next_run())
    row = row_of("visits", [make_run()], next_run, NOW)
    lines = (SourceLine("visits", "0"),)
    known: dict[str, Any] = {
        "runs": [make_run()],
        "next_run": next_run,
        "batches": [],
        "generations": [Generation(generation=1, query_id=QUERY_ID, created_at=iso_time(NOW), lines=lines)],
        "lease": None,
        "skip": None,
        "hold": None,
        "errors": [],
        "now": NOW,
    }
    return stream_page(make_stream(), row, **known | changes)


def show(
    run: RunFile, *, stop: StopRequest | None = None, owner: LeaseOwner | None = None, hidden: str = ""
) -> RunPage:
    """The page of a run, for a user from whom one stream may be hidden."""
    return run_page("visits", run, stop, NOW, owner=owner, is_visible=lambda name: name != hidden)


@pytest.mark.parametrize(("published", "tones"), [(6, []), (5, ["bad"])])
def test_the_balance_of_a_run(published: int, tones: list[str]) -> None:
    """Every run that has read rows tells where they went; rows that are missing are told first, as what is wrong."""
    batch = BatchRecord(
        batch_id=4, kind="data", input_rows=7, output_rows=published, watermark=None, dropped_rows=1, unmatched_rows=0
    )
    record = make_record("20260131T120000000Z-0f1e2d3c", batches=(batch,))
    page = show(RunFile(record.run_id, record, None))
    told = next(fact.value for fact in page.facts if fact.name == "balance")
    assert told.startswith(f"7 rows read {'=' if published == 6 else chr(0x2260)} {published} published")
    assert [problem.tone for problem in page.problems if problem.code == "ROWS_NOT_IN_BALANCE"] == tones

    row = row_of("visits", [RunFile(record.run_id, record, None)], make_next_run(), NOW)
    assert row.last_run is not None
    assert [badge.tone for badge in (page.row.balance, row.last_run.balance) if badge] == 2 * tones


def make_backfill(**changes: Any) -> RunFile:
    """A backfill of January that has replaced the rows, at its second attempt."""
    plan = BackfillPlan(
        stream="visits",
        generation=2,
        interval=Interval(JANUARY.start, JANUARY.end),
        verdict="run",
        reason="`visits`: 3 files",
        version=7,
        batch_id=4,
        watermark_ms=NOW_MS,
        slices={
            "visits": Slice(end='{"logOffset":4}', amount={"files": 3, "bytes": 9000}),
            "lake": TableSlice(None, version=12),
        },
        downstream=(Downstream("daily", skips_changes=True), Downstream("totals", skips_changes=False)),
    )
    done = BackfillRecord(attempt=1, version=8, sink_version=9, rows_replaced=None, rows_written=1200, late_rows=31)
    known: dict[str, Any] = {"plan": plan.document, "interval": JANUARY, "backfill": done, "batches": ()}
    return make_run(**known | changes)


def row_of(name: str, runs: list[RunFile], *arguments: Any, **fields: Any) -> StreamRow:
    """A stream in a line, from whole records."""
    return stream_row(name, [run_line(run) for run in runs], *arguments, **fields)


def page_of(rows: list[StreamRow]) -> StreamsPage:
    """The page of these streams."""
    return streams_page(rows, part_of({row.name: () for row in rows}, search="", number=1, length=50), [])


def verdict(row: StreamRow) -> tuple[str, str]:
    return row.verdict.text, row.verdict.tone


def test_a_stream_in_a_line() -> None:
    """What the next run would do, what waits for it, and how the last ones went."""
    row = row_of("visits", [make_run()], make_next_run(), NOW)

    assert verdict(row) == ("run", "info")
    assert (row.lag, row.lag_remark) == ("2 files, 2.5 MB", "oldest 10 min ago")
    assert (row.watermark, row.watermark_remark) == ("2026-01-31 10:00:00", "2 h behind")
    assert row.last_run is not None
    assert (row.last_run.status.text, row.last_run.took, row.last_run.batches) == ("succeeded", "1 min", "1 of 2")
    assert row.runs.bars[0].label == f"{RUN_ID}: succeeded, 500 rows, 1 min"
    assert row.quality is None


def test_a_stream_that_is_being_planned() -> None:
    """Its runs are shown already."""
    row = row_of("visits", [make_run()], None, NOW)

    assert verdict(row) == ("planning", "none")
    assert row.is_pending
    assert row.last_run is not None
    assert row.lag == wording.NONE


@pytest.mark.parametrize(("is_taken", "expected"), [(True, "running"), (False, "run")])
def test_a_run_that_goes_on_is_no_plan(*, is_taken: bool, expected: str) -> None:
    """In the middle of a run the checkpoint looks unfinished; unless the driver is gone, that is as it should be."""
    run = make_run(status="running", ended_at=None)
    row = row_of("visits", [run], make_next_run(taken=TAKEN if is_taken else None), NOW)

    assert row.verdict.text == expected
    assert ("driver of the last run is gone" in row.reason) != is_taken
    assert row.running is not None


def test_an_error_takes_the_place_of_a_plan() -> None:
    """And comes first in the list, before what refuses, before what runs."""
    broken = row_of("a", [], make_next_run(plan=None, error="the home is damaged"), NOW)
    refused = row_of("b", [], make_next_run(plan=Plan("b", 1, "refuse", "no", "exact")), NOW)
    fine = row_of("c", [], make_next_run(), NOW)

    page = page_of([fine, refused, broken])

    assert [row.name for row in page.rows] == ["a", "b", "c"]
    assert broken.error == "the home is damaged"
    assert [(count.text, count.tone) for count in page.counts] == [
        ("1 error", "bad"),
        ("1 refuse", "bad"),
        ("1 run", "info"),
    ]


def test_a_stream_that_hangs_says_so() -> None:
    """In its own row, and no page is loaded again and again for it."""
    row = row_of("visits", [make_run()], make_next_run(plan=None, lags={}, hangs_for=61.0), NOW)

    assert verdict(row) == ("no answer", "warn")
    assert "for 1 min" in row.reason
    assert not row.is_pending


def line(status: Status, **changes: Any) -> RunLine:
    """A run in a line."""
    return RunLine(run_id=RUN_ID, status=status, planned_at=NOW, **changes)


def test_streams_that_need_somebody_are_on_the_first_page() -> None:
    """By the last run of the live stream that has ended; then by name."""
    runs: dict[str, list[RunLine]] = {
        "a": [line("succeeded")],
        "b": [line("succeeded", interval=JANUARY), line("running"), line("failed")],
        "c": [],
        "d": [line("stopped")],
        "e": [line("succeeded", verdict="fail")],
        "f": [RunLine(run_id=RUN_ID, error="damaged")],
        "g": [line("succeeded"), line("refused")],
        "h": [line("succeeded", is_unbalanced=True)],
    }
    pages = [part_of(runs, search="", number=number, length=3) for number in (1, 2, 3)]

    assert [page.names for page in pages] == [("b", "e", "f"), ("h", "d", "a"), ("c", "g")]
    assert [(page.first, page.last, page.total, page.pages) for page in pages] == [
        (1, 3, 8, 3), (4, 6, 8, 3), (7, 8, 8, 3)
    ]  # fmt: skip


@pytest.mark.parametrize(("asked", "given"), [(-5, 1), (0, 1), (4, 3), (10**30, 3)])
def test_a_page_that_is_not_there_is_the_nearest(asked: int, given: int) -> None:
    """An address may say anything; one stream less may leave a page without streams."""
    runs: dict[str, list[RunLine]] = {str(number): [] for number in range(7)}

    assert part_of(runs, search="", number=asked, length=3).number == given


def test_no_stream_makes_one_empty_page() -> None:
    """As of a search that finds nothing."""
    part = part_of({}, search="x", number=2, length=3)

    assert (part.names, part.first, part.last, part.total, part.number, part.pages) == ((), 0, 0, 0, 1, 1)


@pytest.mark.parametrize(
    ("search", "expected"),
    [("", True), ("FLIGHT", True), ("lake flight", True), ("lake trains", False), ("li gh", True)],
)
def test_a_search_wants_every_word(search: str, *, expected: bool) -> None:
    """Anywhere in what is searched, in upper or lower case."""
    assert is_found(search.split(), ["Flights", "s3://lake/flights"]) is expected


def test_a_source_that_can_not_be_read_has_no_known_lag() -> None:
    """Nothing known is not the same as nothing waiting."""
    unreadable = {"visits": SourceLag({}, unreadable="permission denied")}
    waiting = row_of("a", [], make_next_run(lags=unreadable), NOW)
    nothing = row_of("a", [], make_next_run(lags={"visits": SourceLag({"files": 0, "bytes": 0, "rows": 0})}), NOW)

    assert (waiting.lag, waiting.lag_remark) == ("unknown", "permission denied")
    assert nothing.lag == "nothing"


@pytest.mark.parametrize(
    ("lags", "told"),
    [
        ([SourceLag({}, batches=1)], "1 batch"),
        ([SourceLag({})], "not known"),
        ([SourceLag({"files": 0}), SourceLag({}, batches=2)], "2 batches"),
        ([SourceLag({"files": 3}), SourceLag({}, batches=2), SourceLag({}, batches=1)], "3 files, 3 batches"),
        ([SourceLag({"files": 3}), SourceLag({}, batches=2), SourceLag({})], "3 files, not known"),
    ],
)
def test_what_a_source_does_not_count_is_told_in_batches(lags: list[SourceLag], told: str) -> None:
    """Beside what others count; nobody says that nothing waits."""
    by_name = {f"s{number}": lag for number, lag in enumerate(lags)}
    assert row_of("a", [], make_next_run(lags=by_name), NOW).lag == told


def test_the_partitions_of_a_source() -> None:
    lags = {"visits": SourceLag({"offsets": 1204}, partitions={"t-0": Waiting(3, 1207), "t-1": Waiting(5, 5)})}
    (source,) = make_page(next_run=make_next_run(lags=lags)).sources
    assert source.partitions == (PartitionRow("t-0", "3", "1,207", "1,204"), PartitionRow("t-1", "5", "5", "0"))


def test_files_that_are_set_aside_are_told_beside_what_waits() -> None:
    """A stream that leaves files out does not look healthy."""
    one = row_of("a", [], make_next_run(lags={"visits": SourceLag({"files": 0}, set_aside={"files": 1})}), NOW)
    both = row_of(
        "a",
        [],
        make_next_run(lags={"visits": SourceLag({"files": 1, "bytes": 9}, NOW_MS - 600_000, set_aside={"files": 2})}),
        NOW,
    )

    assert (one.lag, one.lag_remark) == ("nothing", "1 file set aside")
    assert both.lag_remark == "oldest 10 min ago, 2 files set aside"


def test_the_quality_column_is_there_when_records_have_it() -> None:
    """Its newest verdict is shown."""
    checked = row_of("a", [make_run(), make_run(quality={"verdict": "warn"})], make_next_run(), NOW)
    without = row_of("b", [make_run()], make_next_run(), NOW)

    assert checked.quality is not None
    assert (checked.quality.text, checked.quality.tone) == ("warn", "warn")
    assert page_of([checked, without]).has_quality
    assert not page_of([without]).has_quality


def test_planned_and_committed_side_by_side() -> None:
    """A batch that is planned only has no committed offset; what its run measured stands beside it."""
    from sluice.checkpoint.offsets import CommitFile, OffsetFile

    def planned(batch_id: int) -> OffsetFile:
        return OffsetFile(batch_id, 1, 0, NOW_MS, {}, {"0": f'{{"logOffset":{batch_id}}}'})

    batches = [
        LoggedBatch(8, planned(8), None),
        LoggedBatch(7, planned(7), CommitFile(7, 1, NOW_MS)),
        LoggedBatch(6, None, None),
    ]
    rows = make_page(batches=batches).batches

    assert [row.state.text for row in rows] == ["planned", "committed", "gone"]
    assert [(pair.source, pair.planned, pair.committed) for row in rows for pair in row.offsets] == [
        ("visits", "entry 8", wording.NONE),
        ("visits", "entry 7", "entry 7"),
    ]
    assert (rows[1].run_id, rows[1].input_rows, rows[1].rate) == (RUN_ID, "500", "250 rows/s")
    assert rows[1].notes == ("3 malformed rows in visits", "1 file of visits without a row", "table version 12")
    assert (rows[0].run_id, rows[0].input_rows) == ("", wording.NONE)


def test_the_charts_of_a_stream() -> None:
    """Throughput, the backlog that runs found, and how far the watermark was behind the batch's clock."""
    charts = dict(make_page().charts)

    assert charts["Throughput by batch"].top == "250 rows/s"
    assert charts["Backlog found by each run"].top == "4 files, 10.0 kB"
    assert charts["Watermark behind the batch's clock"].top == "2 h"


def test_charts_are_of_the_live_generation() -> None:
    """Batch ids begin anew in every generation: old ones would be told as new."""
    assert make_page(runs=[make_run(generation=3)]).charts == ()


def test_problems_and_skips_of_a_stream() -> None:
    """Each problem with its remedy, and when there was last nothing to do."""
    problem = Problem("OFFSETS_GAP", "f", "gone", "Spark fails", "restore it")
    skip = Checked(checked_at=iso_time(NOW), reason="nothing new", skips=3)
    page = make_page(next_run=make_next_run(problems=(problem,)), skip=skip)

    assert [(found.code, found.remedy, found.tone) for found in page.problems] == [("OFFSETS_GAP", "restore it", "bad")]
    assert ("last skip", "2026-01-31 12:00:00", "nothing new; 3 times since the last run") in [
        (fact.name, fact.value, fact.remark) for fact in page.facts
    ]


def test_the_page_of_a_run() -> None:
    """Its plan with what is done of it, its phases, and the task that asked for it."""
    page = show(make_run(explain="== Physical Plan =="))

    assert (page.done, page.planned, page.is_active) == (1, 2, False)
    assert [(row.batch_id, row.is_done, row.ranges) for row in page.planned_batches] == [
        ("7", True, (("visits", "start", "entry 7", "2 files, 5.0 kB"),)),
        ("8", False, (("visits", "start", "entry 8", "2 files, 5.0 kB"),)),
    ]
    assert page.phases is not None
    assert [share.name for share in page.phases.shares] == ["addBatch", "other"]
    assert page.key is not None
    assert (page.key.dag_id, page.key.task_id) == ("web", "visits")
    assert page.explain == "== Physical Plan =="


def test_where_a_run_is_judged() -> None:
    """Where it was to be judged, how it was measured, and why; a plan without a suite has none."""
    reason = "nothing is published that fails; measured while it is written"
    judging = Judging("s", checks=2, where="publish", measured="observe", rereads=0, reason=reason)
    plan = Plan("visits", 1, "run", "4 new files", "exact", quality=judging)

    facts = {fact.name: (fact.value, fact.remark) for fact in show(make_run(plan=plan.document)).facts}

    assert facts["quality"] == ("judged before it is published, measured on the way", reason)
    assert "quality" not in [fact.name for fact in show(make_run()).facts]


def test_a_run_that_failed() -> None:
    """The whole message, and whether trying again helps."""
    error = RecordedError(type="BatchFailedError", message="Spark failed", retryable=False)
    page = show(make_run(status="failed", error=error))

    assert (page.error_type, page.error) == ("BatchFailedError", "Spark failed")
    assert page.retryable == "A retry can't succeed: somebody must act."


def test_a_run_that_somebody_wants_stopped() -> None:
    """Who, and since when."""
    stop = StopRequest(run_id=RUN_ID, requested_by="anna", requested_at=iso_time(NOW))
    page = show(make_run(status="running", ended_at=None), stop=stop)

    assert page.is_active
    assert page.stop == "anna asked it to stop at 2026-01-31 12:00:00."


@pytest.mark.parametrize(
    ("owner", "state", "said"),
    [(RUN_ID, "taken", ""), (RUN_ID, "expired", "hangs"), (RUN_ID, "dead", "gone"), ("another", "taken", "gone")],
)
def test_the_driver_of_a_run_that_goes_on(owner: str, state: Any, said: str) -> None:
    """A record says `running` for ever if its driver died: the lease tells."""
    process = Process(1, None)
    lease = LeaseFile(token=1, run_id=owner, host="h", machine="m", boot_id="b", processes=(process,),
                      acquired_at=NOW, expires_at=NOW)  # fmt: skip
    running = make_run(status="running", ended_at=None)
    driver = show(running, owner=LeaseOwner(lease, state)).driver

    assert said in driver
    assert bool(driver) == bool(said)
    assert "gone" in show(running).driver
    assert not show(make_run()).driver


def test_the_page_of_a_backfill() -> None:
    """Its interval, what it read and replaced, and whom that concerns, as far as the user may see them."""
    page = show(make_backfill(), hidden="totals")
    facts = {fact.name: (fact.value, fact.remark) for fact in page.facts}

    assert page.row.interval == "2026-01-01 to 2026-02-01"
    assert facts["recomputes"] == ("2026-01-01 to 2026-02-01", "")
    assert facts["reads up to"] == ("batch 4", "of the live stream")
    assert facts["replaces rows of"] == ("version 8", "by one commit of metadata")
    assert facts["made"] == ("version 9", "")
    assert facts["rows"] == (f"{wording.NONE} replaced, 1,200 written", "")
    assert facts["late rows"][0] == "31"
    assert facts["attempt"] == ("2", "")
    assert page.backfill is not None
    assert [(row.source, row.until, row.amount) for row in page.backfill.slices] == [
        ("visits", "entry 4", "3 files, 9.0 kB"), ("lake", "version 12", wording.NONE),
    ]  # fmt: skip
    assert [row.stream for row in page.backfill.downstream] == ["daily"]
    assert "backfill it too" in page.backfill.downstream[0].consequence
    assert page.backfill.hidden_downstream == 1
    assert "is refused" in [row.consequence for row in show(make_backfill()).backfill.downstream][1]


def test_where_the_time_of_a_backfill_went() -> None:
    """Phase by phase; what it did twice counts together, and the last one ends with the run."""
    begun = [("starting Spark", 0), ("writing the rows aside", 8), ("starting again: rows came", 14),
             ("writing the rows aside", 16), ("publishing", 26)]  # fmt: skip
    phases = tuple(RecordedPhase(text, iso_time(NOW + timedelta(seconds=seconds))) for text, seconds in begun)
    ended_at = iso_time(NOW + timedelta(seconds=30))
    page = show(make_backfill(phases=phases, ended_at=ended_at, explain="== Physical Plan =="))

    assert page.explain == "== Physical Plan =="
    assert page.phases is not None
    assert [(share.name, share.seconds) for share in page.phases.shares] == [
        ("starting Spark", 8), ("writing the rows aside", 16), ("starting again", 2), ("publishing", 4),
    ]  # fmt: skip
    (band,) = page.phases.bands
    assert band.total == "30.0 s"
    assert sum(bar.width for bar in band.bars) == pytest.approx(page.phases.width, abs=0.1)
    assert show(make_backfill(phases=(RecordedPhase("starting Spark", "?"),))).phases is None
    assert show(make_backfill()).phases is None


def test_a_backfill_that_has_begun() -> None:
    """What it will replace is known by its plan, what it has replaced is not."""
    facts = {fact.name: fact.value for fact in show(make_backfill(status="running", backfill=None)).facts}

    assert facts["replaces rows of"] == "version 7"
    assert not {"made", "rows", "attempt"} & set(facts)


def test_a_backfill_in_the_lists() -> None:
    """It is marked, and its rows are those that it wrote."""
    row = row_of("visits", [make_backfill()], make_next_run(), NOW)

    assert row.last_run is not None
    assert (row.last_run.batches, row.last_run.rows) == (wording.NONE, "1,200")
    assert row.last_run.interval == "2026-01-01 to 2026-02-01"
    assert row.runs.bars[0].label == f"{RUN_ID}: backfill, succeeded, 1,200 rows, 1 min"
    assert make_page(runs=[make_backfill(generation=1)]).charts == ()


def test_a_backfill_beside_the_live_stream() -> None:
    """That it goes on says nothing of the live stream's driver; a live run that goes on counts."""
    going_on = make_backfill(status="running", ended_at=None, backfill=None)
    live = make_run(status="running", ended_at=None)

    assert row_of("visits", [going_on], make_next_run(), NOW).reason == PLAN.reason
    assert verdict(row_of("visits", [going_on, live], make_next_run(taken=TAKEN), NOW)) == ("running", "info")


def test_the_times_of_an_interval() -> None:
    """Days where they are whole, and whatever a damaged record says."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    assert wording.interval(noon, JANUARY.end) == "2026-01-01 12:00:00 to 2026-02-01 00:00:00"
    before_time = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    assert wording.interval(before_time, JANUARY.end) == f"{wording.NONE} to 2026-02-01 00:00:00"


def test_a_record_that_can_not_be_read() -> None:
    """It has a page all the same, and a line in every list."""
    damaged = RunFile(RUN_ID, error="the file does not parse")
    page = show(damaged)

    assert page.error == "the file does not parse"
    assert row_of("visits", [damaged], make_next_run(), NOW).runs.bars[0].tone == "bad"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "verdict", "checks", "batches", "batch_id", "sources", "start", "end", "rows", "type", "kwargs", "result",
            "policy", "success", "id", "element_count", "unexpected_count", "missing_count", "partial_missing_list",
            "observed_value", "details", "mean", "former_runs", "column", "value_set", "min_value", "max_value",
            "mostly", "row_condition", "message", "retryable", "problem", "reason", "x",
        ]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    plan=st.dictionaries(
        st.sampled_from(["batches", "problem", "warnings", "reason", "sources", "downstream", "version", "x"]), JSON
    ),
    is_backfill=st.booleans(),
    other=JSON,
    error=JSON,
)
def test_no_record_breaks_a_page(plan: dict[str, Any], other: Any, error: Any, *, is_backfill: bool) -> None:
    """A record is only a file: one of another shape than ours is shown as damaged, whatever it is."""
    run = make_backfill() if is_backfill else make_run()
    document = msgspec.to_builtins(run.record) | {"plan": plan, "quality": other, "started_at": None}
    document["error"] = error
    try:
        file = RunFile(RUN_ID, msgspec.json.decode(msgspec.json.encode(document), type=RunRecord))
    except msgspec.ValidationError as exc:
        file = RunFile(RUN_ID, error=str(exc))

    page = make_page(runs=[file])
    assert page.runs[0].run_id == show(file).row.run_id


CHECKS = st.fixed_dictionaries(
    {"type": st.sampled_from([*EXPECTATIONS, "sluice_row_count_against_history", "x"]),
     "success": st.booleans(), "policy": st.text(max_size=5)},
    optional={"kwargs": st.dictionaries(st.sampled_from(["column", "column_A", "column_B", "column_list", "value_set",
              "min_value", "max_value", "mostly", "regex", "type_", "value", "row_condition"]), JSON, max_size=5),
              "result": st.dictionaries(st.sampled_from(["element_count", "unexpected_count", "missing_count",
              "partial_missing_list", "observed_value", "details", "exception"]), JSON, max_size=5)},
)  # fmt: skip


@given(checks=st.lists(CHECKS, max_size=4))
def test_no_check_breaks_a_report(checks: list[dict[str, Any]]) -> None:
    """Whatever a record says of its checks, each gets a sentence, a finding and a trend."""
    report = newest_report("visits", [make_run(quality={"verdict": "warn", "checks": checks})])

    assert report is not None
    assert len(report.checks) == len(checks)
    assert all(check.rule and check.finding and len(check.trend.bars) == 1 for check in report.checks)
    assert report_page(report).endswith("</html>\n")


def test_a_held_stream() -> None:
    """The list and its page say so, with what to do; what was released is no alarm."""
    hold = Hold("failed", RUN_ID, "`expect_column_max_to_be_between` of `id`: 5")
    row = row_of("visits", [make_run()], make_next_run(), NOW, hold=hold)
    page = make_page(hold=hold)
    released = make_page(hold=replace(hold, state="blocked", batch_id=3, released_by="ada"))

    assert row.hold is not None
    assert row.hold.text == "held"
    assert page_of([row]).has_quality
    assert "sluice quality release visits" in page.hold
    assert (page.is_releasable, released.is_releasable) == (True, False)
    assert "let through by `ada`" in released.hold


def test_the_report_on_a_run_has_the_runs_before_it() -> None:
    """Trends end with the run itself, however many came after it."""
    runs = [
        replace(
            make_run(run_id=run_id, quality={"verdict": "pass", "checks": [{"type": "x", "id": "a"}]}), run_id=run_id
        )
        for run_id in (f"20260131T12000{number}000Z-00000000" for number in (3, 2, 1))
    ]

    report = report_on("visits", runs[1], runs)

    assert report is not None
    assert [run.run_id for run in report.runs] == [runs[1].run_id, runs[2].run_id]
    assert report_on("visits", make_run(), runs) is None


def test_each_watermark() -> None:
    """The page of a stream with several watermarks shows each, and which one holds the others back."""
    inputs = (
        InputWatermark(input="a.at", delay_ms=60_000, event_ms=NOW_MS),
        InputWatermark(input="b.at", delay_ms=1000, floor_ms=NOW_MS - 3_600_000, since=7),
    )
    known = Watermarks(query_id=QUERY_ID, measured=7, inputs=inputs)
    plan = replace(PLAN, watermarks=WatermarkOutlook(NOW_MS - 3_600_000, "min", known))
    first, second = make_page(next_run=make_next_run(plan=plan)).watermarks
    assert (first.input, first.watermark, first.newest_event, first.delay) == (
        "a.at",
        wording.moment(NOW - timedelta(minutes=1)),
        wording.moment(NOW),
        "1 min",
    )
    assert (first.holds_back, first.remark) == (False, "")
    assert (second.watermark, second.newest_event) == (wording.moment(NOW - timedelta(hours=1)), wording.NONE)
    assert (second.holds_back, second.remark[:24]) == (True, "measured from batch 7 on")


def test_an_only_watermark() -> None:
    """A stream with one watermark has it in its tile."""
    known = Watermarks(query_id=QUERY_ID, measured=7, inputs=(InputWatermark(input="a.at", delay_ms=0, event_ms=1),))
    plan = replace(PLAN, watermarks=WatermarkOutlook(1, "min", known))
    assert make_page(next_run=make_next_run(plan=plan)).watermarks == ()


def test_a_live_run_tells_whether_anything_moves() -> None:
    """Until when it goes on, when a batch was committed last, and what Spark said that the query was doing."""
    live = LiveRecord(
        began_at=iso_time(NOW - timedelta(minutes=9)),
        ends_at=iso_time(NOW + timedelta(minutes=1)),
        seen_at=iso_time(NOW - timedelta(seconds=9)),
        committed_at=iso_time(NOW - timedelta(minutes=8)),
        doing="Processing new data",
    )
    trigger = LiveTrigger(kind="processing-time", interval_ms=10_000, run_for_ms=600_000)
    changes = {"strategy": "live", "trigger": trigger, "live": live}

    at_work = show(make_run(status="running", ended_at=None, **changes))
    facts = {fact.name: (fact.value, fact.remark) for fact in at_work.facts}
    assert facts["last batch"][1] == "8 min ago"
    assert facts["Spark says"] == ("Processing new data", "9 s ago")
    assert facts["live until"][0] == wording.moment(NOW + timedelta(minutes=1))
    assert facts["strategy"][1] == "processing-time=10s for 10m"

    idle = msgspec.structs.replace(live, committed_at=None)
    facts = {fact.name: (fact.value, fact.remark) for fact in show(make_run(status="running", live=idle)).facts}
    assert facts["no batch since"][1] == "9 min ago"

    done = {fact.name for fact in show(make_run(**changes)).facts}
    assert "live until" in done
    assert not done & {"last batch", "Spark says"}
