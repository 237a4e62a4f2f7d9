"""What the pages are made of reaches an installed Sluice, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
UI = REPOSITORY / "plugins" / "sluice_airflow" / "ui"
FILES = [*sorted((UI / "templates").iterdir()), *sorted((UI / "static").iterdir())]


def test_the_wheel_has_templates_and_assets(tmp_path: Path) -> None:
    """They are no modules, and come along all the same."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=60)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        entry_points = wheel.read("sluice_streaming-0.1.0.dist-info/entry_points.txt").decode()

    assert {str(file.relative_to(REPOSITORY / "plugins")) for file in FILES} <= names
    assert "sluice = sluice_airflow.plugin:SluicePlugin" in entry_points


def test_nothing_is_loaded_from_elsewhere() -> None:
    """No address with a host, no script or style in a page: the content policy would refuse them."""
    assert len(FILES) > 6
    for file in FILES:
        text = file.read_text("utf-8")
        assert not re.search(r"(https?:)?//[a-z]|@import|url\(", re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)), (
            file
        )
        assert file.suffix != ".html" or not re.search(r"\sstyle=|<style|<script(?! src)|\son[a-z]+=|\| *safe", text), (
            file
        )
