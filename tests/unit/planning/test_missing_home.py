"""A home that is away looks like one of a new project: the sink's own log tells them apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_lab import Lab, make_lab

from sluice import sinks
from sluice.errors import RefusedError
from sluice.planning.planner import Limits
from sluice.running.preparation import plan_stream
from tests.builders import QUERY_ID, make_delta


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A stream into a Delta table that is not there yet; a file has arrived, and there is no home."""
    lab = make_lab(tmp_path)
    lab.stream = replace(lab.stream, sink=sinks.delta(str(tmp_path / "lake")))
    lab.arrive()
    assert not lab.home.parent.exists()
    return lab


@pytest.mark.parametrize("arrived", [True, False])
def test_a_sink_that_a_stream_has_written(lab: Lab, tmp_path: Path, *, arrived: bool) -> None:
    """Refused as long as the home is away: nothing is written, also where there is nothing to do."""
    make_delta(tmp_path / "lake", [1], app_id=QUERY_ID)
    make_delta(tmp_path / "lake", [2])
    limits = Limits() if arrived else Limits(max_batches=0)
    plan = plan_stream(lab.project, lab.request(limits))
    assert plan.problem is not None
    assert (plan.verdict, plan.problem.code, plan.problem.file) == ("refuse", "HOME_MISSING", str(lab.home.parent))

    for _ in range(2):
        with pytest.raises(RefusedError, match=r"the home does not exist.*mount or restore the home"):
            lab.settle(limits)
    assert not lab.home.parent.exists()

    lab.home.parent.mkdir()
    assert lab.settle().status == "planned"


@pytest.mark.parametrize("app_id", [None, "a-job-of-mine"])
def test_a_sink_that_no_stream_has_written(lab: Lab, tmp_path: Path, app_id: str | None) -> None:
    """Somebody else's rows are there, which are not read again."""
    make_delta(tmp_path / "lake", [1], app_id=app_id)
    assert lab.settle().status == "planned"


def test_a_new_project(lab: Lab) -> None:
    """Neither home nor sink."""
    assert lab.settle().status == "planned"
