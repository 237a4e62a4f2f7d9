"""The command line: parsing and printing only.

Each command imports what it needs when it runs, so that `sluice plan` starts in a fraction of a second.
"""

from __future__ import annotations

import difflib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from sluice.errors import DeclarationError, RefusedError, SluiceError, UnknownStreamError
from sluice.exit_code import leave_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sluice.home import StreamHome
    from sluice.planning.backfill import BackfillPlan
    from sluice.project import Project
    from sluice.quality.report import QualityReport
    from sluice.running.auditing.gate_state import GateState
    from sluice.running.preparation import Request
    from sluice.running.record import RunRecord
    from sluice.running.runner import Observer
    from sluice.stream import Stream

_COMMANDS_ELSEWHERE = {
    **dict.fromkeys(["start", "execute", "trigger", "submit"], "`sluice run STREAM` runs a stream once"),
    **dict.fromkeys(["build", "apply"], "`sluice run STREAM` runs a stream once"),
    **dict.fromkeys(
        ["explain", "compile", "dry-run", "dryrun", "diff"], "`sluice plan STREAM` says what a run would do"
    ),
    **dict.fromkeys(["test", "validate", "debug", "parse"], "`sluice check` checks every declaration"),
    **dict.fromkeys(["ls", "streams", "show"], "`sluice list` lists the streams"),
    **dict.fromkeys(["history", "log", "logs", "status"], "`sluice runs STREAM` lists the runs of a stream"),
    **dict.fromkeys(["checkpoint", "describe"], "`sluice inspect STREAM` shows a checkpoint"),
    **dict.fromkeys(["release", "audit", "suggest"], "it is a command of `sluice quality`"),
    **dict.fromkeys(["new", "create"], "`sluice init DIR` makes a project"),
    "schedule": "a DAG says when its streams run: `stream_dag(...)`",
}
"""What is typed as a command, and what to type."""
_OPTIONS_ELSEWHERE = {
    **dict.fromkeys(["--stream", "--select", "--model", "--name", "-s", "-m"], "name the stream without an option"),
    **dict.fromkeys(["--full-refresh", "--reset"], "a backfill recomputes an interval: `sluice backfill STREAM`"),
    **dict.fromkeys(["--from-date", "--start-date", "--event-time-start", "--from"], "write it as --start"),
    **dict.fromkeys(["--to-date", "--end-date", "--event-time-end", "--to"], "write it as --end"),
    **dict.fromkeys(["--trigger", "--once", "--available-now"], "leave it out: a run takes what is there and stops"),
    **dict.fromkeys(["--project-dir", "--profiles-dir"], "write it as --project"),
    **dict.fromkeys(["--dry-run", "-n"], "`sluice plan STREAM` says what a run would do"),
    **dict.fromkeys(["--batches", "--max-batch"], "write it as --max-batches"),
    **dict.fromkeys(["--master", "--conf"], "write it into `sluice.toml`, under [spark]"),
    "--checkpoint-location": "write it as --checkpoint",
    "--output": "write it as --json, and send the output where you want it",
}
"""What is typed as an option, and what to do."""


class _Answering(TyperGroup):
    """A group that answers the words of other tools with its own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed."""
        answer = _COMMANDS_ELSEWHERE.get(args[0]) if args[0] not in self.commands else None
        if answer is not None:
            ctx.fail(f"no command `{args[0]}`: {answer}")
        name, command, rest = super().resolve_command(ctx, args)
        known = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
        for word in rest:
            option = word.partition("=")[0]
            if option in _OPTIONS_ELSEWHERE and option not in known and "commands" not in vars(command):
                ctx.fail(f"no option `{option}` of `{name}`: {_OPTIONS_ELSEWHERE[option]}")
        return name, command, rest


