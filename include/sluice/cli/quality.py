"""`sluice quality show | audit | release | suggest`: what was judged, and what to do about it."""

from __future__ import annotations

import difflib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.opening import opened
from sluice.cli.options import AsJson, ProjectFolder, StreamName
from sluice.cli.printing import print_json, report_damaged, write_file
from sluice.errors import DeclarationError, RefusedError, UnknownStreamError
from sluice.extras import check_extra

if TYPE_CHECKING:
    from sluice.gate.state import GateState
    from sluice.quality.report import QualityReport
    from sluice.runs.record import RunRecord


def show_quality(
    stream: StreamName,
    last: Annotated[int, typer.Option(min=1, help="How many judged runs, newest first.")] = 20,
    run_id: Annotated[str | None, typer.Option("--run", help="Begin with this run; the newest by default.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report page to this file instead.")] = None,
    data_docs: Annotated[
        Path | None, typer.Option("--data-docs", help="Let Great Expectations write its pages to this folder instead.")
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what quality said of the last runs (the default: `sluice quality STREAM`)."""
    from sluice.gate.judged_runs import hold_of, judged_records, judged_run, report_on, require_judged
    from sluice.gate.state import read_gate
    from sluice.quality.data_docs import write_data_docs
    from sluice.quality.report import describe_hold, quality_report
    from sluice.quality.report_page import report_page

    try:
        declared, home = opened(project, stream, None)
    except UnknownStreamError as exc:
        near = difflib.get_close_matches(stream, ["audit", "release", "show", "suggest"], n=1, cutoff=0.7)
        meant = f"did you mean `sluice quality {near[0]} STREAM`?" if near else exc.remedy
        raise UnknownStreamError(exc.problem, where=exc.where, remedy=meant) from exc
    damaged: list[RefusedError] = []
    if html is not None:
        page = report_page(report_on(declared.name, home, damaged, most=last, run_id=run_id))
        write_file(html, page)
        print(f"wrote {html}", file=sys.stderr)
    if data_docs is not None:
        (record,) = require_judged(home, 1, run_id=run_id, damaged=damaged)
        print(f"wrote {write_data_docs(record, str(data_docs))}", file=sys.stderr)
    if html is not None or data_docs is not None:
        report_damaged({error.where: error for error in damaged}.values())
        return
    gate = read_gate(home)
    if run_id is None:
        records = judged_records(home, last, damaged=damaged)
    else:
        records = require_judged(home, last, run_id=run_id, damaged=damaged)
    if as_json:
        print_json(_quality_document(stream, gate, records))
        report_damaged(damaged)
        return
    hold = hold_of(gate)
    if hold is not None:
        print(describe_hold(hold, stream).replace("`", ""))
    runs = [run for record in records if (run := judged_run(record)) is not None]
    if runs:
        _print_quality(quality_report(stream, runs, None))
    else:
        print(f"no run of {stream} was judged yet")
    report_damaged(damaged)


def audit_quality(
    stream: StreamName,
    suite: Annotated[str | None, typer.Option(help="Another suite than the stream's.")] = None,
    where: Annotated[str | None, typer.Option(help="Only the rows that meet this, in Spark SQL.")] = None,
    from_version: Annotated[
        int | None, typer.Option(min=0, help="Only what this version and later ones added.")
    ] = None,
    to_version: Annotated[int | None, typer.Option(min=0, help="The table as this version left it.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check the sink's table as it stands; exits with 4 when the verdict is `fail`."""
    import msgspec

    check_extra("spark", "`sluice quality audit`")
    from sluice.auditing.table_audit import TableAuditRequest, audit_table, check_audit, judged_audit
    from sluice.cli.printing import spark_log_aside
    from sluice.errors import QualityFailedError
    from sluice.project import find_project
    from sluice.quality.report import quality_report

    loaded = find_project(project)
    request = TableAuditRequest(loaded.stream(stream), suite, where, from_version, to_version)
    check_audit(loaded, request)
    with spark_log_aside(stream):
        audit = audit_table(loaded, request)
    if as_json:
        print_json(msgspec.to_builtins(audit))
    else:
        _print_quality(quality_report(stream, [judged_audit(audit)], None))
    if audit.quality.verdict == "fail":
        raise typer.Exit(QualityFailedError.exit_code)


def release_quality(
    stream: StreamName,
    rows: Annotated[bool, typer.Option("--rows", help="Send repaired rows of the quarantine into the sink.")] = False,
    where: Annotated[str | None, typer.Option(help="With --rows: only those that meet this, in Spark SQL.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Let a blocked batch through or a held stream go on; with --rows, send back quarantined rows that pass by now."""
    from sluice.gate.state import release_gate

    if where is not None and not rows:
        raise typer.BadParameter("it needs --rows", param_hint="--where")
    if rows:
        _return_rows(project, stream, where, as_json=as_json)
        return
    _, home = opened(project, stream, None)
    gate = release_gate(home, _user_name(), datetime.now(UTC))
    if as_json:
        print_json({"stream": stream, "released": None if gate is None else _gate_document(gate)})
    elif gate is None:
        print(f"{stream}: nothing is blocked or held")
    elif gate.state == "blocked":
        print(f"{stream}: batch {gate.batch_id} of run {gate.run_id} goes through at the next run ({gate.failed})")
    else:
        print(f"{stream}: goes on, with the rows of run {gate.run_id} in its sink ({gate.failed})")


def suggest_quality(
    stream: StreamName,
    output: Annotated[Path | None, typer.Option(help="Write the suite to this new file; else it is printed.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Look at this many rows at most.")] = 1_000_000,
    project: ProjectFolder = None,
) -> None:
    """Write a suite to edit, from what the sink's table has, or else what the sources have."""
    check_extra("spark", "`sluice quality suggest`")
    from sluice.auditing.suggestion import suggest
    from sluice.cli.printing import spark_log_aside
    from sluice.documents import encode_document
    from sluice.project import find_project

    if output is not None and output.exists():
        raise DeclarationError(
            "the file is there already", where=str(output), remedy="give a new one: what was edited is not written over"
        )
    if output is not None and not output.parent.is_dir():
        raise DeclarationError(
            "the folder is not there", where=str(output.parent), remedy="make it, or give another one"
        )
    loaded = find_project(project)
    with spark_log_aside(stream):
        suite = suggest(loaded, loaded.stream(stream), rows=rows, now=datetime.now(UTC))
    if output is None:
        print_json(suite)
        return
    write_file(output, encode_document(suite).decode(), mode="x")
    print(
        f"wrote {len(suite['expectations'])} expectations to {output}; edit it, then declare"
        f' Stream(quality="{output}")',
        file=sys.stderr,
    )


def _quality_document(stream: str, gate: GateState | None, records: list[RunRecord]) -> dict[str, Any]:
    import msgspec

    from sluice.times import iso_time

    runs = [
        {
            "run_id": record.run_id,
            "status": record.status,
            "started_at": record.started_at or iso_time(record.planned_at),
            "interval": None if record.interval is None else msgspec.to_builtins(record.interval),
            "quality": msgspec.to_builtins(record.quality),
        }
        for record in records
    ]
    return {"stream": stream, "gate": None if gate is None else _gate_document(gate), "runs": runs}


def _gate_document(gate: GateState) -> dict[str, Any]:
    names = ("state", "run_id", "generation", "since", "batch_id", "failed", "released_by")
    return {name: getattr(gate, name) for name in names}


def _print_quality(report: QualityReport) -> None:
    from sluice.cli.printing import print_table
    from sluice.times import iso_time

    rows = [
        (
            run.run_id,
            run.verdict,
            f"{sum(not check.success for check in run.checks)} of {len(run.checks)}",
            run.rows,
            run.dropped or None,
            run.quarantined or None,
            run.released_by,
            run.interval or iso_time(run.at),
        )
        for run in report.runs
    ]
    columns = ("run", "verdict", "failed", "rows", "dropped", "quarantined", "released by", "when")
    print_table(f"Quality of {report.stream}", columns, rows)
    checks = [
        (
            "passed" if check.success else "FAILED",
            check.policy,
            check.rule.replace("`", ""),
            check.finding.replace("`", ""),
        )
        for check in report.checks
    ]
    print_table(f"Checks of run {report.run.run_id}", ("", "policy", "what must hold", "what was seen"), checks)


def _return_rows(project: str | None, stream: str, where: str | None, *, as_json: bool) -> None:
    import msgspec

    check_extra("spark", "`sluice quality release --rows`")
    from sluice.auditing.return_rows import return_rows
    from sluice.cli.printing import spark_log_aside
    from sluice.lineage.sending import lineage_sent
    from sluice.project import find_project

    loaded = find_project(project)
    with spark_log_aside(stream), lineage_sent():
        done = return_rows(loaded, loaded.stream(stream), where, _user_name())
    if as_json:
        returned, finished = (msgspec.to_builtins(found) for found in (done.returned, done.finished))
        print_json({"stream": stream, "release": returned, "finished": finished})
        return
    for found in done.finished:
        print(f"{stream}: finished release {found.return_id} by {found.returned_by}; rows sent: {found.rows:,}")
    why = "they still fail, or their batch is not finished"
    stay = f"; rows that stay ({why}): {done.returned.left:,}" if done.returned.left else ""
    print(f"{stream}: rows sent from the quarantine to the sink: {done.returned.rows:,}{stay}")


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number that has no name.
        return "somebody"
