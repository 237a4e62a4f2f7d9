"""`python -m benchmarks`: one that fails does not take the others with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks


def test_one_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It is named, the next one is measured, printed and kept, and the end is no success."""
    kept = tmp_path / "var" / "benchmarks.json"
    monkeypatch.setattr(benchmarks, "RESULTS", kept)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "no_such", "planning_cost"])

    with pytest.raises(SystemExit, match="could not be measured: no_such"):
        benchmarks.main()

    assert {figure["name"].partition(",")[0] for figure in json.loads(kept.read_text())} == {"planning"}
    assert "No module named 'benchmarks.no_such'" in capfd.readouterr().err
