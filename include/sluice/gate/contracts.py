"""Contracts: what a suite asks of the columns of a source, checked when a run is planned. Starts no JVM.

An expectation about columns with `source` in its `meta.sluice` speaks of that source, not of the result.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from sluice.errors import DeclarationError, Problem
from sluice.plan import PlannedBatch
from sluice.quality.column_contracts import check_schema
from sluice.quality.columns import Schema
from sluice.quality.suite import Expectation, Suite
from sluice.storage import Storage
from sluice.stream import Stream


def broken_contracts(
    stream: Stream, suite: Suite, batches: tuple[PlannedBatch, ...], *, storage: Storage
) -> Iterator[Problem]:
    """What the sources' columns are not as the suite asks; blocking ones are those with the policy `fail`.

    Args:
        stream: The declaration, with absolute locations.
        suite: Its suite.
        batches: What is planned; of files that know their columns, the newest of these is looked at.
        storage: Where the sources are.

    Raises:
        DeclarationError: A contract names no source, or one that does not tell its columns.
        StorageError: A source can't be read right now.
    """
    known: dict[str, Schema] = {}
    for expectation in suite.contracts:
        name = expectation.source or ""
        if name not in known:
            known[name] = _columns(stream, expectation, batches, storage)
        problem = _broken(expectation, known[name])
        if problem is not None:
            yield Problem(
                code="CONTRACT_BROKEN",
                file=stream.sources[name].location,
                cause=f"the columns of `{name}` break the contract in `{suite.name}`: `{expectation.type}`, {problem}",
                consequence="the transform would make something else of it, or fail in the middle of a batch",
                remedy=f"let the source be as it was, or correct the contract ({expectation.place}) and the transform",
                is_blocking=expectation.policy == "fail",
            )


def _columns(stream: Stream, expectation: Expectation, batches: tuple[PlannedBatch, ...], storage: Storage) -> Schema:
    name = expectation.source or ""
    if name not in stream.sources:
        near = difflib.get_close_matches(name, stream.sources, n=1)
        raise DeclarationError(
            f"there is no source `{name}`",
            where=expectation.place,
            remedy=f"did you mean `{near[0]}`?" if near else f"the sources are: {', '.join(stream.sources)}",
        )
    found = source_columns(stream, name, batches, storage=storage)
    if found is None:
        raise DeclarationError(
            f"source `{name}` does not tell its columns before Spark starts",
            where=expectation.place,
            remedy="leave out `source`: the columns of the result are checked before anything runs",
        )
    return found


def source_columns(stream: Stream, name: str, batches: tuple[PlannedBatch, ...], *, storage: Storage) -> Schema | None:
    """The columns that a source has, before Spark starts; None where it does not tell.

    Args:
        stream: The declaration, with absolute locations.
        name: The source.
        batches: What is planned; of files that know their columns, the newest of these is looked at.
        storage: Where the source is.

    Raises:
        StorageError: It can't be read right now.
    """
    entries = [entry for batch in batches if name in batch.sources for entry in batch.sources[name].added.entries]
    found = stream.sources[name].columns(entries[-1].path if entries else None, storage=storage)
    return None if found is None else Schema.of(found)


def _broken(expectation: Expectation, schema: Schema) -> str | None:
    """What is not as it should be; None when nothing is."""
    arguments: Mapping[str, object] = expectation.arguments
    column = arguments.get("column")
    if isinstance(column, str) and expectation.type != "expect_column_to_exist":
        try:
            schema.find(column, place=expectation.place)
        except DeclarationError as exc:
            return f"{exc.problem}; {exc.remedy}"
    found = check_schema(expectation, schema)
    if found.success:
        return None
    observed = found.result.get("observed_value")
    said = f" it is {observed}" if isinstance(observed, str | int) else f" they are {', '.join(schema.names)}"
    return (f"`{column}`:" if column else "columns:") + said
