"""Homes that earlier versions wrote (see `tests/golden_homes/record.py`), read as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice.cli.app import app
from sluice.gate.state import read_gate
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.quality.suite import Suite, read_suite
from sluice.runs.record import RunRecords
from tests.golden_homes.unpacking import ARCHIVES, NAMES, GoldenHome, unpack


@pytest.fixture(params=ARCHIVES, ids=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenHome:
    """One of them, unpacked."""
    return unpack(request.param, tmp_path)


def test_they_are_there() -> None:
    """Of two versions, each state that a home can be found in."""
    by_version = {archive.parent.name: set[str]() for archive in ARCHIVES}
    for archive in ARCHIVES:
        by_version[archive.parent.name].add(archive.stem)
    assert set(by_version) == {"2026-11-22", "2026-11-24"}
    assert all(len(names) == 13 for names in by_version.values())


def test_the_plan(golden: GoldenHome) -> None:
    plan = plan_stream(golden.project, Request(golden.stream, Limits()))
    found = {"verdict": plan.verdict, "batches": [batch.batch_id for batch in plan.batches]}
    assert found == golden.expected["plan"], plan.reason
    assert plan.warnings == ()


def test_the_records(golden: GoldenHome) -> None:
    records = RunRecords(golden.home)
    found = [record for record in map(records.read, records.run_ids()) if record is not None]
    assert [
        {
            "run_id": record.run_id,
            "status": record.status,
            "batches": [batch.batch_id for batch in record.batches],
            "quality": None if record.quality is None else record.quality.verdict,
            "is_backfill": record.interval is not None,
        }
        for record in found
    ] == golden.expected["runs"]
    for record in found:
        assert record.plan.reason
        assert (record.error is not None) == (record.status == "failed")


def test_the_gate(golden: GoldenHome) -> None:
    gate = read_gate(golden.home)
    assert (None if gate is None else gate.state) == golden.expected["gate"]


@pytest.mark.parametrize("command", ["list", "plan", "inspect", "runs", "lag", "quality"])
def test_the_commands(golden: GoldenHome, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Whoever looks sees it: with a suite or without, refused or not."""
    monkeypatch.chdir(golden.root)
    done = CliRunner().invoke(app, [command, *([] if command == "list" else ["numbers"]), "--json"])
    refused = golden.expected["plan"]["verdict"] == "refuse" and command == "plan"
    assert done.exit_code == (4 if refused else 0), done.output
    assert json.loads(done.stdout)


@pytest.mark.parametrize("golden", [one for one in ARCHIVES if one.stem in {"split", "stopped"}], indirect=True)
def test_a_suite_is_read_once_for_a_plan(golden: GoldenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who asks for rows that nobody has judged, and who chooses the gate of those to come."""
    read: list[str] = []

    def noted(location: str, **how: Any) -> Suite | None:
        read.append(location)
        return read_suite(location, **how)

    monkeypatch.setattr("sluice.quality.declared_suite.read_suite", noted)
    assert plan_stream(golden.project, Request(golden.stream, Limits())).quality is not None
    assert len(read) == 1
