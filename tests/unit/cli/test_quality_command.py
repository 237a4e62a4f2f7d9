"""`sluice quality`, as far as it needs no Spark: verdicts, checks, the report page, and releases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice.errors import RefusedError
from sluice.gate.judged_runs import require_judged
from sluice.gate.state import GateState, keep_gate, read_gate, release_gate
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.record import BatchRecord, QualityRecord, RunRecord, RunRecords, new_run_id
from sluice.storage import Storage
from tests.builders import make_delta, put
from tests.remedies import read_remedy
from tests.unit.quality.suites import document, row

HOSTILE = "<img src=x onerror=alert(1)>"
BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
_DECLARATION = """
from sluice import Stream, sinks, sources
files = sources.files("landing", format="json", schema="id bigint, dep_delay int")
visits = Stream(name="visits", sources={"visits": files}, transform="tests.builders:anything", sink=sinks.delta("lake"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A stream with three runs, the second of which was not judged and the last of which was stopped by its suite."""
    (tmp_path / "sluice.toml").write_text('[project]\nname = "p"\nhome = "home"\n')
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "visits.py").write_text(_DECLARATION)
    save_run(tmp_path, 0, QualityRecord(verdict="pass", checks=checks(0), suite="visits", rows=10_000))
    save_run(tmp_path, 1, None)
    save_run(tmp_path, 2, QualityRecord(verdict="fail", checks=checks(12), suite="visits", rows=10_000, dropped=4))
    return tmp_path


def home(project: Path) -> StreamHome:
    return StreamHome(str(project / "home" / "visits"), Storage())


def checks(unexpected: int) -> tuple[dict[str, Any], ...]:
    percent = unexpected / 100
    return (
        {
            "id": "a", "type": "expect_column_values_to_be_between", "policy": "fail", "success": not unexpected,
            "kwargs": {"column": "dep_delay", "min_value": -60, "max_value": 1440}, "path": "exact",
            "result": {"element_count": 10_000, "unexpected_count": unexpected, "unexpected_percent": percent},
        },
        {"id": "b", "type": "expect_column_to_exist", "kwargs": {"column": HOSTILE}, "policy": "warn",
         "success": True, "result": {}, "path": "schema"},
    )  # fmt: skip


def save_run(project: Path, number: int, quality: QualityRecord | None) -> str:
    at = BEGAN + timedelta(hours=number)
    run_id = new_run_id(at, f"key-{number}")
    plan = PlanDocument(reason="new files")
    record = RunRecord(run_id=run_id, stream="visits", generation=1, planned_at=at, plan=plan, status="succeeded",
                       quality=quality)  # fmt: skip
    RunRecords(home(project)).save(record)
    return run_id


def sluice(project: Path, *arguments: str, command: str = "quality") -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "sluice", command, *arguments, "--project", str(project)]
    return subprocess.run(called, capture_output=True, text=True, check=False, timeout=60)


def test_checks_are_sentences(project: Path) -> None:
    """A verdict per judged run, newest first, and what the newest one's checks asked for and saw."""
    done = sluice(project, "visits")

    assert done.returncode == 0
    assert re.findall(r"│ (pass|fail) +│ (\d of \d)", done.stdout) == [("fail", "1 of 2"), ("pass", "0 of 2")]
    assert "dep_delay must lie between -60 and 1440" in done.stdout
    assert "12 of 10,000 rows do not (0.12 %)" in done.stdout


def test_the_plan_says_where_a_run_is_judged(project: Path) -> None:
    """The gate, how it is measured, and why: for people, and in the document."""
    make_delta(project / "lake", [1])
    put(project / "landing" / "1.json")
    checked = row("expect_column_values_to_not_be_null", policy="fail", column="id")
    (project / "suite.json").write_bytes(document(checked, row("expect_column_values_to_be_unique", column="id")))
    declared = project / "streams" / "visits.py"
    declared.write_text(declared.read_text().replace('"visits", ', '"visits", quality="suite.json", ', 1))

    told = sluice(project, "visits", command="plan").stdout.splitlines()
    plan = json.loads(sluice(project, "visits", "--json", command="plan").stdout)

    line = told.index(
        "  quality: 2 checks of `s`, 1 by Great Expectations; judged before it is published, measured on the way"
    )
    assert told[line + 1].strip() == plan["quality"]["reason"]
    assert told[-3:] == [
        "    audit    judge the run by 2 checks",
        "    publish  close the gate: what the run wrote counts downstream",
        "    record   close the record",
    ]
    assert plan["quality"]["reason"].startswith("nothing is published that fails; measured while it is written")
    assert (plan["quality"]["gate"], plan["quality"]["measured"]) == ("publish", "observe")


def test_a_suggestion_writes_over_nothing(project: Path) -> None:
    """What somebody has edited stays, and Spark is not even started."""
    edited = put(project / "suite.json", "edited")

    refused = sluice(project, "suggest", "visits", "--output", str(edited))

    assert (refused.returncode, "the file is there already" in refused.stderr) == (2, True)
    assert edited.read_text() == "edited"


def test_last(project: Path) -> None:
    """Only as many runs as were asked for; the option may come first."""
    document = json.loads(sluice(project, "--last", "1", "visits", "--json").stdout)

    assert [run["quality"]["verdict"] for run in document["runs"]] == ["fail"]


def test_json(project: Path) -> None:
    """One document with the gate and the record's own checks."""
    document = json.loads(sluice(project, "visits", "--json").stdout)

    assert (document["stream"], document["gate"]) == ("visits", None)
    newest = document["runs"][0]
    assert newest["quality"]["checks"] == list(checks(12))
    assert newest["quality"]["dropped"] == 4


def test_a_stream_that_was_never_judged(project: Path) -> None:
    """It says so; a page about nothing is refused."""
    for record in RunRecords(home(project)).newest(3):
        RunRecords(home(project)).forget(record.run_id)

    assert "no run of visits was judged yet" in sluice(project, "visits").stdout
    refused = sluice(project, "visits", "--html", str(project / "page.html"))
    assert (refused.returncode, "no run was judged yet" in refused.stderr) == (2, True)
    assert not (project / "page.html").exists()


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"href", "src", "srcset", "data", "action"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone(project: Path) -> None:
    """It loads nothing, runs nothing, and escapes whatever a record says."""
    file = project / "page.html"

    done = sluice(project, "visits", "--html", str(file))

    assert done.returncode == 0, done.stderr
    text = file.read_text("utf-8")
    page = _Page()
    page.feed(text)
    assert page.addresses == []
    assert {"script", "img", "link", "iframe"}.isdisjoint(page.tags)
    assert "@import" not in text
    assert "url(" not in text
    assert "1 of 2 checks failed, and stops the run" in page.text
    assert "dep_delay must lie between -60 and 1440" in page.text
    assert HOSTILE in page.text
    assert page.tags.count("svg") == 3


def test_data_docs(project: Path) -> None:
    """Great Expectations' own pages of the newest judged run."""
    done = sluice(project, "visits", "--data-docs", str(project / "docs"))

    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"wrote {project / 'docs' / 'index.html'}"
    assert (project / "docs" / "index.html").exists()


def test_the_page_of_a_run_before(project: Path) -> None:
    """Any run that was judged has one, with the runs before it."""
    file, first = project / "page.html", RunRecords(home(project)).run_ids()[-1]

    sluice(project, "visits", "--run", first, "--html", str(file))

    assert "The run passed" in file.read_text("utf-8")
    refused = sluice(project, "visits", "--run", "20260131T130000000Z-00000000", "--html", str(file))
    assert (refused.returncode, "was not judged" in refused.stderr) == (2, True)


def test_the_page_goes_nowhere(project: Path) -> None:
    """A folder that is not there is said, and is no traceback."""
    refused = sluice(project, "visits", "--html", str(project / "no" / "page.html"))

    assert (refused.returncode, "can't be written" in refused.stderr) == (2, True)
    assert "Traceback" not in refused.stderr


def gate(state: Any) -> GateState:
    return GateState(state=state, run_id="r", generation=1, since="2026-01-31T12:00:00.000Z", batch_id=7,
                     failed="`expect_column_values_to_be_between` of `dep_delay`: 12 unexpected")  # fmt: skip


def test_a_batch_is_released(project: Path) -> None:
    """The gate says by whom; a second release changes nothing more."""
    keep_gate(home(project), gate("blocked"))

    assert "Batch 7 was not published" in sluice(project, "visits").stdout
    done = sluice(project, "release", "visits")

    assert "batch 7 of run r goes through at the next run" in done.stdout
    found = read_gate(home(project))
    assert found is not None
    assert found.released_by
    assert "was let through by" in sluice(project, "visits").stdout


def test_a_held_stream_is_released(project: Path) -> None:
    """The gate is closed, and the run's record says by whom; there is nothing to release after that."""
    failed = RunRecords(home(project)).run_ids()[0]
    keep_gate(home(project), msgspec.structs.replace(gate("failed"), run_id=failed))

    assert "the stream is held" in sluice(project, "visits").stdout
    document = json.loads(sluice(project, "release", "visits", "--json").stdout)

    assert document["released"]["state"] == "failed"
    assert read_gate(home(project)) is None
    record = RunRecords(home(project)).read(failed)
    assert record is not None
    assert record.quality is not None
    assert (record.quality.verdict, bool(record.quality.released_by)) == ("fail", True)
    assert "let it through" in page_of(project)
    assert "nothing is blocked or held" in sluice(project, "release", "visits").stdout


@pytest.mark.parametrize("state", ["blocked", "failed"])
def test_a_gate_that_a_run_has_opened_meanwhile(project: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """A release that stands still after its look at the gate does not write over what a run has put there since."""
    there = home(project)
    failed = RunRecords(there).run_ids()[0]
    held = msgspec.structs.replace(gate(state), run_id=failed)
    keep_gate(there, msgspec.structs.replace(gate("open"), run_id="another"))
    opened = read_gate(there)
    assert opened is not None
    keep_gate(there, held)
    replace_if = Storage.replace_if

    def after_another(storage: Storage, location: str, *args: Any) -> bool:
        if location == there.gate_file():
            keep_gate(there, opened)
        return replace_if(storage, location, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "replace_if", after_another)
        with pytest.raises(RefusedError) as refused:
            release_gate(there, "ada", datetime.now(UTC))

    assert read_gate(there) == opened
    judged = RunRecords(there).read(failed)
    assert judged is not None
    assert judged.quality is not None
    assert judged.quality.released_by is None
    RunRecords(there).save(
        msgspec.structs.replace(judged, quality=msgspec.structs.replace(judged.quality, released_by="bob"))
    )
    with monkeypatch.context() as patch:
        keep_gate(there, held)
        patch.setattr(Storage, "replace_if", after_another)
        with pytest.raises(RefusedError):
            release_gate(there, "ada", datetime.now(UTC))
    judged = RunRecords(there).read(failed)
    assert judged is not None
    assert judged.quality is not None
    assert judged.quality.released_by == "bob"
    read_remedy(refused.value, "GATE_CHANGED", "look at it again")
    keep_gate(there, held)
    assert release_gate(there, "ada", datetime.now(UTC)) is not None
    found = read_gate(there)
    assert (found is not None and found.released_by) == ("ada" if state == "blocked" else False)


def page_of(project: Path) -> str:
    file = project / "page.html"
    sluice(project, "visits", "--html", str(file))
    return file.read_text("utf-8")


def test_one_damaged_record_hides_no_other(project: Path) -> None:
    """Neither from the list of runs nor from that of verdicts; the damage is named, and the exit code tells of it."""
    damaged = RunRecords(home(project)).run_ids()[1]
    put(Path(RunRecords(home(project)).file(damaged)), "{")
    put(Path(home(project).runs_folder()) / "007.json", "not a record")

    listed = sluice(project, "visits", command="runs")
    document = json.loads(sluice(project, "visits", "--json", command="runs").stdout)
    judged = sluice(project, "visits")

    assert (listed.returncode, judged.returncode) == (3, 3)
    assert listed.stdout.count("succeeded") == 2
    assert "damaged" in listed.stdout
    assert f"{damaged}.json" in listed.stderr
    assert "007" not in listed.stdout + listed.stderr
    assert [len(document["runs"]), [found["run_id"] for found in document["damaged"]]] == [2, [damaged]]
    assert "Quality of visits" in judged.stdout
    assert f"{damaged}.json" in judged.stderr


def test_a_report_beside_a_damaged_record(project: Path) -> None:
    """It has the runs that can be read, and says which can't; the exit code tells of it as elsewhere."""
    newest, damaged, *_ = RunRecords(home(project)).run_ids()
    put(Path(RunRecords(home(project)).file(damaged)), "{")
    file = project / "report.html"

    written = sluice(project, "visits", "--html", str(file))

    assert written.returncode == 3
    assert f"{damaged}.json" in written.stderr
    page = file.read_text("utf-8")
    assert f"Run {newest}" in page
    assert f"The record of run <code>{damaged}</code> is damaged, and is left out." in page
    found: list[RefusedError] = []
    assert [record.run_id for record in require_judged(home(project), 1, damaged=found)] == [newest]


def test_a_report_where_every_record_is_damaged(project: Path) -> None:
    """There is nothing to show but what is wrong."""
    for run_id in RunRecords(home(project)).run_ids():
        put(Path(RunRecords(home(project)).file(run_id)), "{")

    refused = sluice(project, "visits", "--html", str(project / "report.html"))

    assert (refused.returncode, "does not parse" in refused.stderr) == (3, True)
    assert not (project / "report.html").exists()


def test_a_broken_declaration_hides_no_other(project: Path) -> None:
    """The list has every stream that can be read, and then says what is wrong with the others."""
    put(project / "streams" / "a.py", "import nothing_like_this\n")
    put(project / "streams" / "b.py", _DECLARATION.replace('"landing"', '"../landing"').replace('"visits"', '"b"', 1))

    listed = sluice(project, command="list")
    document = json.loads(sluice(project, "--json", command="list").stdout)

    assert listed.returncode == 2
    assert [stream["stream"] for stream in document] == ["visits"]
    assert "visits" in listed.stdout
    assert f"{project}/streams/a.py:1" in listed.stderr
    assert "the path '../landing' leaves the project" in listed.stderr


def test_a_damaged_record_is_named(project: Path) -> None:
    """Checks that are no objects are no record of ours."""
    file = Path(RunRecords(home(project)).file(RunRecords(home(project)).run_ids()[0]))
    file.write_text(file.read_text().replace('"checks": [', '"checks": [3, '))

    refused = sluice(project, "visits")

    assert (refused.returncode, "does not parse" in refused.stderr) == (3, True)


def test_an_unknown_stream(project: Path) -> None:
    """It is refused, with the nearest name."""
    refused = sluice(project, "visit")

    assert (refused.returncode, "visits" in refused.stderr) == (2, True)


def test_an_audit_without_a_suite_is_refused(project: Path) -> None:
    """Before Spark is started."""
    done = sluice(project, "audit", "visits")

    assert done.returncode == 2
    assert "there is no suite to audit the table with" in done.stderr


def test_a_run_out_of_balance(project: Path) -> None:
    """The list of runs tells the balance of the newest run, and what is wrong with any other."""
    records = RunRecords(home(project))
    whole, broken, *_ = records.run_ids()
    for run_id, published in ((whole, 6), (broken, 5)):
        record = records.read(run_id)
        assert record is not None
        batch = BatchRecord(
            batch_id=4, kind="data", input_rows=7, output_rows=published, watermark=None, result_rows=7, dropped_rows=1
        )
        records.save(msgspec.structs.replace(record, batches=(batch,)))
    listed = sluice(project, "visits", command="runs").stdout
    assert f"run {whole}: 7 rows read; 7 made of them = 6 published" in listed
    assert "ROWS_NOT_IN_BALANCE: " in listed
    assert f"  file: run {broken}\n  consequence: " in listed
    assert "5 published + 0 put into quarantine + 1 dropped" in listed
    assert listed.count("BALANCE") == 1
