"""Checkpoints that Spark 3.5, 4.0, 4.1 and 4.2 made (see `tests/golden/record.py`), read as they are.

What each must say is what that Spark reported of its own query.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from sluice.checkpoint.manifest import read_manifest
from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.monitoring.inspection import inspect_checkpoint
from sluice.storage import Storage
from sluice.times import iso_millis

ARCHIVES = sorted((Path(__file__).parents[2] / "golden").glob("*/*.zip"))
NAMES = [f"{archive.parent.name}-{archive.stem}" for archive in ARCHIVES]


@dataclass(frozen=True)
class Golden:
    """One golden checkpoint: where it is, what Spark said of it, and what is read."""

    location: Path
    expected: dict[str, Any]
    state: CheckpointState


@pytest.fixture(scope="module", params=ARCHIVES, ids=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """One of them, unpacked and read."""
    folder = tmp_path_factory.mktemp(f"{request.param.parent.name}-{request.param.stem}")
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(folder)
    location = folder / "checkpoint"
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    return Golden(location, expected, read_checkpoint(str(location), storage=Storage()))


def test_they_are_there() -> None:
    """Of four lines of Spark, at least forty in all."""
    assert {archive.parent.name for archive in ARCHIVES} == {"3.5", "4.0", "4.1", "4.2"}
    assert len(ARCHIVES) >= 40


def test_it_is_sound(golden: Golden) -> None:
    assert golden.state.problems == ()


def test_progress(golden: Golden) -> None:
    state, expected = golden.state, golden.expected
    assert (state.query_id, state.planned_id, state.committed_id) == (
        expected["query_id"],
        expected["planned"],
        expected["committed"],
    )
    assert state.is_pending is (expected["planned"] != expected["committed"])


def test_offsets(golden: Golden) -> None:
    """Spark reports a source that the query uses twice once; the file has a line each time."""
    assert golden.state.planned is not None
    lines = [json.loads(offset) for offset in golden.state.planned.offsets.values() if offset is not None]
    is_reused = "self_union" in golden.location.parent.name
    assert (lines[:1] if is_reused else lines) == golden.expected["offsets"]


def test_watermark(golden: Golden) -> None:
    """The last batch of each scenario with a watermark was one that no data moved: its own is the committed one."""
    if golden.expected["watermark"] is None:
        assert golden.state.watermark_ms == 0
    else:
        assert iso_millis(golden.state.watermark_ms) == golden.expected["watermark"]


def test_operators(golden: Golden) -> None:
    """Spark 3.5 keeps no names of its operators."""
    names = golden.expected["operators"]
    assert [operator.name for operator in golden.state.operators] == (
        [None] * len(names) if golden.expected["spark"] < "4" else names
    )
    versions = {operator.latest_version for operator in golden.state.operators}
    assert versions <= {golden.expected["committed"] + 1}


def test_taken_files(golden: Golden) -> None:
    logs = golden.state.source_logs.values()
    taken = [unquote(entry.path.rpartition("/")[2]) for log in logs for entry in log.entries]
    assert sorted(taken) == golden.expected["files"]


def test_manifest_of_a_file_sink(golden: Golden) -> None:
    manifest = read_manifest(str(golden.location), storage=Storage())
    published = None if manifest is None else sorted(file.path.rpartition("/")[2] for file in manifest)
    assert published == golden.expected.get("published")


def test_nothing_is_written(golden: Golden) -> None:
    before = {path: path.stat().st_mtime_ns for path in golden.location.rglob("*")}
    inspect_checkpoint(str(golden.location), Storage())
    assert {path: path.stat().st_mtime_ns for path in golden.location.rglob("*")} == before
