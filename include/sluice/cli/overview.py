"""`sluice list | inspect | runs | lag`: what there is, and how it stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sluice.amounts import UNITS
from sluice.cli.opening import absolute, opened
from sluice.cli.options import AsJson, Checkpoint, OptionalStreamName, ProjectFolder, StreamName
from sluice.cli.printing import cell, error_document, print_error, print_json, report_damaged
from sluice.errors import DeclarationError, Problem
from sluice.stream import Stream

_MOST_PARTITIONS = 20
"""How many of a source's partitions are printed."""


def list_streams(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """List the project's streams; a declaration that can't be read hides no other."""
    from sluice.cli.printing import print_table
    from sluice.project import find_project

    found = find_project(project)
    declarations, views = found.declarations(), found.flows().views
    streams, errors = declarations.streams, declarations.errors()
    if as_json:
        print_json(
            [
                *(_described(declared.stream, declared.file) for declared in streams.values()),
                *({"materialized_view": view.name, "file": view.file} for view in views),
            ]
        )
    else:
        rows = [
            (name, ", ".join(found.stream.sources), found.stream.transform_name, found.stream.sink.kind, found.file)
            for name, found in streams.items()
        ]
        print_table("Streams", ("stream", "sources", "transform", "sink", "declared in"), rows)
        if views:
            computed = [(view.name, f"{view.file}:{view.line}") for view in views]
            print_table("Materialized views, computed by `spark-pipelines run`", ("view", "defined in"), computed)
    for _, error in errors:
        print_error(error)
    if errors:
        raise typer.Exit(DeclarationError.exit_code)


def inspect(
    stream: OptionalStreamName = None,
    checkpoint: Checkpoint = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what a checkpoint says: batches, watermark, offsets, state, problems."""
    from sluice.monitoring.inspection import inspect_checkpoint, inspect_stream
    from sluice.planning.explain import explain_problem
    from sluice.storage import Storage

    if stream is None and checkpoint is None:
        raise typer.BadParameter("name a stream, or give --checkpoint")
    if stream is None and checkpoint is not None:
        document = inspect_checkpoint(absolute(checkpoint), Storage())
        if document["query_id"] is None and document["planned"] is None and not document["problems"]:
            raise DeclarationError(
                "there is no Spark checkpoint",
                where=absolute(checkpoint),
                remedy="give the folder that has `offsets/`",
            )
    else:
        declared, home = opened(project, stream or "", checkpoint)
        document = inspect_stream(declared, home, datetime.now(UTC))
    if as_json:
        print_json(document)
        return
    _print_checkpoint(document)
    for problem in document["problems"]:
        print("\n".join(explain_problem(Problem(**problem))))


def runs(
    stream: StreamName,
    last: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the newest runs of a stream."""
    import msgspec

    from sluice.planning.explain import explain_problem
    from sluice.runs.balance import balance_of, broken_balance
    from sluice.runs.record import RunRecords

    _, home = opened(project, stream, None)
    records, damaged = RunRecords(home).newest_readable(last)
    checked = home.checked()
    if as_json:
        print_json(
            {
                "stream": stream,
                "runs": [msgspec.to_builtins(record) for record in records],
                "damaged": [{"run_id": run_id, "error": error_document(error)} for run_id, error in damaged.items()],
                "checked": None if checked is None else msgspec.to_builtins(checked),
            }
        )
        report_damaged(damaged.values())
        return
    from sluice.cli.printing import print_table

    rows: list[tuple[Any, ...]] = [
        (
            record.run_id,
            record.status,
            record.plan.reason if record.error is None else record.error.message,
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
    for record in reversed(records):
        if (problem := broken_balance(record)) is not None:
            print("\n".join(explain_problem(problem)))
        elif record is records[0] and (balance := balance_of(record)) is not None:
            print(f"run {record.run_id}: {balance.text}")
    if checked is not None:
        print(f"skipped {checked.skips} times since, last at {checked.checked_at}: {checked.reason}")
    report_damaged(damaged.values())


def lag(
    stream: StreamName, checkpoint: Checkpoint = None, project: ProjectFolder = None, as_json: AsJson = False
) -> None:
    """Show what waits in every source."""
    from sluice.monitoring.inspection import stream_lag

    declared, home = opened(project, stream, checkpoint)
    now = datetime.now(UTC)
    lags = {name: found.as_json(now) for name, found in stream_lag(declared, home, now).items()}
    if as_json:
        print_json({"stream": stream, "sources": lags})
        return
    from sluice.cli.printing import print_table

    columns = (*_waiting(lags.values()), "oldest", "age_seconds", "held_back", "unreadable")
    rows = [(name, *(found[column] for column in columns)) for name, found in lags.items()]
    print_table(f"Lag of {stream}", ("source", *columns), rows)
    for name, found in lags.items():
        _print_partitions(name, found["partitions"])
    for pending in {found["pending_batch"] for found in lags.values()} - {None}:
        print(f"batch {pending} is planned and not committed: what it takes is not counted above")


def _print_partitions(source: str, partitions: Mapping[str, Mapping[str, int]]) -> None:
    """Those in which something waits, most first."""
    from sluice.cli.printing import print_table

    waiting = sorted((found["offsets"], name) for name, found in partitions.items() if found["offsets"])[::-1]
    if not waiting:
        return
    rows = [(name, *map(partitions[name].get, ("read", "end", "offsets"))) for _, name in waiting[:_MOST_PARTITIONS]]
    print_table(f"Partitions of {source}", ("partition", "read up to", "reaches", "offsets"), rows)
    left = len(waiting) - len(rows)
    if left:
        print(f"{left} more have fewer offsets each; `--json` has them all")


def _waiting(lags: Collection[Mapping[str, Any]]) -> tuple[str, ...]:
    """In which units any source tells what waits; where one tells in none, also in batches."""
    units = tuple(unit for unit in UNITS if any(lag.get(unit) is not None for lag in lags))
    is_uncounted = any(lag.get("unreadable") is None and all(lag.get(unit) is None for unit in UNITS) for lag in lags)
    return (*units, "batches") if is_uncounted else units


def _described(stream: Stream, file: str) -> dict[str, Any]:
    several = {name: {"kind": one.sink.kind, "path": one.sink.location} for name, one in stream.outputs.items()}
    return {
        "stream": stream.name,
        "sources": {name: {"kind": source.kind, "path": source.location} for name, source in stream.sources.items()},
        "transform": stream.transform_name,
        "sink": {"kind": stream.sink.kind, "path": stream.sink.location},
        **({"sinks": several} if several else {}),
        "output_mode": stream.output_mode,
        "file": file,
    }


def _print_checkpoint(document: dict[str, Any]) -> None:
    from sluice.cli.printing import print_table

    nested = {"sources", "operators", "watermarks", "state", "lag", "problems"}
    print_table("Checkpoint", ("", ""), [(key, value) for key, value in document.items() if key not in nested])
    offsets, lags = document["sources"], document["lag"]
    if offsets or lags:
        units = _waiting(lags.values())
        waiting = (*units, "oldest", "held_back", "unreadable")
        rows = [(name, cell(offsets.get(name)), *map(lags.get(name, {}).get, waiting)) for name in offsets | lags]
        told = (*(f"{unit} waiting" for unit in units), "oldest", "set aside", "unreadable")
        columns = ("source", "read up to", *told)
        print_table("Sources", columns, rows)
    if document["operators"]:
        rows = [tuple(map(cell, operator.values())) for operator in document["operators"]]
        print_table("Stateful operators", ("operator", "name", "partitions", "stores", "newest version"), rows)
    if document.get("state"):
        rows = [tuple(map(cell, kept.values())) for kept in document["state"]]
        columns = ("operator", "rows", "updated", "removed", "late rows", "bytes of memory")
        print_table("State after the newest batch", columns, rows)
    if document.get("watermarks"):
        rows = [
            (found["input"], found["watermark"], found["newest_event"]) for found in document["watermarks"]["inputs"]
        ]
        print_table("Watermarks", ("input", "watermark", "newest event"), rows)
