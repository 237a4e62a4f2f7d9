"""Where the first run begins: settled once, by the first run that was planned, whatever becomes of it."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from engine_lab import EPOCH, Lab, make_lab, make_stream, write_file

from sluice import sources
from sluice.errors import BatchFailedError, DeclarationError
from sluice.plan import Plan
from sluice.planning.planner import Limits
from sluice.running.observers import Silent

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
