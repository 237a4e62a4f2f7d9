"""Runs every benchmark (or those that are named), prints a table and keeps the figures as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks import cold_run, idle_tick, planning_cost, warm_overhead
from sluice.display import print_table

BENCHMARKS = {
    "planning_cost": planning_cost.measure,
    "idle_tick": idle_tick.measure,
    "warm_overhead": warm_overhead.measure,
    "cold_run": cold_run.measure,
}
RESULTS = Path(__file__).resolve().parents[1] / "var" / "benchmarks.json"


def main() -> None:
    """Measure, print and keep."""
    figures = []
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"measuring {name} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
        figures += BENCHMARKS[name]()
    rows = [
        (
            figure.name,
            f"{figure.value:.3g}",
            figure.bar,
            figure.verdict,
            "{:.3g} to {:.3g}".format(*figure.spread),
            figure.detail,
        )
        for figure in figures
    ]
    print_table("Benchmarks: medians", ("figure", "value", "at most", "", "spread", "measured"), rows)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([figure.as_json() for figure in figures], indent=2) + "\n")
    print(f"kept in {RESULTS.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    main()
