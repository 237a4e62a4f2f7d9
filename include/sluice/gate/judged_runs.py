"""The runs of a stream that were judged, and what holds it: read from its records. Starts no JVM."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sluice.errors import DeclarationError, RefusedError
from sluice.gate.state import GateState, read_gate
from sluice.home import StreamHome
from sluice.quality.report import Hold, JudgedRun, QualityReport, quality_report
from sluice.runs.record import QualityRecord, RunRecord, RunRecords
from sluice.times import iso_time, parse_time

_MOST_READ = 400
"""How many records are read in search of judged ones: a stream may have got its suite only lately, or lost it."""


def judged_records(
    home: StreamHome, most: int, *, up_to: str | None = None, damaged: list[RefusedError] | None = None
) -> list[RunRecord]:
    """The newest runs that have a verdict, newest first.

    Args:
        home: The stream's folder in the home.
        most: How many.
        up_to: The id of the run to begin with; the newest when not given.
        damaged: Takes what is wrong with other records, which then hide none.

    Raises:
        RefusedError: A record is damaged.
        StorageError: The home can't be read.
    """
    records, found = RunRecords(home), []
    run_ids = [run_id for run_id in records.run_ids() if up_to is None or run_id <= up_to]
    for run_id in run_ids[: max(_MOST_READ, most)]:
        try:
            record = records.read(run_id)
        except RefusedError as exc:
            if run_id == up_to or damaged is None:
                raise
            damaged.append(exc)
            continue
        if record is not None and record.quality is not None:
            found.append(record)
        if len(found) == most:
            break
    return found


def judged_run(record: RunRecord) -> JudgedRun | None:
    """What a record says of quality; None when it says nothing."""
    if record.quality is None:
        return None
    interval = f"{iso_time(record.interval.start)} to {iso_time(record.interval.end)}" if record.interval else ""
    return judged(record.run_id, parse_time(record.started_at) or record.planned_at, record.quality, interval)


def judged(run_id: str, at: datetime, quality: QualityRecord, interval: str = "") -> JudgedRun:
    """A verdict, of a run or of an audit of a table, as reports and Data Docs have it."""
    return JudgedRun(
        run_id=run_id,
        at=at,
        verdict=quality.verdict,
        checks=quality.checks,
        suite=quality.suite,
        where=quality.where,
        rows=quality.rows,
        dropped=quality.dropped,
        quarantined=quality.quarantined,
        released_by=quality.released_by,
        interval=interval,
    )


def hold_of(gate: GateState | None) -> Hold | None:
    """What holds a stream; None when it may go on."""
    if gate is None or gate.state == "open":
        return None
    return Hold(gate.state, gate.run_id, gate.failed, gate.released_by, gate.batch_id)


def require_judged(
    home: StreamHome, most: int, *, run_id: str | None = None, damaged: list[RefusedError] | None = None
) -> list[RunRecord]:
    """A judged run, and those before it, newest first.

    Args:
        home: The stream's folder in the home.
        most: How many in all.
        run_id: The run; the newest one that was judged when not given.
        damaged: Takes what is wrong with other records, which then hide none.

    Raises:
        DeclarationError: There is no such run, or no run was judged yet.
        RefusedError: A record is damaged.
        StorageError: The home can't be read.
    """
    records = judged_records(home, most, up_to=run_id, damaged=damaged)
    if not records and damaged:
        raise damaged[0]
    if not records or (run_id is not None and records[0].run_id != run_id):
        raise DeclarationError(
            f"run {run_id} was not judged" if run_id else "no run was judged yet",
            where=home.runs_folder(),
            remedy="name a run that `sluice quality` lists" if run_id else "declare `quality` and run the stream",
        )
    return records


def report_on(
    stream: str, home: StreamHome, damaged: list[RefusedError], *, most: int, run_id: str | None = None
) -> QualityReport:
    """Report on a run of a stream.

    Args:
        stream: The stream's name.
        home: Its folder in the home.
        damaged: Takes what is wrong with records that are left out; the report says which.
        most: Over how many runs trends go.
        run_id: The run; the newest one that was judged when not given.

    Raises:
        DeclarationError: There is no such run, or no run was judged yet.
        RefusedError: A file of the home is damaged.
        StorageError: The home can't be read.
    """
    records = require_judged(home, most, run_id=run_id, damaged=damaged)
    runs = [run for record in records if (run := judged_run(record)) is not None]
    hold = hold_of(read_gate(home))
    report = quality_report(stream, runs, hold if hold is not None and hold.run_id == runs[0].run_id else None)
    files = [(error.where or "").rpartition("/")[2].removesuffix(".json") for error in damaged]
    left_out = [f"The record of run `{file}` is damaged, and is left out." for file in files]
    return replace(report, remarks=(*report.remarks, *left_out))
