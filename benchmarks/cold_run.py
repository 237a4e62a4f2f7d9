"""A small cold run: `sluice run` against a hand-written PySpark script, with everything that they start."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.measure import ROUNDS, SCRIPTS, Figure, ratio, run
from benchmarks.workload import arrive, make_project
from sluice.spark import jars

FILES_PER_ROUND = 4
ROWS = 50_000


def measure() -> list[Figure]:
    """Every round, the same few files arrive, and each side reads them in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        landing = make_project(root, files_per_batch=1000)
        ours, theirs = [], []
        for number in range(ROUNDS + 1):
            arrive(landing, FILES_PER_ROUND, ROWS, prefix=f"round{number}-")
            pair = (
                run([str(SCRIPTS / "sluice"), "run", "events"], cwd=root),
                run([sys.executable, "by_hand.py", ":".join(jars.class_path()), "1000"], cwd=root),
            )
            if number:
                ours.append(pair[0])
                theirs.append(pair[1])
    return [
        ratio("cold small run, CPU", [c.cpu_seconds for c in ours], [c.cpu_seconds for c in theirs], 0.4, "s"),
        ratio("cold small run, wall", [c.wall_seconds for c in ours], [c.wall_seconds for c in theirs], 0.6, "s"),
    ]
