"""A small run on the Spark of `sluice serve`, against a hand-written PySpark script: the server's own time counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import count, islice
from pathlib import Path

from benchmarks.measure import ROUNDS, SCRIPTS, Cost, Figure, ratio, run
from benchmarks.workload import arrive, make_project
from sluice.spark import jars

FILES_PER_ROUND = 4
ROWS = 50_000
WARMING = 20
"""How many runs a server does before it is measured: a server is there for hundreds, and Java's compilers get better at
them for a while."""
LEAST_WARMING = 3
"""The same where time is short."""
_PATIENCE_SECONDS = 120
_TICKS = os.sysconf("SC_CLK_TCK")


def measure() -> list[Figure]:
    """Every round, the same few files arrive; one side reads them on the server, the other in a process of its own.

    The first has more to read.
    """
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder, closing(warm_rounds(Path(folder), WARMING)) as rounds:
        for warm in islice(rounds, ROUNDS + 1):
            ours.append(warm)
            root = Path(folder, "project")
            theirs.append(run([sys.executable, "by_hand.py", ":".join(jars.class_path()), "1000"], cwd=root))
    return warm_figures(ours[1:], theirs[1:])


def warm_rounds(folder: Path, warming: int) -> Generator[Cost]:
    """What a run on a warm server costs, with the server's own time, round by round; what it has to read arrives."""
    root = folder / "project"
    landing = make_project(root, files_per_batch=1000)
    (root / "sluice.toml").write_text('[project]\nname = "bench"\n[spark]\nmaster = "serve"\n')
    os.environ["SLUICE_SERVERS"] = str(folder / "servers")
    processes = _serve(root)
    try:
        for number in count():
            arrive(landing, FILES_PER_ROUND, ROWS, prefix=f"round{number}-")
            before = sum(map(_cpu_seconds, processes))
            warm = run([str(SCRIPTS / "sluice"), "run", "events"], cwd=root)
            served = sum(map(_cpu_seconds, processes)) - before
            if number >= warming:
                yield Cost(warm.wall_seconds, warm.cpu_seconds + served)
    finally:
        os.kill(processes[0], signal.SIGTERM)


def warm_figures(ours: Sequence[Cost], theirs: Sequence[Cost]) -> list[Figure]:
    """The figures of some rounds: ours, and a hand-written script's."""
    return [
        ratio("warm small run, CPU", [c.cpu_seconds for c in ours], [c.cpu_seconds for c in theirs], 0.2, "s"),
        ratio("warm small run, wall", [c.wall_seconds for c in ours], [c.wall_seconds for c in theirs], 0.2, "s"),
    ]


def _serve(root: Path) -> tuple[int, int]:
    """Start a server that is nobody's child, for each side is measured by its children; gives its two processes."""
    command = f"nohup {SCRIPTS / 'sluice'} serve --idle 1h </dev/null >serve.log 2>&1 &"
    subprocess.run(["/bin/sh", "-c", command], cwd=root, check=True)
    servers, deadline = Path(os.environ["SLUICE_SERVERS"]), time.monotonic() + _PATIENCE_SECONDS
    while not (found := list(servers.glob("*.json"))):
        if time.monotonic() > deadline:
            raise RuntimeError((root / "serve.log").read_text()[-2000:])
        time.sleep(0.1)
    server = json.loads(found[0].read_bytes())
    return server["watcher"]["pid"], server["jvm"]["pid"]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS
