"""Planning in the background."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice import sinks
from sluice.gate.state import GateState, keep_gate
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.planning.verdict import Request, plan_stream
from sluice.project import Project
from sluice.runs.record import RunRecord, RunRecords, new_run_id
from sluice.sources.files.source import FilesSource
from sluice.storage import Storage
from sluice_airflow.ui.next_run import look_ahead
from tests.builders import NOW, QUERY_ID, make_checkpoint, make_delta, make_files_source, make_stream, put, put_files
from tests.unit.quality.suites import document, row


def project_of(tmp_path: Path) -> Project:
    put(tmp_path / "jobs" / "visits.py", "def visits(visits):\n    return visits\n")
    return Project(str(tmp_path), "p", str(tmp_path), (), (str(tmp_path),))


def home_of(tmp_path: Path) -> StreamHome:
    return StreamHome(str(tmp_path / "home"), Storage())


def test_a_stream_that_has_something_to_do(tmp_path: Path) -> None:
    """The plan, what waits, and how far the two logs are."""
    home = home_of(tmp_path)
    root = make_checkpoint(Path(home.checkpoint_location(1)), planned=3, committed=2)
    put_files(root.parent / "landing", ["new.json"])
    stream = make_stream(
        sources={"visits": make_files_source(root.parent / "landing", max_files_per_batch=1)},
        sink=sinks.delta(str(make_delta(tmp_path / "lake", [1], [2], app_id=QUERY_ID))),
    )

    next_run = look_ahead(project_of(tmp_path), stream, home, NOW, {})

    assert next_run.error is None
    assert next_run.plan is not None
    assert next_run.plan.verdict == "resume"
    assert (next_run.planned_id, next_run.committed_id) == (2, 1)
    assert next_run.planned_offsets == {"visits": '{"logOffset":2}'}
    assert next_run.committed_offsets == {"visits": '{"logOffset":1}'}
    assert next_run.lags["visits"].amount["files"] == 1


@pytest.mark.parametrize("released_by", [None, "ann"])
def test_the_page_gives_the_reason_that_planning_gives(tmp_path: Path, released_by: str | None) -> None:
    """Also of a batch that a suite has stopped, and of one that was let through."""
    project = project_of(tmp_path)
    stream = make_stream(
        sources={"visits": make_files_source(tmp_path / "landing", max_files_per_batch=1)},
        transform="tests.builders:anything",
        sink=sinks.delta(str(make_delta(tmp_path / "lake", [1], [2], app_id=QUERY_ID))),
        quality=str(put(tmp_path / "suite.json", document(row("expect_column_to_exist", column="id")))),
    )
    home = project.stream_home(stream)
    landing = make_checkpoint(Path(home.checkpoint_location(1)), planned=3, committed=2).parent / "landing"
    landing.rename(tmp_path / "landing")
    for log in Path(home.checkpoint_location(1)).glob("sources/0/*"):
        log.write_text(log.read_text().replace(str(landing), str(tmp_path / "landing")))
    put_files(tmp_path / "landing", ["new.json"])
    run_id = new_run_id(NOW, None)
    RunRecords(home).save(
        RunRecord(run_id=run_id, stream="visits", generation=1, planned_at=NOW, plan=PlanDocument(), status="failed")
    )
    keep_gate(
        home,
        GateState(state="blocked", run_id=run_id, generation=1, since=NOW, batch_id=2, failed="`id` is there",
                  released_by=released_by),
    )  # fmt: skip

    planned = plan_stream(project, Request(stream), clock=lambda: NOW)
    shown = look_ahead(project, stream, home, NOW, {}).plan

    assert shown is not None
    assert "batch 2 was stopped by quality" in planned.reason
    assert (shown.verdict, shown.reason) == (planned.verdict, planned.reason)


def test_a_damaged_checkpoint_is_a_refusal(tmp_path: Path) -> None:
    """With the problem that says what to do, once."""
    home = home_of(tmp_path)
    root = make_checkpoint(Path(home.checkpoint_location(1)), planned=3)
    put(root / "offsets" / "2", "v1")

    next_run = look_ahead(project_of(tmp_path), make_stream(), home, NOW, {})

    assert next_run.plan is not None
    assert next_run.plan.verdict == "refuse"
    assert [problem.code for problem in next_run.problems].count("FILE_DAMAGED") == 1


def test_a_damaged_home_is_an_error(tmp_path: Path) -> None:
    """Without a plan, with the file's name."""
    home = home_of(tmp_path)
    put(Path(home.location) / "current.json", "{")

    next_run = look_ahead(project_of(tmp_path), make_stream(), home, NOW, {})

    assert next_run.plan is None
    assert "current.json" in (next_run.error or "")


def test_a_source_of_a_users_own_may_raise_anything(tmp_path: Path) -> None:
    """One stream's fault is said in its row."""

    @dataclass(frozen=True)
    class Broken(FilesSource):
        def available(self, *_: Any, **__: Any) -> Any:
            raise KeyError("oops")

    broken = Broken(**vars(make_files_source(tmp_path)))
    next_run = look_ahead(project_of(tmp_path), make_stream(sources={"visits": broken}), home_of(tmp_path), NOW, {})

    assert next_run.error == "KeyError: 'oops'"
