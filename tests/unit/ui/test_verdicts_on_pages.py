"""What the pages say of the next run is what `sluice plan` says, verdict by verdict, word for word."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from sluice.documents import encode_document
from sluice.gate.decided_batch import Decision
from sluice.gate.judged_runs import hold_of
from sluice.gate.state import GateState, keep_gate, read_gate
from sluice.runs.kept_table import Table
from sluice.runs.record import QualityRecord, RunRecords
from sluice_airflow.ui.next_run import look_ahead
from sluice_airflow.ui.streams_view import stream_row
from tests.builders import put
from tests.unit.engine_lab import Lab, leave_pending, make_lab
from tests.unit.quality.suites import document, row


def something_new(lab: Lab) -> None:
    lab.arrive(100)


def a_dead_driver(lab: Lab) -> None:
    leave_pending(lab, seconds=100, by_sluice=True)


def a_dead_driver_and_more(lab: Lab) -> None:
    leave_pending(lab, seconds=100, by_sluice=True)
    lab.arrive(200)


def a_decided_batch(lab: Lab) -> None:
    leave_pending(lab, seconds=100, by_sluice=True)
    table = Table(location="lake")
    decision = Decision(batch_id=1, query_id="q", run_id="r", folder="1-1", files={}, row_type="", sink=table,
                        quarantine=table, values={}, quarantined=0)  # fmt: skip
    put(lab.home / "staged" / "0001" / "1.json", encode_document(decision))


def a_sink_that_was_moved(lab: Lab) -> None:
    leave_pending(lab, seconds=100, by_sluice=True)
    file = lab.home / "generations" / "0001.json"
    known = json.loads(file.read_bytes())
    known |= {"sink_identity": None, "begun_with": [{"from_batch": 0, "declared": {"sink": "elsewhere"}}]}
    file.write_text(json.dumps(known))


def a_damaged_file(lab: Lab) -> None:
    os.truncate(lab.checkpoint / "offsets" / "0", 3)


VERDICTS: list[tuple[Callable[[Lab], None], str, str]] = [
    (something_new, "run", "`landing`: 1 new file"),
    (lambda _: None, "skip", "nothing new"),
    (a_dead_driver, "resume", "batch 1 was planned and not committed"),
    (a_dead_driver_and_more, "resume", "batch 1 was planned and not committed; `landing`: 1 new file"),
    (a_decided_batch, "resume", "batch 1 was planned and not committed; batch 1 was decided by run r, and is finished"),
    (a_sink_that_was_moved, "refuse", "batch 1 was begun with a sink at elsewhere"),
    (a_damaged_file, "refuse", "the file"),
]


@pytest.mark.parametrize(("happens", "verdict", "reason"), VERDICTS, ids=lambda it: getattr(it, "__name__", ""))
def test_the_same_words(tmp_path: Path, happens: Callable[[Lab], None], verdict: str, reason: str) -> None:
    """The verdict, the reason, and what is in the way."""
    lab = make_lab(tmp_path)
    lab.arrive()
    lab.run()
    happens(lab)

    planned = lab.plan()
    shown = look_ahead(lab.project, lab.stream, lab.project.stream_home(lab.stream), lab.now, {})

    assert shown.plan is not None
    assert planned.verdict == verdict
    assert planned.reason.startswith(reason)
    assert (shown.plan.verdict, shown.plan.reason, shown.plan.problem) == (verdict, planned.reason, planned.problem)
    line = stream_row("s", [], shown, lab.now)
    assert (line.verdict.text, line.reason) == (verdict, planned.reason)


def test_held(tmp_path: Path) -> None:
    """The verdict, the reason and what is in the way are the plan's; the badge of quality says `held` beside it."""
    lab = make_lab(tmp_path)
    rule = row("expect_table_row_count_to_be_between", policy="fail", min_value=5)
    suite = put(tmp_path / "suite.json", document(rule))
    lab.arrive()
    record = lab.run()
    lab.stream = replace(lab.stream, quality=str(suite))
    home = lab.project.stream_home(lab.stream)
    judged = msgspec.structs.replace(record, status="failed", quality=QualityRecord(verdict="fail", suite="s"))
    RunRecords(home).save(judged)
    keep_gate(home, GateState(state="failed", run_id=record.run_id, generation=1, since=lab.now))

    planned = lab.plan()
    hold = hold_of(read_gate(home))
    seen = look_ahead(lab.project, lab.stream, home, lab.now, {})
    shown = stream_row("s", [], seen, lab.now, hold=hold)

    assert (planned.verdict, planned.reason) == ("refuse", "held by quality")
    assert planned.problem is not None
    assert planned.problem.cause.startswith(f"what run {record.run_id} wrote has failed")
    assert seen.plan is not None
    assert seen.plan.problem == planned.problem
    assert (shown.verdict.text, shown.reason) == ("refuse", "held by quality")
    assert shown.hold is not None
    assert shown.hold.text == "held"


def test_a_broken_contract(tmp_path: Path) -> None:
    """What a source brings is not what the suite promises: the page refuses as the plan does."""
    lab = make_lab(tmp_path)
    about = {"sluice": {"source": "landing", "policy": "fail"}}
    rule = row("expect_column_to_exist", meta=about, column="nowhere")
    suite = put(tmp_path / "suite.json", document(rule))
    lab.stream = replace(lab.stream, quality=str(suite))
    lab.arrive()

    planned = lab.plan()
    shown = look_ahead(lab.project, lab.stream, lab.project.stream_home(lab.stream), lab.now, {}).plan

    assert shown is not None
    assert planned.verdict == "refuse"
    assert (shown.verdict, shown.reason, shown.problem) == (planned.verdict, planned.reason, planned.problem)
