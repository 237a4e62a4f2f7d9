"""Tells lineage servers of audits and returns, as they begin and as they end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sluice.errors import SluiceError
from sluice.gate.returned_rows import RowReturn
from sluice.lineage.sending import tell_work
from sluice.lineage.table_work import TableWork
from sluice.project import Project
from sluice.redaction import redacted
from sluice.stream import Stream
from sluice.times import Clock, parse_time


@contextmanager
def told_work(project: Project, stream: Stream, begun: TableWork, clock: Clock) -> Iterator[list[TableWork]]:
    """Tell that something begins, and at the end of the block what is done by then, or why it failed.

    Args:
        project: The project.
        stream: The stream whose tables it is about.
        begun: What begins.
        clock: Tells the time.

    Yields:
        A list that takes what is done.
    """
    tell_work(project, stream, begun)
    done: list[TableWork] = []
    try:
        yield done
    except BaseException as exc:
        # Where it went wrong may be a condition, which tells what others must not read.
        told = redacted(exc.problem) if isinstance(exc, SluiceError) else type(exc).__name__
        tell_work(project, stream, replace(begun, ended_at=clock(), error=told))
        raise
    for work in done:
        tell_work(project, stream, replace(work, ended_at=clock()))


def works_of(returns: Iterable[RowReturn], project: Project, stream: Stream, clock: Clock) -> Iterator[TableWork]:
    """Returns of rows, each from the quarantine into the sink as declared then, where both are known outside."""
    for found in returns:
        table = stream.quarantine_table if found.quarantine is None else found.quarantine.sink(project)
        sink = stream.sink if found.sink is None else found.sink.sink(project)
        if table is not None and table.dataset is not None:
            yield TableWork(
                kind="release",
                work_id=found.return_id,
                # Documents of earlier versions may not tell.
                began_at=parse_time(found.began_at) or clock(),
                reads=table.dataset,
                writes=sink.dataset,
                rows=found.rows if found.is_over else None,
            )
