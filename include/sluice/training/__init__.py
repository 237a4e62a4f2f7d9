"""The runs that a launch profile is built from: a small project whose streams make Spark load what most runs need."""

from __future__ import annotations

import importlib.resources
import json
import shutil
import tempfile
from pathlib import Path

from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running.runner import run_stream

_STREAMS = ("readings", "hours")
_DAYS = ("2026-01-01", "2026-01-02")


def train() -> None:
    """Run the training project to its end, twice, so that the second runs go on from a checkpoint; ends the session."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="sluice-training-") as folder:
        with importlib.resources.as_file(importlib.resources.files("sluice.training") / "project") as files:
            shutil.copytree(files, folder, dirs_exist_ok=True)
        project = find_project(folder)
        for day in _DAYS:
            _arrive(Path(folder, "landing"), day)
            for name in _STREAMS:
                run_stream(project, Request(project.stream(name)))
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


def _arrive(landing: Path, day: str) -> None:
    landing.mkdir(exist_ok=True)
    hours = range(24)
    lines = [json.dumps({"sensor": hour % 3, "at": f"{day}T{hour:02}:00:00Z", "value": hour / 7}) for hour in hours]
    (landing / f"{day}.json").write_text("\n".join(lines), "utf-8")
