"""What a bench leaves of a killed run is what a kill leaves: compared with drivers that a signal has killed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from sluice.testing import Moment
from tests.campaign import in_campaigns
from tests.spark import killed_driver

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark"), in_campaigns]

REPOSITORY = Path(__file__).parents[2]
_NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}|\d{8}T\d{9}Z-[0-9a-f]{8}|\b[0-9a-f]{16,}\b")
_NUMBERS = re.compile(r"\d{2,}")


def left(folder: Path) -> dict[str, Any]:
    """Every file by name, with what is in those of the home; ids, times and figures are all one."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.endswith(".crc"):
            name = _NAMES.sub("*", str(file.relative_to(folder)))
            is_text = name.startswith("home/") and "/state/" not in name and "/runs/" not in name
            text = file.read_text("utf-8") if is_text and "/leases/" not in name else ""
            found[name] = _NUMBERS.sub("#", _NAMES.sub("*", text.replace(str(folder), "")))
            if "/leases/" in name:
                found[name] = json.loads(file.read_bytes())["is_released"]
            if "/runs/" in name:
                found[name] = json.loads(file.read_bytes()).get("status")
    return found


@pytest.mark.parametrize("at", get_args(Moment))
def test_a_driver_that_a_signal_kills(tmp_path: Path, at: Moment) -> None:
    """File by file."""
    command = [sys.executable, "-m", killed_driver.__name__, str(tmp_path / "killed"), at]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -9, done.stderr[-3000:]
    with killed_driver.begin(tmp_path / "bench") as bench:
        bench.crash(at=at)
        assert left(tmp_path / "bench") == left(tmp_path / "killed")
