"""`sluice explain | state | diff`: how Spark runs a query, what its operators keep, and what its batches did."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from sluice.cli.opening import opened
from sluice.cli.options import AsJson, ProjectFolder, StreamName
from sluice.cli.printing import cell, print_json, print_table, spark_log_aside
from sluice.errors import DeclarationError
from sluice.extras import check_extra


def explain(
    stream: StreamName,
    batch: Annotated[int | None, typer.Option(min=0, help="This batch, by the records; starts no Spark.")] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show Spark's plan of the query as it is declared now; or that of a batch, with its watermarks and state."""
    from sluice.monitoring.explained_query import explained_batch, explained_query
    from sluice.project import find_project

    declared, home = opened(project, stream, None)
    if batch is not None:
        document = explained_batch(stream, home, batch)
    else:
        check_extra("spark", "`sluice explain`")
        with spark_log_aside("explain"):
            document = explained_query(find_project(project), declared)
    if as_json:
        print_json(document)
        return
    if batch is not None:
        print(f"{stream}: batch {batch} ({document['kind'].replace('_', ' ')}), of run {document['run_id']}")
        print(f"watermark: ran with {document['ran_with_watermark']}, left {document['left_watermark']}")
        for kept in document["state"]:
            print(
                f"state of {kept['operator']}: loaded version {kept['loaded_version']}, left {kept['left_version']};"
                f" {kept['rows']:,} rows, {kept['updated_rows']:,} updated, {kept['removed_rows']:,} removed,"
                f" {kept['late_rows']:,} late, {kept['memory_bytes']:,} bytes"
            )
    print(document["physical"] or "Spark has not explained the query")


def state(
    stream: StreamName,
    operator: Annotated[int | None, typer.Option(min=0, help="Which; the only one, unless there are several.")] = None,
    batch: Annotated[int | None, typer.Option(min=0, help="As this batch left it; as the newest, unless told.")] = None,
    changes_since: Annotated[
        int | None, typer.Option("--changes-since", min=0, help="What has changed, from this batch on.")
    ] = None,
    side: Annotated[str | None, typer.Option(metavar="left|right", help="Of a join.")] = None,
    variable: Annotated[str | None, typer.Option(help="Of a processor of transformWithState.")] = None,
    timers: Annotated[bool, typer.Option("--timers", help="Its timers.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many rows.")] = 20,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the state that a stream's operators keep, by Spark's own reader; the operators, where there are several."""
    from sluice.monitoring.state_document import operators_document, state_document, stateful_operators
    from sluice.project import find_project
    from sluice.spark.state_rows import StateView

    declared, home = opened(project, stream, None)
    if side not in {None, "left", "right"}:
        raise DeclarationError(f"there is no side `{side}`", where="--side", remedy="write left or right")
    checkpoint, operators = stateful_operators(home)
    if operator is None and len(operators) > 1:
        _show_operators(operators_document(stream, operators), as_json=as_json)
        return
    check_extra("spark", "`sluice state`")
    only = operators[0].operator_id if operators else 0
    view = StateView(only if operator is None else operator, batch, changes_since, side, variable, timers)
    with spark_log_aside("state"):
        document = state_document(find_project(project), declared, checkpoint, view, most=limit)
    if as_json:
        print_json(document)
        return
    what = "changes" if changes_since is not None else "state"
    title = f"{what} of operator {document['operator_id']} ({document['name']}), batch {document['batch']}"
    print_table(
        title, document["columns"], [[_shown(row[name]) for name in document["columns"]] for row in document["rows"]]
    )
    if document["has_more"]:
        print(f"the first {limit} rows; --limit shows more")


def diff(
    stream: StreamName,
    first: Annotated[int, typer.Argument(min=-1, metavar="A", help="The batch before; -1 for the beginning.")],
    last: Annotated[int, typer.Argument(min=0, metavar="B", help="The last batch that counts.")],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened between two batches: offsets, rows, state, watermark, settings, and who ran them."""
    from sluice.monitoring.batch_difference import batch_difference

    _, home = opened(project, stream, None)
    document = batch_difference(stream, home, first, last)
    if as_json:
        print_json(document)
        return
    print_table(
        f"{stream}: behind batch {first}, up to batch {last}",
        ("", f"batch {first}", f"batch {last}"),
        [(name, cell(found["from"]), cell(found["to"])) for name, found in _pairs(document)],
    )
    columns = ("batch", "run", "kind", "rows in", "rows out", "late", "quarantined", "dropped", "in state", "watermark")
    keys = ("batch_id", "run_id", "kind", "input_rows", "output_rows", "late_rows", "quarantined_rows", "dropped_rows")
    rows = [(*(found[key] for key in keys), found["state_rows"], found["watermark"]) for found in document["batches"]]
    print_table("Batches", columns, [*rows, _sums(document["totals"], keys)])
    for text in document["not_known"]:
        print(text)


def _pairs(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = [(f"source `{name}`", pair) for name, pair in document["sources"].items()]
    found += [("watermark", document["watermark"])]
    found += [(f"state of {name}, rows", pair) for name, pair in document["state"].items()]
    found += [(name, pair) for name, pair in document["conf"].items()]
    return [*found, *((f"{name} (fingerprint)", pair) for name, pair in document["declared"].items())]


def _sums(totals: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return ("sum", "", "", *(totals[key] for key in keys[3:]), "", "")


def _show_operators(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    rows = [tuple(map(cell, operator.values())) for operator in document["operators"]]
    columns = ("operator", "name", "partitions", "stores", "newest version", "variables", "time")
    print_table("Stateful operators (--operator shows the rows of one)", columns, rows)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
