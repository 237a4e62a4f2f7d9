"""An idle tick at 20,000 files: `sluice plan` against an idle AvailableNow run by spark-submit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import ROUNDS, SCRIPTS, Figure, ratio, run, timed
from benchmarks.workload import arrive, make_project
from sluice.planning.verdict import Request, plan_stream
from sluice.project import find_project
from sluice.spark import jars

FILES = 20_000


def measure() -> list[Figure]:
    """The idle tick as a process, and in a process that is warm."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        landing = make_project(root, files_per_batch=FILES)
        arrive(landing, FILES, 1)
        stock = [str(SCRIPTS / "spark-submit"), "--master", "local[2]"]
        stock += ["--driver-class-path", ":".join(jars.class_path()), "by_hand.py", "", str(FILES)]
        # Both read everything once; a last batch of one file keeps the stock run's replay of it cheap.
        run([str(SCRIPTS / "sluice"), "run", "events"], cwd=root)
        run(stock, cwd=root)
        arrive(landing, 1, 1, prefix="last")
        run([str(SCRIPTS / "sluice"), "run", "events"], cwd=root)
        run(stock, cwd=root)
        ours, theirs, warm = [], [], []
        project = find_project(folder)
        request = Request(project.stream("events"))
        plan_stream(project, request)
        for _ in range(ROUNDS):
            ours.append(run([str(SCRIPTS / "sluice"), "plan", "events"], cwd=root))
            theirs.append(run(stock, cwd=root))
            warm.append(timed(lambda: plan_stream(project, request)))
        shutil.rmtree(landing)
    walls = [cost.wall_seconds for cost in theirs]
    return [
        ratio("idle tick, process, wall", [cost.wall_seconds for cost in ours], walls, 0.05, "s"),
        ratio("idle tick, process, CPU", [c.cpu_seconds for c in ours], [c.cpu_seconds for c in theirs], 0.05, "s"),
        ratio("idle tick, warm process, wall", warm, walls, 0.01, "s"),
    ]
