"""Runs every benchmark (or those that are named), prints a table and keeps the figures as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sluice.cli.printing import print_table

BENCHMARKS = (
    "planning_cost",
    "sensor_cost",
    "dag_parse",
    "scheduling",
    "many_streams",
    "kafka_planning",
    "idle_tick",
    "warm_overhead",
    "many_batches",
    "cold_run",
    "warm_run",
    "packed_runs",
    "compiler_tiers",
    "quality_observed",
    "quality_dear_input",
    "quality_gates",
)
RESULTS = Path(__file__).resolve().parents[1] / "var" / "benchmarks.json"


def main() -> None:
    """Measure, each figure in a process of its own, print and keep.

    Raises:
        SystemExit: One could not be measured; the others are printed and kept before.
    """
    figures, failed = [], []
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"measuring {name} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
        program = (
            f"import json; from benchmarks.{name} import measure; print(json.dumps([f.as_json() for f in measure()]))"
        )
        # Spark prints what it likes; the last line is ours.
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            figures += json.loads(done.stdout.splitlines()[-1])
        else:
            failed.append(name)
            print(f"{name} could not be measured (exit {done.returncode}): see above", file=sys.stderr, flush=True)
    print_figures("Benchmarks: medians", figures)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"kept in {RESULTS.relative_to(RESULTS.parents[1])}")
    if failed:
        sys.exit(f"could not be measured: {', '.join(failed)}")


def print_figures(title: str, figures: Sequence[dict[str, Any]]) -> None:
    """Print figures as a table."""
    columns = ("figure", "value", "at most", "", "spread", "measured")
    print_table(title, columns, [_row(figure) for figure in figures])


def _row(figure: dict[str, Any]) -> tuple[Any, ...]:
    low, high = figure["spread"]
    spread = f"{low:.3g} to {high:.3g}"
    return figure["name"], f"{figure['value']:.3g}", figure["bar"], figure["verdict"], spread, figure["detail"]


if __name__ == "__main__":
    main()
