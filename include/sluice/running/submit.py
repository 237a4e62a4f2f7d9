"""What a driver runs: a run of one stream, or of each of several. `spark-submit` may start it, or Python itself.

    python .../sluice/running/submit.py --project DIR --stream NAME [--run-key KEY]
    python .../sluice/running/submit.py --project DIR --stream A --run-key KEY --stream B --run-key KEY ...
    python .../sluice/running/submit.py --project DIR --stream NAME --start T --end T [--run-key KEY]
    python .../sluice/running/submit.py --project DIR --stream NAME --audit ID [--suite S] ...

How far a run goes stands in the record that whoever asked for it has written under its key; without one, it takes
what there is. With `--start` and `--end` it is a backfill of that interval, with `--audit` an audit of the table: of
the rows that meet the condition in `SLUICE_AUDIT_WHERE`, where there is one.

Exits as the command line does: 0 done or nothing to do, 1 failed, 2 declaration error, 3 refused, 4 quality failed,
5 lease taken.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from sluice.project import Project
    from sluice.runs.stop import StopEvent
    from sluice.stream import Stream


AUDIT_WHERE = "SLUICE_AUDIT_WHERE"
"""The variable that tells a driver the condition of its audit, in Spark SQL."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say; returns the exit code."""
    from sluice.errors import SluiceError
    from sluice.project import find_project

    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    names = ", ".join(given.stream)
    try:
        project = find_project(given.project)
        if len(given.stream) > 1:
            return _run_several(project, dict(zip(given.stream, given.run_key, strict=True)))
        return _run_one(project, project.stream(given.stream[0]), given)
    except SluiceError as exc:
        print(f"sluice {names}: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
        return exc.exit_code


def _run_several(project: Project, keys: Mapping[str, str]) -> int:
    from sluice.running.packed_runs import PackStop
    from sluice.running.shared_driver import run_asked
    from sluice.spark.profile_build import build_in_background

    stop = PackStop()
    stop_on_sigterm(stop)
    code = run_asked(project, keys, stop)
    build_in_background()
    return code


def _run_one(project: Project, stream: Stream, given: argparse.Namespace) -> int:
    from sluice.interval import Interval
    from sluice.lineage.sending import tell_end
    from sluice.planning.verdict import Request
    from sluice.running.backfill import backfill_stream
    from sluice.running.backfill_preparation import BackfillRequest
    from sluice.running.observers import Lines
    from sluice.running.runner import run_stream
    from sluice.runs.driver import end_group_when_asked
    from sluice.runs.record import RunRecords
    from sluice.runs.stop import StopEvent
    from sluice.spark.profile_build import build_in_background

    if given.audit:
        return _audit(project, stream, given)
    observer, run_key = Lines(stream.name), next(iter(given.run_key), None)
    # A backfill has no step to stop after: a signal ends it at once, and a retry begins again.
    stop = StopEvent() if given.start else stop_on_sigterm()
    tell = partial(tell_end, project, stream)
    end_group_when_asked(stop, RunRecords(project.stream_home(stream)), tell)
    if given.start:
        interval = Interval.parse(given.start, given.end)
        backfill_stream(project, BackfillRequest(stream, interval, run_key), observer=observer, stop=stop)
    else:
        run_stream(project, Request(stream, run_key=run_key), observer=observer, stop=stop)
    build_in_background()
    return 0


def _audit(project: Project, stream: Stream, given: argparse.Namespace) -> int:
    """Audit the stream's table; returns the exit code."""
    from sluice.auditing.table_audit import TableAuditRequest, audit_table
    from sluice.errors import QualityFailedError
    from sluice.runs.record import describe_quality

    request = TableAuditRequest(
        stream,
        suite=given.suite,
        where=os.environ.get(AUDIT_WHERE),
        from_version=given.from_version,
        to_version=given.to_version,
    )
    audit = audit_table(project, request, audit_id=given.audit)
    print(f"sluice {stream.name}: {describe_quality(audit.quality)}", file=sys.stderr, flush=True)
    return QualityFailedError.exit_code if audit.quality.verdict == "fail" else 0


def stop_on_sigterm(stop: StopEvent | None = None) -> StopEvent:
    """An event that SIGTERM sets: the run ends after the batch that is under way, or at once when pressed again.

    Args:
        stop: The event; a new one, if not given.
    """
    from sluice.runs.stop import StopEvent

    stop = stop or StopEvent()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    return stop


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run a stream, or several, in this process.")
    parser.add_argument("--project", required=True, help="the folder of sluice.toml")
    parser.add_argument("--stream", required=True, action="append", help="several may be given, each with its run key")
    parser.add_argument("--to-version", type=int, help="audit what this version and those before it added")
    parser.add_argument("--start", default="", help="recompute the rows from this time on (ISO 8601)")
    parser.add_argument("--end", default="", help="the end of the rows to recompute; exclusive")
    parser.add_argument("--audit", help="audit the table, and give the audit this id")
    parser.add_argument("--suite", help="audit with another suite than the stream's")
    parser.add_argument("--from-version", type=int, help="audit what this version and later ones added")
    parser.add_argument("--run-key", action="append", default=[], help="names the run for its retries")
    return parser


if __name__ == "__main__":
    # spark-submit puts this file's own folder first, where module names could hide other packages'.
    here = Path(__file__).resolve()
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here.parent]
    sys.path.append(str(here.parents[2]))
    from sluice.exit_code import leave_with

    leave_with(main)
