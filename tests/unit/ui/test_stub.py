"""The stub in the plugins folder, beside an installed Sluice and without one."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
_STUB = str(REPOSITORY / "plugins" / "sluice_plugin.py")
_PROGRAM = f"import runpy; print('SluicePlugin' in runpy.run_path({_STUB!r}))"
_NO_AIRFLOW = "import sys, types; sys.modules['sluice_airflow.plugin'] = types.SimpleNamespace(SluicePlugin=1)\n"


@pytest.mark.parametrize(("entry_point", "registers"), [("", True), ("sluice_airflow.plugin:SluicePlugin", False)])
def test_only_one_of_both_registers(tmp_path: Path, *, entry_point: str, registers: bool) -> None:
    """With both, Airflow would record an import error."""
    installed = tmp_path / "somebody-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[airflow.plugins]\nsluice = {entry_point}\n" if entry_point else "")
    # What this Python itself has installed is left out by its own switch for that.
    paths = os.pathsep.join([str(tmp_path), str(REPOSITORY / "plugins")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", _NO_AIRFLOW + _PROGRAM],
        env={"PYTHONPATH": paths}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert done.stdout.strip() == str(registers)


def test_the_entry_point_names_the_plugin() -> None:
    """As the stub looks for it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]

    assert project["entry-points"]["airflow.plugins"] == {"sluice": "sluice_airflow.plugin:SluicePlugin"}


def test_airflow_looks_into_no_module_of_ours() -> None:
    """It would run each as a top-level module."""
    assert "sluice_airflow/" in (REPOSITORY / "plugins" / ".airflowignore").read_text("utf-8").split()