app = typer.Typer(
    name="sluice",
    help="Streaming semantics on a batch schedule: plan in Python, run in Spark, audit, publish.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=_Answering,
    rich_markup_mode=None,
)
jars_app = typer.Typer(help="The jars that Spark needs beside its own.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(jars_app, name="jars")
profile_app = typer.Typer(
    help="The launch profile, with which Spark starts in half the time.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(profile_app, name="profile")


class _StreamFirst(_Answering):
    """A group whose first word may be a stream: then it is shown."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `show` in front of what is none of the group's own words."""
        if args and args[0] not in {*self.commands, "--help"}:
            if len(args) > 1 and not any(word.startswith("-") for word in args[:2]):
                # Only one stream can be shown: the first of two words is a command, misspelt.
                near = difflib.get_close_matches(args[0], self.commands, n=1)
                meant = f"did you mean `{near[0]}`?" if near else f"commands are: {', '.join(self.commands)}"
                ctx.fail(f"no command `{args[0]}`: {meant}")
            args = ["show", *args]
        return super().parse_args(ctx, args)


quality_app = typer.Typer(
    help="Verdicts and checks of a stream's last runs; what to do about those that failed.",
    cls=_StreamFirst,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(quality_app, name="quality")

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]
OptionalStreamName = Annotated[str | None, typer.Argument(metavar="[STREAM]", help="The stream's name.")]
ProjectFolder = Annotated[str | None, typer.Option("--project", help="The folder of sluice.toml, or one below it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Until = Annotated[str, typer.Option(help="Take only what arrived before this time (ISO 8601, UTC).")]
ToVersion = Annotated[int | None, typer.Option(help="Delta sources: take versions up to this one.")]
MaxBatches = Annotated[int | None, typer.Option(min=1, help="The most data batches.")]
StrategyName = Annotated[str | None, typer.Option("--strategy", metavar="exact|drain", help="How batches are decided.")]
Checkpoint = Annotated[str | None, typer.Option(help="Use this Spark checkpoint, whoever made it.")]


def main() -> None:
    """Run the command line; ends the process with the code that the error has."""
    leave_with(_run)


def _run() -> int:
    try:
        app()
    except SluiceError as exc:
        _print_error(exc)
        return exc.exit_code
    return 0


@app.command("init")
def init_project(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is empty, or new.")],
) -> None:
    """Make a project with a sample stream and data."""
    from sluice.spark import jars
    from sluice.template import create_project

    create_project(folder)
    for jar in jars.fetch():
        print(f"fetched {jar.file_name}", file=sys.stderr)
    print(f"Made a project in {folder}. Next:\n\n  cd {folder}\n  sluice plan visits\n  sluice run visits")


@app.command("list")
def list_streams(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """List the project's streams; a declaration that can't be read hides no other."""
    from sluice.display import print_table
    from sluice.project import find_project

    declarations = find_project(project).declarations()
    streams, errors = declarations.streams, declarations.errors()
    if as_json:
        _print_json([_described(declared.stream, declared.file) for declared in streams.values()])
    else:
        rows = [
            (name, ", ".join(found.stream.sources), found.stream.transform, found.stream.sink.kind, found.file)
            for name, found in streams.items()
        ]
        print_table("Streams", ("stream", "sources", "transform", "sink", "declared in"), rows)
    for _, error in errors:
        _print_error(error)
    if errors:
        raise typer.Exit(DeclarationError.exit_code)


@app.command("check")
def check(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Check every declaration, transform and query; print one line per problem."""
    from sluice.display import spark_log_aside
    from sluice.project import find_project
    from sluice.running.check import check_project

    with spark_log_aside("check"):
        findings = list(check_project(find_project(project)))
    if as_json:
        _print_json(
            [
                {
                    "stream": found.stream,
                    "file": found.file,
                    "error": None if found.error is None else _error(found.error),
                }
                for found in findings
            ]
        )
    else:
        for found in findings:
            if found.error is not None:
                place = found.error.where or found.file
                print(f"{place}: {found.stream or 'declarations'}: {found.error.problem}; {found.error.remedy}")
        wrong = sum(found.error is not None for found in findings)
        print(f"{len(findings)} checked, {wrong} with problems", file=sys.stderr)
    if any(found.error is not None for found in findings):
        raise typer.Exit(2)


@app.command("plan")
def plan(
    stream: StreamName,
    until: Until = "",
    to_version: ToVersion = None,
    max_batches: MaxBatches = None,
    strategy: StrategyName = None,
    checkpoint: Checkpoint = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Say what a run would do, and why. Starts no JVM, changes nothing."""
    from sluice.planning.explain import explain
    from sluice.running.preparation import plan_stream, refusal

    loaded, request = _request(project, stream, until, to_version, max_batches, strategy, checkpoint)
    made = plan_stream(loaded, request)
    if as_json:
        _print_json(made.as_json())
    else:
        print("\n".join(explain(made)))
    if made.problem is not None:
        raise typer.Exit(refusal(made.problem).exit_code)


@app.command("run")
def run(
    stream: StreamName,
    until: Until = "",
    to_version: ToVersion = None,
    max_batches: MaxBatches = None,
    strategy: StrategyName = None,
    run_key: Annotated[str | None, typer.Option(help="Name the run: a retry under the same name finishes it.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run a stream up to its bound, and stop."""
    from sluice.running.record import describe_batch, describe_quality
    from sluice.running.runner import run_stream
    from sluice.running.submit import stop_on_sigterm

    loaded, request = _request(project, stream, until, to_version, max_batches, strategy, None, run_key)
    record = _watched(
        loaded,
        request.stream,
        lambda observer: run_stream(loaded, request, observer=observer, stop=stop_on_sigterm()),
        as_json=as_json,
    )
    if not as_json:
        for batch in record.batches:
            print(f"  {describe_batch(batch)}")
        if record.quality is not None:
            print(f"  {describe_quality(record.quality)}")


@app.command("backfill")
def backfill(
    stream: StreamName,
    start: Annotated[str, typer.Option(help="The first moment of the interval (ISO 8601, UTC).")],
    end: Annotated[str, typer.Option(help="The end of the interval, exclusive.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do; starts no JVM.")] = False,
    run_key: Annotated[str | None, typer.Option(help="Name the run: a retry under the same name finishes it.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Recompute the rows of an interval from all that the live stream has read, and replace them."""
    import signal

    from sluice.project import find_project
    from sluice.running.backfill import backfill_stream
    from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
    from sluice.stream import Interval

    loaded = find_project(project)
    request = BackfillRequest(loaded.stream(stream), Interval.parse(start, end), run_key)
    if dry_run:
        plan = plan_backfill(loaded, request)
        if as_json:
            _print_json(plan.as_json())
        else:
            _print_backfill_plan(plan)
        if plan.verdict == "refuse":
            raise typer.Exit(3)
        return
    # There is no step to stop after: ended at once, the record says so, and a retry begins again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    record = _watched(
        loaded, request.stream, lambda observer: backfill_stream(loaded, request, observer=observer), as_json=as_json
    )
    if not as_json and (done := record.backfill) is not None:
        replaced = "?" if done.rows_replaced is None else f"{done.rows_replaced:,}"
        print(f"  {replaced} rows replaced by {done.rows_written or 0:,}, in version {done.sink_version}")


@app.command("inspect")
def inspect(
    stream: OptionalStreamName = None,
    checkpoint: Checkpoint = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what a checkpoint says: batches, watermark, offsets, state, problems."""
    from sluice.monitoring.inspection import inspect_checkpoint, inspect_stream
    from sluice.storage import Storage

    if stream is None and checkpoint is None:
        raise typer.BadParameter("name a stream, or give --checkpoint")
    if stream is None and checkpoint is not None:
        document = inspect_checkpoint(_absolute(checkpoint), Storage())
        if document["query_id"] is None and document["planned"] is None and not document["problems"]:
            raise DeclarationError(
                "there is no Spark checkpoint",
                where=_absolute(checkpoint),
                remedy="give the folder that has `offsets/`",
            )
    else:
        declared, home = _opened(project, stream or "", checkpoint)
        document = inspect_stream(declared, home, datetime.now(UTC))
    if as_json:
        _print_json(document)
        return
    _print_checkpoint(document)
    for problem in document["problems"]:
        print(f"{problem['code']}: {problem['cause']}\n  file: {problem['file']}")
        print(f"  consequence: {problem['consequence']}\n  remedy: {problem['remedy']}")


@app.command("runs")
def runs(
    stream: StreamName,
    last: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the newest runs of a stream."""
    import msgspec

    from sluice.running.record import RunRecords

    _, home = _opened(project, stream, None)
    records, damaged = RunRecords(home).newest_readable(last)
    checked = home.checked()
    if as_json:
        _print_json(
            {
                "stream": stream,
                "runs": [msgspec.to_builtins(record) for record in records],
                "damaged": [{"run_id": run_id, "error": _error(error)} for run_id, error in damaged.items()],
                "checked": None if checked is None else msgspec.to_builtins(checked),
            }
        )
        _report_damaged(damaged.values())
        return
    from sluice.display import print_table

    rows: list[tuple[Any, ...]] = [
        (
            record.run_id,
            record.status,
            record.reason if record.failure is None else record.failure.message,
            len(record.batches),
            sum(batch.input_rows or 0 for batch in record.batches),
            record.backfill.rows_written
            if record.backfill is not None
            else sum(batch.output_rows or 0 for batch in record.batches),
            record.batches[-1].watermark if record.batches else None,
        )
        for record in records
    ]
    rows += [(run_id, "damaged", error.problem, None, None, None, None) for run_id, error in damaged.items()]
    rows.sort(key=lambda row: row[0], reverse=True)
    print_table(f"Runs of {stream}", ("run", "status", "why", "batches", "rows in", "rows out", "watermark"), rows)
    if checked is not None:
        print(f"skipped {checked.skips} times since, last at {checked.checked_at}: {checked.reason}")
    _report_damaged(damaged.values())


@app.command("lag")
def lag(
    stream: StreamName, checkpoint: Checkpoint = None, project: ProjectFolder = None, as_json: AsJson = False
) -> None:
    """Show what waits in every source."""
    from sluice.monitoring.inspection import stream_lag

    declared, home = _opened(project, stream, checkpoint)
    now = datetime.now(UTC)
    lags = {name: found.as_json(now) for name, found in stream_lag(declared, home, now).items()}
    if as_json:
        _print_json({"stream": stream, "sources": lags})
        return
    from sluice.display import print_table

    columns = ("files", "bytes", "rows", "oldest", "age_seconds", "unreadable")
    rows = [(name, *(found[column] for column in columns)) for name, found in lags.items()]
    print_table(f"Lag of {stream}", ("source", *columns), rows)


@quality_app.command("show")
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
    from sluice.quality.data_docs import write_data_docs
    from sluice.quality.report import describe_hold, quality_report
    from sluice.quality.report_page import report_page
    from sluice.running.auditing.gate_state import read_gate
    from sluice.running.auditing.judged_runs import hold_of, judged_records, judged_run, report_on, require_judged

    try:
        declared, home = _opened(project, stream, None)
    except UnknownStreamError as exc:
        near = difflib.get_close_matches(stream, ["audit", "release", "show", "suggest"], n=1, cutoff=0.7)
        meant = f"did you mean `sluice quality {near[0]} STREAM`?" if near else exc.remedy
        raise UnknownStreamError(exc.problem, where=exc.where, remedy=meant) from exc
    damaged: list[RefusedError] = []
    if html is not None:
        page = report_page(report_on(declared.name, home, damaged, most=last, run_id=run_id))
        _write_file(html, page)
        print(f"wrote {html}", file=sys.stderr)
    if data_docs is not None:
        (record,) = require_judged(home, 1, run_id=run_id, damaged=damaged)
        print(f"wrote {write_data_docs(record, str(data_docs))}", file=sys.stderr)
    if html is not None or data_docs is not None:
        _report_damaged({error.where: error for error in damaged}.values())
        return
    records, gate = judged_records(home, last, up_to=run_id, damaged=damaged), read_gate(home)
    if as_json:
        _print_json(_quality_document(stream, gate, records))
        _report_damaged(damaged)
        return
    hold = hold_of(gate)
    if hold is not None:
        print(describe_hold(hold, stream).replace("`", ""))
    runs = [run for record in records if (run := judged_run(record)) is not None]
    if runs:
        _print_quality(quality_report(stream, runs, None))
    else:
        print(f"no run of {stream} was judged yet")
    _report_damaged(damaged)


@quality_app.command("audit")
def audit_quality(
    stream: StreamName,
    suite: Annotated[str | None, typer.Option(help="Another suite than the stream's.")] = None,
    where: Annotated[str | None, typer.Option(help="Only the rows that meet this, in Spark SQL.")] = None,
    from_version: Annotated[int | None, typer.Option(help="Only what this version and later ones added.")] = None,
    to_version: Annotated[int | None, typer.Option(help="The table as this version left it.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check the sink's table as it stands; exits with 4 when the verdict is `fail`."""
    import msgspec

    from sluice.display import spark_log_aside
    from sluice.errors import QualityFailedError
    from sluice.project import find_project
    from sluice.quality.report import quality_report
    from sluice.running.auditing.table_audit import TableAuditRequest, audit_table, check_audit, judged_audit

    loaded = find_project(project)
    request = TableAuditRequest(loaded.stream(stream), suite, where, from_version, to_version)
    check_audit(loaded, request)
    with spark_log_aside(stream):
        audit = audit_table(loaded, request)
    if as_json:
        _print_json(msgspec.to_builtins(audit))
    else:
        _print_quality(quality_report(stream, [judged_audit(audit)], None))
    if audit.quality.verdict == "fail":
        raise typer.Exit(QualityFailedError.exit_code)


@quality_app.command("release")
def release_quality(
    stream: StreamName,
    rows: Annotated[bool, typer.Option("--rows", help="Send repaired rows of the quarantine into the sink.")] = False,
    where: Annotated[str | None, typer.Option(help="With --rows: only those that meet this, in Spark SQL.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Let a blocked batch through or a held stream go on; with --rows, send back quarantined rows that pass by now."""
    from sluice.running.auditing.gate_state import release_gate

    if where is not None and not rows:
        raise typer.BadParameter("it needs --rows", param_hint="--where")
    if rows:
        _release_rows(project, stream, where, as_json=as_json)
        return
    _, home = _opened(project, stream, None)
    gate = release_gate(home, _user_name(), datetime.now(UTC))
    if as_json:
        _print_json({"stream": stream, "released": None if gate is None else _gate_document(gate)})
    elif gate is None:
        print(f"{stream}: nothing is blocked or held")
    elif gate.state == "blocked":
        print(f"{stream}: batch {gate.batch_id} of run {gate.run_id} goes through at the next run ({gate.failed})")
    else:
        print(f"{stream}: goes on, with the rows of run {gate.run_id} in its sink ({gate.failed})")


@quality_app.command("suggest")
def suggest_quality(
    stream: StreamName,
    output: Annotated[Path | None, typer.Option(help="Write the suite to this new file; else it is printed.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Look at this many rows at most.")] = 1_000_000,
    project: ProjectFolder = None,
) -> None:
    """Write a suite to edit, from what the sink's table has, or else what the sources have."""
    from sluice.display import spark_log_aside
    from sluice.documents import encode_document
    from sluice.project import find_project
    from sluice.running.auditing.suggestion import suggest

    if output is not None and output.exists():
        raise DeclarationError(
            "the file is there already", where=str(output), remedy="give a new one: what was edited is not written over"
        )
    loaded = find_project(project)
    with spark_log_aside(stream):
        suite = suggest(loaded, loaded.stream(stream), rows=rows, now=datetime.now(UTC))
    if output is None:
        _print_json(suite)
        return
    _write_file(output, encode_document(suite).decode(), mode="x")
    print(
        f"wrote {len(suite['expectations'])} expectations to {output}; edit it, then declare"
        f' Stream(quality="{output}")',
        file=sys.stderr,
    )


@jars_app.command("fetch")
def fetch_jars() -> None:
    """Bring every pinned jar into the shared cache, checked by hash."""
    from sluice.spark import jars

    for jar in jars.fetch():
        print(f"fetched {jar.file_name}", file=sys.stderr)
    print(f"{len(jars.manifest())} jars in {jars.cache_folder()}")


@jars_app.command("list")
def list_jars(as_json: AsJson = False) -> None:
    """List the pinned jars, and whether the cache has them."""
    from sluice.spark import jars

    rows = [(f"{jar.group}:{jar.artifact}:{jar.version}", str(jar.path()), jar.is_cached()) for jar in jars.manifest()]
    if as_json:
        _print_json([{"jar": jar, "path": path, "is_cached": cached} for jar, path, cached in rows])
        return
    from sluice.display import print_table

    print_table(
        "Jars", ("jar", "path", "cached"), [(jar, path, "yes" if cached else "no") for jar, path, cached in rows]
    )


@profile_app.command("build")
def build_launch_profile() -> None:
    """Build the profile of this Java and these jars, in a minute; runs take it from then on."""
    from sluice.spark.profile_build import build_profile
    from sluice.training import train

    profile = build_profile(train)
    print(f"launch profile in {profile.folder}")


@profile_app.command("show")
def show_launch_profile(as_json: AsJson = False) -> None:
    """Show whether runs are started with a profile, and why not."""
    from sluice.errors import RunError
    from sluice.spark.launch_profile import current_profile

    document: dict[str, Any] = {"usable": False, "reason": None, "folder": None, "java": None}
    try:
        profile = current_profile()
        document |= {"folder": str(profile.folder), "java": profile.installation.java}
        reason, record = profile.why_unfit(), profile.record()
        document |= {"usable": reason is None, "reason": reason}
        if record is not None:
            document |= {"built_at": record.built_at.isoformat(), "archive_bytes": record.archive_bytes}
    except RunError as exc:
        document["reason"] = str(exc)
    if as_json:
        _print_json(document)
        return
    from sluice.display import print_table

    print_table("Launch profile", ("", ""), list(document.items()))


def _request(
    project: str | None,
    stream: str,
    until: str,
    to_version: int | None,
    max_batches: int | None,
    strategy: str | None,
    checkpoint: str | None,
    run_key: str | None = None,
) -> tuple[Project, Request]:
    from dataclasses import replace

    from sluice.planning.planner import Limits
    from sluice.project import find_project
    from sluice.running.preparation import Request
    from sluice.stream import Bound
    from sluice.times import parse_time

    if strategy not in (None, "exact", "drain"):
        raise typer.BadParameter(f"{strategy!r} is neither exact nor drain", param_hint="--strategy")
    loaded = find_project(project)
    declared = loaded.stream(stream)
    if checkpoint is not None:
        declared = replace(declared, checkpoint=_absolute(checkpoint))
    bound = Bound(until=parse_time(until), to_version=to_version)
    return loaded, Request(declared, Limits(bound, max_batches, strategy), run_key)  # type: ignore[arg-type]


def _opened(project: str | None, stream: str, checkpoint: str | None) -> tuple[Stream, StreamHome]:
    from dataclasses import replace

    from sluice.project import find_project

    loaded = find_project(project)
    declared = loaded.stream(stream)
    if checkpoint is not None:
        declared = replace(declared, checkpoint=_absolute(checkpoint))
    return declared, loaded.stream_home(declared)


def _watched(project: Project, stream: Stream, work: Callable[[Observer], RunRecord], *, as_json: bool) -> RunRecord:
    """Run a stream under a progress display, and print the record's head, or all of it; as JSON also a failed one's."""
    import msgspec

    from sluice.display import progress
    from sluice.spark.profile_build import build_in_background

    try:
        with progress(stream.name) as observer:
            record = work(observer)
    except SluiceError as exc:
        failed = _read_record(project, stream, exc.run_id) if as_json and exc.run_id else None
        if failed is None:
            raise
        _print_json(failed)
        _print_error(exc)
        raise typer.Exit(exc.exit_code) from exc
    if record.status != "skipped":
        build_in_background()
    if as_json:
        _print_json(msgspec.to_builtins(record))
    else:
        print(f"{record.stream}: {record.status} ({record.reason})")
    return record


def _read_record(project: Project, stream: Stream, run_id: str) -> Any:
    import msgspec

    from sluice.running.record import RunRecords

    record = RunRecords(project.stream_home(stream)).read(run_id)
    return None if record is None else msgspec.to_builtins(record)


def _described(stream: Stream, file: str) -> dict[str, Any]:
    return {
        "stream": stream.name,
        "sources": {name: {"kind": source.kind, "path": source.location} for name, source in stream.sources.items()},
        "transform": stream.transform,
        "sink": {"kind": stream.sink.kind, "path": stream.sink.location},
        "output_mode": stream.output_mode,
        "file": file,
    }


def _absolute(path: str) -> str:
    from sluice.storage import is_local

    return str(Path(path).absolute()) if is_local(path) and not path.startswith("file:") else path


def _print_backfill_plan(plan: BackfillPlan) -> None:
    from sluice.planning.backfill import downstream_effect
    from sluice.planning.explain import explain_gate, explain_problem
    from sluice.times import iso_time

    print(f"{plan.stream}, generation {plan.generation}: {plan.verdict} ({plan.reason})")
    print(f"  from {iso_time(plan.interval.start)} to {iso_time(plan.interval.end)}, exclusive")
    if plan.quality is not None:
        print("\n".join(explain_gate(plan.quality)))
    if plan.left_to_spark:
        print("  checked by Spark at the start, before anything is replaced:")
        print("\n".join(f"    {found}" for found in plan.left_to_spark))
    for found in plan.downstream:
        effect = downstream_effect(skips_changes=found.skips_changes, only_adds=found.only_adds)
        print(f"  downstream: {found.stream} {effect}")
    if plan.problem is not None:
        print("\n".join(explain_problem(plan.problem, "refused")))


def _print_checkpoint(document: dict[str, Any]) -> None:
    from sluice.display import print_table

    nested = {"sources", "operators", "lag", "problems"}
    print_table("Checkpoint", ("", ""), [(key, value) for key, value in document.items() if key not in nested])
    offsets, lags = document["sources"], document["lag"]
    if offsets or lags:
        waiting = ("files", "bytes", "oldest", "unreadable")
        rows = [(name, _cell(offsets.get(name)), *map(lags.get(name, {}).get, waiting)) for name in offsets | lags]
        columns = ("source", "read up to", "files waiting", "bytes waiting", "oldest", "unreadable")
        print_table("Sources", columns, rows)
    if document["operators"]:
        rows = [tuple(map(_cell, operator.values())) for operator in document["operators"]]
        print_table("Stateful operators", ("operator", "name", "partitions", "stores", "newest version"), rows)


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
    from sluice.display import print_table
    from sluice.times import iso_time

    rows = [
        (
            run.run_id,
            run.verdict,
            f"{sum(not check.get('success') for check in run.checks)} of {len(run.checks)}",
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


def _release_rows(project: str | None, stream: str, where: str | None, *, as_json: bool) -> None:
    import msgspec

    from sluice.display import spark_log_aside
    from sluice.project import find_project
    from sluice.running.auditing.release_rows import release_rows

    loaded = find_project(project)
    with spark_log_aside(stream):
        done = release_rows(loaded, loaded.stream(stream), where, _user_name())
    if as_json:
        released, finished = (msgspec.to_builtins(found) for found in (done.release, done.finished))
        _print_json({"stream": stream, "release": released, "finished": finished})
        return
    for release in done.finished:
        print(f"{stream}: finished release {release.release_id} by {release.released_by}; rows sent: {release.rows:,}")
    stay = f"; rows that still fail, and stay: {done.release.left:,}" if done.release.left else ""
    print(f"{stream}: rows sent from the quarantine to the sink: {done.release.rows:,}{stay}")


def _report_damaged(damaged: Iterable[RefusedError]) -> None:
    """Say which records can't be read, after all others were shown."""
    code = 0
    for error in damaged:
        _print_error(error)
        code = error.exit_code
    if code:
        raise typer.Exit(code)


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number that has no name.
        return "somebody"


def _write_file(file: Path, text: str, *, mode: Literal["w", "x"] = "w") -> None:
    from sluice.storage import open_private

    try:
        # Reports and suites show values of the data.
        with open(file, mode, encoding="utf-8", opener=open_private) as opened:
            opened.write(text)
    except OSError as exc:
        raise DeclarationError(
            f"the file can't be written: {exc.strerror}", where=str(file), remedy="give another one"
        ) from exc


def _cell(value: Any) -> Any:
    import msgspec

    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value


def _error(error: SluiceError) -> dict[str, Any]:
    return {"type": type(error).__name__, "problem": error.problem, "where": error.where, "remedy": error.remedy}


def _print_json(document: Any) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _print_error(error: SluiceError) -> None:
    print(f"error: {error.problem}", file=sys.stderr)
    if error.where:
        print(f"  where: {error.where}", file=sys.stderr)
    if error.remedy:
        print(f"  what to do: {error.remedy}", file=sys.stderr)


if __name__ == "__main__":
    main()
