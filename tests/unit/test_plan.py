"""The plan as data, and as JSON with the keys that people build on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from sluice.errors import Problem
from sluice.plan import Plan, PlannedBatch, SourceRange
from sluice.times import iso_millis
from tests.unit.engine_lab import EPOCH, Lab, leave_pending, make_lab, until

OFFSET = '{"logOffset":0}'


def batch(*ranges: SourceRange) -> PlannedBatch:
    return PlannedBatch(0, "data", 0, {str(index): found for index, found in enumerate(ranges)})


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A stream with a batch that is pending and a file that is new."""
    lab = make_lab(tmp_path)
    leave_pending(lab)
    lab.arrive(1)
    return lab


def test_json_has_the_documented_keys(lab: Lab) -> None:
    """The keys, in their order, with what was noticed on the way at the end."""
    document = msgspec.to_builtins(lab.plan(until(5)).document)
    assert list(document) == [
        "stream", "generation", "verdict", "reason", "strategy", "until", "batches", "problem", "warnings", "quality",
            "watermarks", "stages",
    ]  # fmt: skip
    assert (document["stream"], document["generation"], document["verdict"]) == ("numbers", 1, "resume")
    assert (document["strategy"], document["until"]) == ("exact", "2026-01-01T00:00:05.000Z")
    assert (document["problem"], document["warnings"]) == (None, ())


def test_json_of_a_batch_has_spark_s_offsets(lab: Lab) -> None:
    """Start and end are Spark's own offset objects, null for none; estimates are null where nothing is known."""
    uncommitted, data = msgspec.to_builtins(lab.plan().document)["batches"]
    assert list(uncommitted) == ["batch_id", "kind", "timestamp", "sources"]
    assert (uncommitted["batch_id"], uncommitted["kind"], data["batch_id"], data["kind"]) == (
        0,
        "uncommitted",
        1,
        "data",
    )
    assert uncommitted["sources"] == {
        "landing": {"start": None, "end": {"logOffset": 0}, "files": None, "bytes": None, "rows": None}
    }
    size = len('{"id": 1, "at": 0}\n')
    assert data["sources"] == {
        "landing": {"start": {"logOffset": 0}, "end": {"logOffset": 1}, "files": 1, "bytes": size, "rows": None}
    }
    assert data["timestamp"] == iso_millis(int(lab.now.timestamp() * 1000))


def test_a_skip_has_no_batches(tmp_path: Path) -> None:
    """Nothing to do is an empty list."""
    document = msgspec.to_builtins(make_lab(tmp_path).plan().document)
    assert (document["verdict"], document["until"], document["batches"]) == ("skip", None, ())


def test_json_of_a_refusal_has_its_problem() -> None:
    """A problem is five strings."""
    problem = Problem("CODE", "/file", "cause", "consequence", "remedy")
    plan = Plan("s", 1, "refuse", "cause", "exact", problem=problem, warnings=(problem,))
    document = msgspec.to_builtins(plan.document)
    expected = {
        "code": "CODE",
        "file": "/file",
        "cause": "cause",
        "consequence": "consequence",
        "remedy": "remedy",
    }
    assert (document["problem"], document["warnings"]) == (expected, (expected,))


def test_until_is_told_in_utc() -> None:
    """A bound in another zone is the same moment."""
    zoned = EPOCH.astimezone(tz=None) + timedelta(hours=1)
    assert Plan("s", 1, "skip", "", "exact", until=zoned).document.until == "2026-01-01T01:00:00.000Z"


def test_rows_are_the_sum_of_what_the_sources_promise() -> None:
    """Sources that take nothing do not matter; one that does not know its rows makes the sum unknown."""
    known, unknown = SourceRange(None, OFFSET, {"rows": 3}), SourceRange(None, OFFSET)
    idle = SourceRange(OFFSET, OFFSET)
    assert batch(known, known, idle).rows == 6
    assert batch(known, unknown).rows is None
    assert batch(idle).rows == 0
