"""A home that is away looks like one of a new stream: the sink's own log tells them apart."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluice import sinks
from sluice.errors import RefusedError
from sluice.home import Generation
from sluice.planning.planner import Limits
from sluice.planning.verdict import plan_stream
from sluice.runs.record import RunRecords
from tests.builders import QUERY_ID, clean_log, make_delta, put
from tests.remedies import read_remedy
from tests.unit.engine_lab import AppendingSink, Lab, TransactionalSink, make_lab
from tests.unit.runs.test_record import make_record


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A stream into a Delta table that is not there yet; a file has arrived, and there is no home."""
    lab = make_lab(tmp_path)
    lab.stream = replace(lab.stream, sink=sinks.delta(str(tmp_path / "lake")))
    lab.arrive()
    assert not lab.home.parent.exists()
    return lab


def verdict(lab: Lab, limits: Limits | None = None) -> str:
    plan = plan_stream(lab.project, lab.request(limits or Limits()))
    return plan.verdict if plan.problem is None else plan.problem.code


@pytest.mark.parametrize("beside", ["nothing", "other streams", "an audit", "records", "a summary"])
@pytest.mark.parametrize("arrived", [True, False])
def test_a_sink_that_a_stream_has_written(lab: Lab, tmp_path: Path, beside: str, *, arrived: bool) -> None:
    """Refused as long as the stream's folder is away: nothing is written, also where there is nothing to do."""
    make_delta(tmp_path / "lake", [1], app_id=QUERY_ID)
    make_delta(tmp_path / "lake", [2])
    folder = {"nothing": None, "other streams": lab.home.parent / "others", "an audit": lab.home / "table_audits"}
    if (made := folder.get(beside)) is not None:
        made.mkdir(parents=True)
    if beside == "a summary":
        put(lab.home / "summary.json", "{}")
    if beside == "records":
        # A backfill that found nothing, and runs whose checkpoint is lost.
        RunRecords(lab.project.stream_home(lab.stream)).save(make_record("20260131T120000000Z-0f1e2d3c"))
    limits = Limits() if arrived else Limits(max_batches=0)
    assert verdict(lab, limits) == "HOME_MISSING"

    for _ in range(2):
        with pytest.raises(RefusedError, match=f"{QUERY_ID} has streamed into") as refused:
            lab.prepare(limits)
    says = "mount or restore the home; if this really is the stream's first run, make an empty file"
    assert read_remedy(refused.value, "HOME_MISSING", says).file == str(lab.home)
    assert len([*lab.root.rglob("runs/*.json")]) == (beside == "records")

    lab.home.mkdir(parents=True, exist_ok=True)
    assert verdict(lab, limits) == "HOME_MISSING"
    (lab.home / "first-run").touch()
    assert lab.prepare().status == "planned"


def test_a_sink_whose_old_commits_are_gone(lab: Lab, tmp_path: Path) -> None:
    """Log clean-up leaves a checkpoint in their place, which knows the query as well."""
    table = make_delta(tmp_path / "lake", [1], app_id=QUERY_ID)
    make_delta(table, [2], [3], [4])
    clean_log(table)
    assert verdict(lab) == "HOME_MISSING"


def test_a_sink_that_may_have_forgotten_its_queries(lab: Lab, tmp_path: Path) -> None:
    """Commits and transactions are gone: nobody can tell, and a first run is one only if somebody says so."""
    table = make_delta(tmp_path / "lake", [1], app_id="a-job-of-mine")
    DeltaTable(table).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    assert [warning.code for warning in lab.plan().warnings] == ["TRANSACTIONS_EXPIRE"]
    clean_log(table)
    assert verdict(lab) == "HOME_MISSING"
    assert "can't be told" in lab.plan().reason

    put(lab.home / "first-run", "")
    assert lab.prepare().status == "planned"


@pytest.mark.parametrize("app_id", [None, "a-job-of-mine"])
def test_a_sink_that_no_stream_has_written(lab: Lab, tmp_path: Path, app_id: str | None) -> None:
    """Somebody else's rows are there, which are not read again."""
    make_delta(tmp_path / "lake", [1], app_id=app_id)
    assert lab.prepare().status == "planned"


