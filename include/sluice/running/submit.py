"""What `spark-submit` runs: one run of one stream, in the driver that it started.

    spark-submit .../sluice/running/submit.py --project DIR --stream NAME [--until T] [--run-key KEY] ...

Exits as the command line does: 0 done or nothing to do, 1 failed, 2 declaration error, 3 refused, 5 lease held.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one stream; returns the exit code."""
    from sluice.display import Lines
    from sluice.errors import SluiceError
    from sluice.planning.planner import Limits
    from sluice.project import find_project
    from sluice.running.preparation import Request
    from sluice.running.runner import run_stream
    from sluice.stream import Bound
    from sluice.times import parse_time

    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        project = find_project(given.project)
        bound = Bound(until=parse_time(given.until), to_version=given.to_version)
        limits = Limits(bound, given.max_batches, given.strategy)
        request = Request(project.stream(given.stream), limits, given.run_key)
        run_stream(project, request, observer=Lines(given.stream), stop=stop_on_sigterm())
    except SluiceError as exc:
        print(f"sluice {given.stream}: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
        return exc.exit_code
    return 0


def stop_on_sigterm() -> threading.Event:
    """An event that SIGTERM sets: the run ends after the batch that is under way, or at once when pressed again."""
    stop = threading.Event()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    return stop


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run one stream in the driver that spark-submit started.")
    parser.add_argument("--project", required=True, help="the folder of sluice.toml")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--until", default="", help="ISO 8601; exclusive; empty for now")
    parser.add_argument("--to-version", type=int)
    parser.add_argument("--max-batches", type=int)
    parser.add_argument("--strategy", choices=["exact", "drain"])
    parser.add_argument("--run-key", help="names the run for its retries")
    return parser


if __name__ == "__main__":
    # spark-submit puts this file's own folder first, where module names could hide other packages'.
    here = Path(__file__).resolve()
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here.parent]
    sys.path.append(str(here.parents[2]))
    sys.exit(main())
