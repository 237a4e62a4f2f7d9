"""What `pip install .` brings into somebody else's Airflow."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built as `pip install .` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=60)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_both_packages_are_in_it(wheel: zipfile.ZipFile) -> None:
    """Every module of the library and of the Airflow side, and nothing of the example project or the demo."""
    packages = (REPOSITORY / "include" / "sluice", REPOSITORY / "plugins" / "sluice_airflow")
    modules = {f"{p.name}/{file.relative_to(p)}" for p in packages for file in p.rglob("*.py")}

    assert modules <= set(wheel.namelist())
    assert {name.partition("/")[0] for name in wheel.namelist()} - {"sluice", "sluice_airflow"} == {
        "sluice_streaming-0.1.0.dist-info"
    }


@pytest.mark.parametrize(
    "name",
    [
        "sluice/jars.toml",
        "sluice/py.typed",
        "sluice_airflow/py.typed",
        "sluice/running/submit.py",
        "sluice/template/project/sluice.toml",
        "sluice/template/project/gitignore",
        "sluice/template/project/suites/visits.json",
        "sluice/template/project/data/landing/visits/2026-01-01.json",
    ],
)
def test_what_is_no_module_is_in_it_too(wheel: zipfile.ZipFile, name: str) -> None:
    """The manifest of jars, the sample project, and what `spark-submit` runs."""
    assert name in wheel.namelist()


def test_airflow_finds_the_provider(wheel: zipfile.ZipFile) -> None:
    """The entry points are the command and the provider."""
    entry_points = wheel.read("sluice_streaming-0.1.0.dist-info/entry_points.txt").decode()

    assert "sluice = sluice.cli.app:main" in entry_points
    assert "provider_info = sluice_airflow.provider_info:get_provider_info" in entry_points