def keep_other(lab: Lab, name: str) -> None:
    """A stream of the home whose query has written the sink."""
    other = replace(lab.project.stream_home(lab.stream), location=f"{lab.home.parent}/{name}")
    other.keep_generation(Generation(generation=1, query_id=QUERY_ID, created_at="x", lines=()))


def declare(lab: Lab, text: str) -> None:
    put(lab.root / "streams" / "others.py", text)
    lab.project = replace(lab.project, stream_folders=(str(lab.root / "streams"),))


OTHER = """
from sluice import Stream, sinks, sources
its = Stream(name="others", sources={"x": sources.delta("x")}, transform="no:where", sink=sinks.delta("%s"))
"""


@pytest.mark.parametrize("sink", ["lake", "../outside"])
def test_a_sink_that_another_stream_of_the_home_has_written(lab: Lab, tmp_path: Path, sink: str) -> None:
    """Its batches are known: they are no past of this one, also where what it declares can't be used."""
    make_delta(tmp_path / "lake", [1], app_id=QUERY_ID)
    keep_other(lab, "others")
    declare(lab, OTHER % sink)
    assert lab.prepare().status == "planned"


@pytest.mark.parametrize("declared", ["nothing", "another one", "one that does not load"])
@pytest.mark.parametrize("table", ["lake", "lake_quarantine"])
def test_a_sink_that_a_stream_under_another_name_has_written(
    lab: Lab, tmp_path: Path, declared: str, table: str
) -> None:
    """Nothing declares it any more: it may be this one, which would begin anew."""
    make_delta(tmp_path / table, [1], app_id=QUERY_ID)
    put(tmp_path / "suite.json", '{"name": "s", "expectations": []}')
    lab.stream = replace(lab.stream, quality=str(tmp_path / "suite.json"))
    keep_other(lab, "formerly")
    files = {"another one": OTHER % "elsewhere", "one that does not load": "1 / 0"}
    if declared in files:
        declare(lab, files[declared])

    for _ in range(2):
        with pytest.raises(RefusedError, match="has batches of stream `formerly`") as refused:
            lab.prepare()
    problem = read_remedy(refused.value, "STREAM_RENAMED", "declare it as `formerly` again; or move")
    assert problem.file == str(lab.home.parent / "formerly")
    assert ("others.py does not load" in problem.cause) == (declared == "one that does not load")
    assert not lab.home.exists()
    assert "in place of the folder" not in problem.remedy

    put(lab.home / "first-run", "")
    assert lab.prepare().status == "planned"


def test_a_new_project(lab: Lab) -> None:
    """Neither home nor sink."""
    assert lab.prepare().status == "planned"


@pytest.mark.parametrize("sink", [TransactionalSink, AppendingSink])
@pytest.mark.parametrize("gone", ["generations/0001", "generations", "current.json"])
def test_a_checkpoint_that_is_gone(tmp_path: Path, sink: type, gone: str) -> None:
    """Who deletes a checkpoint to begin anew would have every row twice."""
    lab = make_lab(tmp_path, sink=sink)
    lab.arrive()
    lab.run()
    place = lab.home / gone
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()
        shutil.rmtree(lab.home / "generations" / "0001")
    lab.arrive(1)
    with pytest.raises(RefusedError) as refused:
        lab.run()
    assert refused.value.finding.code in {"CHECKPOINT_GONE", "SINK_AHEAD"}
    assert lab.sink.ids() == Counter([0])


def test_a_checkpoint_that_was_moved(tmp_path: Path) -> None:
    """A new place for it, and nothing there."""
    lab = make_lab(tmp_path)
    lab.arrive()
    lab.run()
    lab.stream = replace(lab.stream, checkpoint=str(tmp_path / "elsewhere"))
    assert verdict(lab) == "CHECKPOINT_GONE"
    shutil.copytree(lab.home / "generations" / "0001", tmp_path / "elsewhere")
    assert verdict(lab) == "skip"
