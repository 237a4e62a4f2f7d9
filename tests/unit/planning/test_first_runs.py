"""Where the first run begins: settled once, by the first run that was planned, whatever becomes of it."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice import sources
from sluice.errors import BatchFailedError, DeclarationError
from sluice.plan import Plan
from sluice.planning.planner import Limits
from sluice.running.observers import Silent
from sluice.sources.contract import Bound, parse_starting
from tests.unit.engine_lab import EPOCH, KilledError, Lab, make_lab, make_stream, write_file

HOUR = 3600


class Fails(Silent):
    """Lets a run fail before Spark starts, or once its query is analysed and before anything is written."""

    def __init__(self, point: str) -> None:
        self._point = point

    def phase(self, text: str) -> None:
        if self._point == "phase":
            raise BatchFailedError("Spark does not start", where="here", remedy="none")

    def planned(self, plan: Plan) -> None:
        raise BatchFailedError("the suite does not fit", where="here", remedy="none")


def declared(lab: Lab, starting: Any, folder: str = "landing") -> None:
    source = sources.files(str(lab.root / folder), format="json", schema="id bigint", starting=starting)
    lab.stream = lab.project.resolve(make_stream(lab.root, {"landing": source}))


def later(lab: Lab, hours: int = 1) -> float:
    """Let time pass; gives it in seconds since the epoch of the tests."""
    lab.now += timedelta(hours=hours)
    return (lab.now - EPOCH).total_seconds()


@pytest.mark.parametrize("point", ["phase", "planned"])
def test_a_first_run_that_fails_after_one_that_skipped(tmp_path: Path, point: str) -> None:
    """What came after the first run is read, though the run of the first batch failed before it was written."""
    lab = make_lab(tmp_path, starting="latest")
    assert lab.run().status == "skipped"
    lab.arrive(later(lab))
    later(lab)

    with pytest.raises(BatchFailedError):
        lab.run(observer=Fails(point))
    later(lab)
    lab.run()

    assert lab.sink.ids() == Counter([0])


def test_a_first_run_that_fails(tmp_path: Path) -> None:
    """A source without anything new begins with the first run, also when that one had another source's rows to read."""
    lab = make_lab(tmp_path, names=("orders", "clicks"))
    late = replace(lab.stream.sources["clicks"], starting="latest")
    lab.stream = lab.project.resolve(make_stream(lab.root, {**lab.stream.sources, "clicks": late}))
    lab.arrive(0, source="orders")
    with pytest.raises(BatchFailedError):
        lab.run(observer=Fails("planned"))
    lab.arrive(later(lab), source="clicks")
    later(lab)

    lab.run()

    assert lab.sink.ids() == Counter([0, 1])


@pytest.mark.parametrize(
    ("starting", "expected"), [("earliest", [0, 1]), ("2026-01-01T03:00:00Z", []), ("latest", [1])]
)
def test_another_start_before_the_first_batch(tmp_path: Path, starting: str, expected: list[int]) -> None:
    """Until something was read, the declaration counts; an unchanged one is settled by the first run."""
    lab = make_lab(tmp_path, starting="latest")
    lab.arrive(0)
    assert lab.run().status == "skipped"
    lab.arrive(later(lab) - 1)

    declared(lab, starting)
    lab.run()
    assert lab.sink.ids() == Counter(expected)


def test_another_folder_before_the_first_batch(tmp_path: Path) -> None:
    """A source that reads elsewhere begins anew."""
    lab = make_lab(tmp_path, starting="latest")
    assert lab.run().status == "skipped"
    write_file(lab.root / "other" / "old.json", [{"id": 7}], later(lab) - 1)

    declared(lab, "latest", "other")

    assert lab.run().status == "skipped"
    write_file(lab.root / "other" / "new.json", [{"id": 8}], later(lab))
    later(lab)
    lab.run()
    assert lab.sink.ids() == Counter([8])


def test_another_table_before_the_first_batch(tmp_path: Path) -> None:
    """A table that was made anew at the same place has versions of its own, and begins anew."""
    table = tmp_path / "table"
    for number in range(3):
        write_deltalake(table, pa.table({"id": [number]}), mode="append")
    lab = Lab(tmp_path, make_stream(tmp_path, {"numbers": sources.delta(str(table), starting="latest")}))
    assert lab.run().status == "skipped"

    shutil.rmtree(table)
    write_deltalake(table, pa.table({"id": [10]}))
    assert lab.run().status == "skipped"
    write_deltalake(table, pa.table({"id": [11]}), mode="append")
    lab.run()

    assert lab.sink.ids() == Counter([11])


def test_a_start_that_nobody_knows(tmp_path: Path) -> None:
    """A source that can't be read and has a `starting` is not left to Spark, which would begin at its earliest."""
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"id": [0]}))
    lab = Lab(tmp_path, make_stream(tmp_path, {"numbers": sources.delta(str(table), starting="latest")}))
    (table / "_delta_log" / f"{0:020d}.json").write_text("damaged")

    with pytest.raises(DeclarationError, match="not known yet at which version"):
        lab.plan(Limits(strategy="drain"))


def test_a_start_of_before(tmp_path: Path) -> None:
    """A skip by an earlier Sluice keeps its start: it says nothing of what was declared."""
    lab = make_lab(tmp_path, starting="latest")
    lab.run()
    (lab.home / "started.json").unlink()
    checked = '{"format":1,"checked_at":"x","reason":"nothing new","skips":1,"sources":{"landing":{"from_ms":%d}}}'
    (lab.home / "checked.json").write_text(checked % (EPOCH.timestamp() * 1000))
    lab.arrive(10)
    later(lab)
    with pytest.raises(BatchFailedError):
        lab.run(observer=Fails("planned"))

    lab.run()

    assert lab.sink.ids() == Counter([0])


