"""`sluice backfill`, as far as it needs no Spark: the plan, refusals, and bad input."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from sluice import Stream
from sluice.errors import DeclarationError
from sluice.generation_notes import DropsDuplicates
from sluice.home import Generation, SourceLine, StreamHome
from sluice.interval import Interval
from sluice.planning.transform_text import transform_digest
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill, prepare_backfill
from sluice.running.preparation import prepare_run
from sluice.runs.record import RunRecords, new_run_id
from sluice.runs.summary import RecordedInterval, Status
from sluice.storage import Storage
from tests.builders import QUERY_ID, make_checkpoint
from tests.unit.quality.suites import document, row
from tests.unit.runs.test_record import make_record

DAY = ("--start", "2026-01-02", "--end", "2026-01-03")
_DECLARATION = """
from sluice import Stream, sinks, sources
FUNCTION = "tests.builders:anything"

def declared(name, sink="lake", **fields):
    files = sources.files("home/visits/generations/landing", format="json", schema="id bigint, day date")
    return Stream(name=name, sources={"visits": files}, transform=FUNCTION, sink=sinks.delta(sink), **fields)
visits = declared("visits", interval_column="day")
plain = declared("plain", sink="other")
reader = Stream(name="reader", sources={"visits": sources.delta("lake")}, transform=FUNCTION, sink=sinks.noop())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A stream that has read three files into a table with one row each."""
    (tmp_path / "sluice.toml").write_text('[project]\nname = "p"\nhome = "home"\n')
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "visits.py").write_text(_DECLARATION)
    (tmp_path / "jobs.py").write_text("def visits(visits):\n    return visits\n")
    make_checkpoint(tmp_path / "home" / "visits" / "generations" / "0001")
    home = StreamHome(str(tmp_path / "home" / "visits"), Storage())
    line = SourceLine("visits", "0")
    home.keep_generation(
        Generation(generation=1, query_id=QUERY_ID, created_at="2026-01-31T12:00:00.000Z", lines=(line,))
    )
    for batch in range(3):
        rows = pa.table({"id": [batch], "day": pa.array([date(2026, 1, 2)])})
        held = CommitProperties(app_transactions=[Transaction(QUERY_ID, batch)])
        write_deltalake(str(tmp_path / "lake"), rows, mode="append", partition_by=["day"], commit_properties=held)
    return tmp_path


def sluice(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sluice", "backfill", *arguments, "--project", str(project)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_dry_run(project: Path) -> None:
    """The plan as one JSON document: what is read, what is replaced, who is concerned; nothing is written."""
    done = sluice(project, "visits", *DAY, "--dry-run", "--json")

    plan = json.loads(done.stdout)
    assert done.returncode == 0
    assert (plan["verdict"], plan["version"], plan["batch_id"], plan["publish"]) == ("run", 2, 2, "metadata")
    assert plan["interval"] == {"start": "2026-01-02T00:00:00.000Z", "end": "2026-01-03T00:00:00.000Z"}
    assert plan["sources"] == {
        "visits": {"end": {"logOffset": 0}, "version": None, "files": 3, "bytes": 6, "rows": None}
    }
    assert plan["downstream"] == [{"stream": "reader", "skips_changes": False, "only_adds": False}]
    assert not (project / "home" / "visits" / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "refuse"),
        ({"across": None}, "run"),
        ({"across": None, "timeless": "Deduplicate [n#2]"}, "refuse"),
        ({"across": None, "timeless": msgspec.UNSET}, "run"),
        ({"transform": "another"}, "run"),
        ({"column": "other"}, "run"),
    ],
    ids=["duplicates across days", "none", "keys without time", "of before", "another text", "another column"],
)
def test_what_the_live_stream_has_learned_from_spark(project: Path, changes: dict[str, Any], verdict: str) -> None:
    """It is refused by a dry run, too, while the transform is the one that Spark has seen."""
    loaded = find_project(str(project))
    stream, home = loaded.stream("visits"), StreamHome(str(project / "home" / "visits"), Storage())
    seen = {"column": "day", "transform": transform_digest(loaded, stream), "across": "Deduplicate [id#1]"}
    seen |= {"timeless": None, **changes}
    before = home.generation(1)
    assert before is not None
    home.keep_generation(msgspec.structs.replace(before, drops_duplicates=DropsDuplicates(**seen)))

    plan = plan_backfill(loaded, BackfillRequest(stream, Interval.parse("2026-01-02", "2026-01-03")))
    assert plan.verdict == verdict
    if plan.problem is not None:
        is_late = "timeless" in changes
        assert plan.problem.code == ("BACKFILL_LATE_ROWS" if is_late else "BACKFILL_DUPLICATES")
        told = (
            "nor `day` tell the event time: Deduplicate [n#2]" if is_late else "do not tell `day`: Deduplicate [id#1]"
        )
        assert told in plan.problem.cause
    else:
        is_asked = 3 if "transform" in changes or "column" in changes else 2 if "timeless" in changes else 1
        assert len(plan.left_to_spark) == is_asked


def test_a_transform_that_is_missing(project: Path) -> None:
    """What a run would refuse before Spark, a dry run does."""
    declaration = project / "streams" / "visits.py"
    declaration.write_text(declaration.read_text().replace("builders:anything", "builders:anythin"))

    done = sluice(project, "visits", *DAY, "--dry-run")
    assert done.returncode == 2
    assert "has no function `anythin`" in done.stderr


def test_dry_run_for_people(project: Path) -> None:
    """The same in lines."""
    done = sluice(project, "visits", *DAY, "--dry-run")
    assert done.stdout.splitlines() == [
        "visits, generation 1: run (`visits`: 3 files, read up to batch 2, replace the interval in version 2)",
        "  from 2026-01-02T00:00:00.000Z to 2026-01-03T00:00:00.000Z, exclusive",
        "  stages",
        "    lease    take the lease of the interval",
        "    session  start Spark, and analyse `tests.builders:anything`",
        "    begin    note that the rows of version 2 are to be replaced",
        "    compute  the rows of the interval, from all that was read up to batch 2",
        "    replace  write them aside, replace those of the table by one commit of metadata",
        "    record   close the record",
        "  checked by Spark at the start, before anything is replaced:",
        "    duplicates are dropped by keys that tell `day` (BACKFILL_DUPLICATES)",
        "    no key that came too late may come again in time (BACKFILL_LATE_ROWS)",
        "    the result has the columns and types of the table",
        "  downstream: reader is refused at its next run, for it does not declare `skip_change_commits`",
    ]


def test_dry_run_of_an_interval_without_rows(project: Path) -> None:
    """Nothing is replaced: whoever reads the table takes the rows for new ones, whatever it declares."""
    told = sluice(project, "visits", "--start", "2020-01-01", "--end", "2020-01-02", "--dry-run").stdout

    assert "downstream: reader reads the rows as new ones, for the table has none of the interval" in told


def test_dry_run_says_how_it_is_judged(project: Path) -> None:
    """With a suite, its rows are judged before they replace any."""
    (project / "suite.json").write_bytes(document(row("expect_column_to_exist", policy="fail", column="id")))
    declared = project / "streams" / "visits.py"
    declared.write_text(declared.read_text().replace('"day")\n', '"day", quality="suite.json")\n', 1))

    told = sluice(project, "visits", *DAY, "--dry-run").stdout.splitlines()

    assert told[2] == "  quality: 1 check of `s`; judged before it is written, measured by reading it once more"
    assert "before they replace any" in told[3]


def test_a_broken_declaration_of_others_is_no_hindrance(project: Path) -> None:
    """What reads the sink is named as far as it can be read."""
    (project / "streams" / "broken.py").write_text("1 / 0\n")

    done = sluice(project, "visits", *DAY, "--dry-run", "--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["downstream"] == [{"stream": "reader", "skips_changes": False, "only_adds": False}]


def test_refused(project: Path) -> None:
    """A refusal exits with 3, names the file, and leaves a record under its interval; a dry run leaves none."""
    gone = project / "home" / "visits" / "generations" / "landing" / "part-1.json"
    gone.unlink()

    dry, done = sluice(project, "visits", *DAY, "--dry-run"), sluice(project, "visits", *DAY, "--json")

    record = json.loads(done.stdout)
    assert (dry.returncode, done.returncode) == (3, 3)
    assert f"file: file://{gone}" in dry.stdout
    assert str(gone) in done.stderr
    assert (record["status"], record["error"]["type"]) == ("refused", "RefusedError")
    assert record["interval"] == {"start": "2026-01-02T00:00:00Z", "end": "2026-01-03T00:00:00Z"}
    assert [file.stem for file in (project / "home" / "visits" / "runs").iterdir()] == [record["run_id"]]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plain", *DAY), "declares no `interval_column`"),
        (("reader", *DAY), "a noop sink can't replace"),
        (("visit", *DAY), "did you mean `visits`"),
        (("visits", "--start", "2026-01-03", "--end", "2026-01-02"), "the first before the second"),
        (("visits", "--start", "2026-01-02", "--end", "2026-01-02T12:00:00Z"), "no midnight"),
        (("visits", "--start", "yesterday", "--end", "2026-01-02"), "'yesterday' is no time"),
        (("visits", "--start", "2026-01-02"), "--end"),
    ],
)
def test_bad_input(project: Path, arguments: tuple[str, ...], told: str) -> None:
    """Exit code 2 and what to do, before anything is written or started."""
    done = sluice(project, *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert not (project / "home" / "visits" / "runs").exists()


def test_nothing_to_do(project: Path) -> None:
    """A stream that never ran has nothing to recompute, and a skip leaves no record."""
    declaration = project / "streams" / "visits.py"
    declaration.write_text(_DECLARATION.replace('sink="other")', 'sink="other", interval_column="day")'))
    done = sluice(project, "plain", *DAY)
    assert done.returncode == 0
    assert "skipped (the live stream has written nothing yet)" in done.stdout
    assert not (project / "home" / "plain").exists()


KINDS = {
    "the live stream": None,
    "a day": RecordedInterval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)),
    "another day": RecordedInterval(datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC)),
}


@pytest.mark.parametrize("status", ["planned", "running", "failed", "stopped", "refused", "succeeded"])
@pytest.mark.parametrize(("before", "asked"), [*itertools.permutations(KINDS, 2)])
def test_a_run_key_of_another_kind_of_run(project: Path, before: str, asked: str, status: Status) -> None:
    """Refused in the same words, whichever of the two was first, and the record stays as it is."""
    loaded = find_project(str(project))
    stream = loaded.stream("visits")
    records = RunRecords(loaded.stream_home(stream))
    record = make_record(new_run_id(datetime(2026, 1, 31, tzinfo=UTC), "K"), run_key="K")
    records.save(msgspec.structs.replace(record, status=status, interval=KINDS[before]))
    kept = Path(records.file(record.run_id)).read_bytes()

    with pytest.raises(DeclarationError, match=r"run key `K` names another run: .*, a .*; give this one, a .*, a key"):
        prepare(loaded, stream, KINDS[asked], "K")
    assert Path(records.file(record.run_id)).read_bytes() == kept
    assert len(records.run_ids()) == 1


def prepare(project: Project, stream: Stream, interval: RecordedInterval | None, key: str) -> None:
    if interval is None:
        prepare_run(project, Request(stream, run_key=key))
    else:
        prepare_backfill(project, BackfillRequest(stream, Interval(interval.start, interval.end), key))
