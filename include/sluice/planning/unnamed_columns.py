"""Columns that are declared of a table which is not there yet, and that nothing of the stream has a name for.

What columns a transform makes, only Spark knows. But a name that no source has, and that stands nowhere in the text of
the transform, is most often a mistake in writing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from sluice.errors import Problem, StorageError
from sluice.gate.contracts import source_columns
from sluice.plan import Plan
from sluice.planning.transform_text import transform_texts
from sluice.project import Project
from sluice.storage import Storage
from sluice.stream import Stream


def unnamed_columns(project: Project, stream: Stream, plan: Plan, *, storage: Storage) -> Iterator[Problem]:
    """Warn of each; where a source or the transform does not tell its names, of none."""
    declared = dict.fromkeys([*stream.sink.partition_columns, *filter(None, [stream.interval_column])])
    names = _columns(stream, plan, storage) if declared else None
    texts = transform_texts(project, stream) if names is not None else None
    if names is None or texts is None:
        return
    written = b"\n".join(texts.values()).decode("utf-8", "replace")
    text, had = written.lower(), {name.lower() for name in names}
    known = {name.lower(): name for name in [*re.findall(r"[^\W\d]\w+", written), *names]}
    for column in declared:
        if column.lower() in had or column.lower() in text:
            continue
        near = difflib.get_close_matches(column.lower(), known, n=1, cutoff=0.8)
        yield Problem(
            code="COLUMN_NOT_NAMED",
            file=stream.declared_at or stream.place,
            cause=f"the table is to have a column `{column}`: no source has it, and the transform does not name it",
            consequence="if the transform makes none of that name, the run is refused once Spark is there",
            remedy=f"did you mean `{known[near[0]]}`?" if near else "correct the name; `sluice check` asks Spark",
            is_blocking=False,
        )


def _columns(stream: Stream, plan: Plan, storage: Storage) -> list[str] | None:
    """The names of the columns that the sources have; None where one does not tell."""
    names: list[str] = []
    for name in stream.sources:
        try:
            found = source_columns(stream, name, plan.batches, storage=storage)
        except StorageError:
            return None
        if found is None:
            return None
        names += found.names
    return names