EDITS = ["latest", "2026-06-01"]
"""Starts that leave out what the tests let arrive."""


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("is_taken_back", [False, True])
def test_another_start_once_something_was_read(
    tmp_path: Path, edit: str, *, is_killed: bool, is_taken_back: bool
) -> None:
    """A stream that began with every file goes on with every file, whatever is declared later."""
    lab = make_lab(tmp_path, max_files_per_batch=1)
    lab.arrive(0)
    lab.run()
    if is_killed:
        lab.arrive(5)
        lab.fault.countdown = 12
        with pytest.raises(KilledError):
            lab.run()
        lab.fault.countdown = None
        later(lab)
    lab.arrive(10)

    declared(lab, edit)
    assert lab.plan().verdict in {"run", "resume"}
    if is_taken_back:
        lab.run(Limits(max_batches=0))
        declared(lab, "earliest")
    lab.run()

    assert lab.sink.ids() == Counter(range(3 if is_killed else 2))


@pytest.mark.parametrize("edit", ["earliest", *EDITS])
def test_another_start_once_it_began_later(tmp_path: Path, edit: str) -> None:
    """A stream that began with what came after its first run never goes back for the rest, and leaves out no more."""
    lab = make_lab(tmp_path, starting="latest")
    lab.arrive(0)
    assert lab.run().status == "skipped"
    lab.arrive(later(lab))
    later(lab)
    lab.run()
    lab.arrive(later(lab))
    later(lab)

    declared(lab, edit)
    lab.run()

    assert lab.sink.ids() == Counter([1, 2])


@pytest.mark.parametrize("edit", EDITS)
def test_another_start_of_a_source_without_anything_yet(tmp_path: Path, edit: str) -> None:
    """The first batch of the stream settles where all of its sources begin: also one that had nothing for it."""
    lab = make_lab(tmp_path, names=("orders", "clicks"))
    lab.arrive(0, source="orders")
    lab.run()
    lab.arrive(10, source="clicks")

    late = replace(lab.stream.sources["clicks"], starting=parse_starting(edit, "clicks"))
    lab.stream = lab.project.resolve(make_stream(lab.root, {**lab.stream.sources, "clicks": late}))
    lab.run()

    assert lab.sink.ids() == Counter([0, 1])


def test_the_first_start_of_a_source_without_anything_yet(tmp_path: Path) -> None:
    """So it is with one that begins with what comes: what was there before is not read by a start declared later."""
    lab = make_lab(tmp_path, names=("orders", "clicks"))
    sources_then = lab.stream.sources
    late = replace(sources_then["clicks"], starting="latest")
    lab.stream = lab.project.resolve(make_stream(lab.root, {**sources_then, "clicks": late}))
    lab.arrive(0, source="clicks")
    lab.arrive(1, source="orders")
    lab.run()
    lab.arrive(later(lab), source="clicks")
    later(lab)

    lab.stream = lab.project.resolve(make_stream(lab.root, sources_then))
    lab.run()

    assert lab.sink.ids() == Counter([1, 2])


def test_every_kill_of_a_first_run_and_another_start(tmp_path: Path) -> None:
    """Whatever is declared after a first run was killed: either nothing was read, and it counts, or every file is."""
    for step in count():
        lab = make_lab(tmp_path / str(step), max_files_per_batch=1)
        lab.arrive(0)
        lab.arrive(10)
        lab.fault.countdown = step
        try:
            lab.run()
        except KilledError:
            is_killed = True
        else:
            is_killed = False
        lab.fault.countdown = None
        later(lab)
        declared(lab, "latest")
        lab.run()
        is_read = bool(lab.sink.ids()) or (lab.home / "generations" / "0001" / "sources").exists()
        assert lab.sink.ids() == Counter([0, 1] if is_read else []), step
        if not is_killed:
            break
    assert step > 10


@pytest.mark.parametrize("has_skipped", [False, True])
def test_a_checkpoint_that_spark_made(tmp_path: Path, *, has_skipped: bool) -> None:
    """It says how far the stream has read: a `starting` that is declared with it leaves out nothing, nor does one that
    a run on another checkpoint has kept."""
    lab = make_lab(tmp_path, starting="latest")
    lab.arrive(0)
    lab.engine(str(tmp_path / "elsewhere")).available_now()
    if has_skipped:
        lab.run()
    lab.arrive(10)

    lab.stream = replace(lab.stream, checkpoint=str(tmp_path / "elsewhere"))
    lab.run()

    assert lab.sink.ids() == Counter([0, 1])


@pytest.mark.parametrize(("starting", "edit"), [("latest", "earliest"), ("earliest", "latest")])
def test_another_start_of_a_table_without_anything_yet(tmp_path: Path, starting: str, edit: str) -> None:
    """The same of a table: the first batch of the stream settles it."""
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"id": [7]}))
    lab = make_lab(tmp_path)
    lab.arrive(0)
    files, bound = lab.stream.sources["landing"], Bound(until=EPOCH + timedelta(hours=1))

    def declare(start: str) -> None:
        source = sources.delta(str(table), starting=start)
        lab.stream = lab.project.resolve(make_stream(lab.root, {"landing": files, "table": source}))

    declare(starting)
    lab.lines = ("landing", "table")
    lab.run(Limits(bound))
    assert lab.sink.ids() == Counter([0])
    write_deltalake(table, pa.table({"id": [8]}), mode="append")

    declare(edit)
    lab.run()

    assert lab.sink.ids() == Counter([0, 8] if starting == "latest" else [0, 7, 8])
