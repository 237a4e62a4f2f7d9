"""Columns that a sink or a suite names, of a result that nothing of the stream has such a name for.

What columns a transform makes, only Spark knows. But a name that no source has, and that stands nowhere in the text of
the transform, is most often a mistake in writing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from urllib.parse import unquote

from sluice.errors import Problem, StorageError
from sluice.gate.contracts import source_columns
from sluice.plan import Plan
from sluice.planning.transform_text import transform_texts
from sluice.project import Project
from sluice.quality.suite import Suite
from sluice.storage import Storage
from sluice.stream import Stream

_MOST_TEXT = 1_000_000
"""How many characters of modules are looked through."""
_READS_TEXTS = re.compile(r"\bimportlib\b|\bopen\(|\bread_(?:text|bytes)\(|\.sql['\"]|\.\*")
"""By which a transform may name columns that its text does not: in files, in other modules, all that a struct has."""
_FOLDER = re.compile(r"/([^/=]+)=")
_SINK, _SUITE = "the declaration names", "the suite checks"
_OF_SUITES = ("column", "column_A", "column_B", "column_list")
"""The arguments of expectations that name columns which must be there."""
_PLAIN_NAME = re.compile(r"[a-zA-Z]\w*(?:\.\w+)*", re.ASCII)
_SPARKS_OWN = "_"
"""What the names begin with of columns that Spark and Delta add: `_metadata`, `_change_type`."""


def unnamed_columns(
    project: Project, stream: Stream, plan: Plan, suite: Suite | None, *, is_new: bool, storage: Storage
) -> Iterator[Problem]:
    """Warn of each; where a source or the transform does not tell its names, of none.

    Args:
        project: The project of the stream.
        stream: The declaration.
        plan: What a run does.
        suite: The stream's suite, if it has one.
        is_new: Whether there is no table yet, whose own columns would tell.
        storage: Where the sources are.
    """
    named = [*stream.sink.named_columns, *filter(None, [stream.interval_column])] if is_new else []
    # Letters beyond ASCII a text may spell otherwise.
    asked = {column: _SINK for column in named if column.isascii() and not column.startswith(_SPARKS_OWN)}
    asked |= {column: _SUITE for column in _checked(suite) if column not in asked}
    names = _columns(stream, plan, storage) if asked else None
    written = _written(project, stream) if names is not None else None
    if names is None or written is None:
        return
    text, had = written.lower(), {name.lower() for name in names}
    unnamed = [column for column in asked if column.lower() not in had and column.lower() not in text]
    words = [*re.findall(r"[^\W\d]\w+", written), *names] if unnamed else []
    known = {word.lower(): word for word in words}
    for column in unnamed:
        near = difflib.get_close_matches(column.lower(), known, n=1, cutoff=0.8)
        yield Problem(
            code="COLUMN_NOT_NAMED",
            file=stream.declared_at or stream.place,
            cause=f"{asked[column]} a column `{column}`: no source has it, and the transform does not name it",
            consequence="if the transform makes none of that name, the run is refused once Spark is there",
            remedy=f"did you mean `{known[near[0]]}`?" if near else "correct the name; `sluice check` asks Spark",
            is_blocking=False,
        )


def _checked(suite: Suite | None) -> Iterator[str]:
    """The columns of the result that a suite's expectations name; of a field, the column that has it."""
    for expectation in suite.expectations if suite is not None else ():
        for argument in _OF_SUITES:
            found = expectation.kwargs.get(argument, ())
            for name in [found] if isinstance(found, str) else found:
                if isinstance(name, str) and _PLAIN_NAME.fullmatch(name):
                    yield name.partition(".")[0]


def _written(project: Project, stream: Stream) -> str | None:
    """The text of the transform and of what it imports; None where it does not tell all of its words."""
    texts = transform_texts(project, stream)
    try:
        written = None if texts is None else b"\n".join(texts.values()).decode("utf-8")
    except UnicodeDecodeError:
        # It says in words of its own how it is to be read.
        return None
    is_whole = written is not None and len(written) <= _MOST_TEXT and _READS_TEXTS.search(written) is None
    return written if is_whole else None


def _columns(stream: Stream, plan: Plan, storage: Storage) -> list[str] | None:
    """The names of the columns that the sources have, also as folders; None where one does not tell."""
    names: list[str] = []
    for name in stream.sources:
        try:
            found = source_columns(stream, name, plan.batches, storage=storage)
        except StorageError:
            return None
        if found is None:
            return None
        planned = [batch.sources[name].added for batch in plan.batches if name in batch.sources]
        newest = next((added.entries[-1].path for added in reversed(planned) if added.entries), "")
        names += [*found.names, *map(unquote, _FOLDER.findall(newest))]
    return names
