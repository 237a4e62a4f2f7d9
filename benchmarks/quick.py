"""The figures of a start in eight minutes: all sides in turn, round by round, until the time is over.

`make bench` measures more rounds of more batches. This tells after a change whether something has become dearer.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks import many_batches, warm_overhead
from benchmarks.__main__ import RESULTS, print_figures
from benchmarks.cold_run import cold_figures, cold_rounds
from benchmarks.measure import SCRIPTS, Cost, Figure, ratio, run
from benchmarks.packed_runs import packed_figure, packed_rounds
from benchmarks.warm_run import LEAST_WARMING, warm_figures, warm_rounds
from sluice.spark import jars

SECONDS = 480
FOR_PROCESSES = 290
"""How long rounds of processes are begun; what they leave is for the runs in one session."""
LEAST = 3
BATCHES = 10


def main() -> None:
    """Measure, print and keep."""
    began = time.monotonic()
    figures = _of_processes(began + FOR_PROCESSES)
    _tell(began, "runs in one session")
    figures += warm_overhead.measure(LEAST)
    figures += many_batches.measure(BATCHES, LEAST)
    took = time.monotonic() - began
    print_figures(f"Start-up: medians, {took:.0f} s of {SECONDS}", [figure.as_json() for figure in figures])
    kept = RESULTS.with_name("benchmarks-quick.json")
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps([figure.as_json() for figure in figures], indent=2) + "\n")


def _of_processes(ends: float) -> list[Figure]:
    """Cold, idle, warm and packed runs: one of each in every round, beside those by hand."""
    began = time.monotonic()
    cold: list[dict[str, Cost]] = []
    idle: list[tuple[Cost, Cost]] = []
    warm: list[Cost] = []
    packed: list[tuple[float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder, closing(warm_rounds(Path(folder, "warm"), LEAST_WARMING)) as served:
        root = Path(folder, "cold")
        # The server comes first: who has waited for a command adopts whatever is left of one.
        sides = zip(served, cold_rounds(root), packed_rounds(Path(folder, "packed"), singly=0, by_hand=1), strict=False)
        for number, (on_server, costs, together) in enumerate(sides):
            _tell(began, f"round {number}")
            if number:
                # The first of each has more to do.
                cold.append(costs)
                packed.append(together)
                warm.append(on_server)
                idle.append(_idle(root))
            if len(cold) >= LEAST and time.monotonic() > ends:
                break
    by_hand = [costs["by hand"] for costs in cold]
    ours, theirs = zip(*idle, strict=True)
    return [
        *cold_figures(cold),
        ratio("idle tick, CPU", [c.cpu_seconds for c in ours], [c.cpu_seconds for c in theirs], 0.05, "s"),
        ratio("idle tick, wall", [c.wall_seconds for c in ours], [c.wall_seconds for c in theirs], 0.05, "s"),
        *warm_figures(warm, by_hand),
        packed_figure([costs[0] for costs in packed], [costs[2] for costs in packed]),
    ]


def _idle(root: Path) -> tuple[Cost, Cost]:
    """What it costs to find that nothing has arrived: ours, and an AvailableNow start by hand."""
    by_hand = [sys.executable, "by_hand.py", ":".join(jars.class_path()), "1000"]
    return run([str(SCRIPTS / "sluice"), "plan", "events"], cwd=root), run(by_hand, cwd=root)


def _tell(began: float, what: str) -> None:
    print(f"{time.monotonic() - began:4.0f} s: {what} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
