"""Of which columns of the sources those of a query's result are made, as its optimised plan tells."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import msgspec

from sluice.runs.recorded_columns import ColumnOrigin, RecordedColumns, ResultColumn
from sluice.spark.plan_columns import DEDUPES, lists, optimised_plan, whole_plan
from sluice.spark.plan_tree import Node
from sluice.spark.query import Query, plan_reader
from sluice.spark.traced_columns import Column, TracedColumns, source_prefixes

logger = logging.getLogger(__name__)

_MOST_COLUMNS = 1000
"""How many columns of a result are told of: a record is written anew with every batch."""
_OPENS, _CLOSES = "\x02", "\x03"
"""What stands around the name of a source in front of its columns: no name has such signs."""
_SOURCE = re.compile(rf"{_OPENS}(?P<source>[^{_CLOSES}]*){_CLOSES}(?: \(\d+\))?\.")


def read_columns(query: Query) -> RecordedColumns | None:
    """The columns of a query; None when Spark does not tell, and with several sinks. Never raises."""
    if query.results:
        return None
    try:
        return _read(query)
    except Exception:  # it is told to others only: no run fails for it
        logger.warning("Spark does not tell of what the columns are made", exc_info=True)
        return None


def _read(query: Query) -> RecordedColumns:
    plans = plan_reader(query.frame.sparkSession)
    # One more than there are: of a source that is alone, columns would bear no name.
    named = [msgspec.structs.replace(line, source=f"{_OPENS}{line.source}{_CLOSES}") for line in query.lines]
    root = optimised_plan(query.frame, plans)
    traced = TracedColumns(root, source_prefixes(root, whole_plan(query.frame, plans), [*named, named[0]]))
    sources = {name: dict(frame.dtypes) for name, frame in query.frames.items()}
    origins = _Origins(sources)
    types, made = query.frame.dtypes, traced.made_of(root)
    told = zip(types, made if len(made) == len(types) else [None] * len(types), strict=True)
    return RecordedColumns(
        result=tuple(origins.column(*type_, column) for type_, column in islice(told, _MOST_COLUMNS)),
        sources={name: dict([*found.items()][:_MOST_COLUMNS]) for name, found in sources.items()},
        rows_by={how: found for how, found in origins.of_rows(root, traced) if found},
        tables=dict(plans.static_versions(query.frame)),
    )


@dataclass(frozen=True)
class _Origins:
    """Finds the columns of sources in what a plan says of others."""

    columns: Mapping[str, Mapping[str, str]]
    """By source, its columns."""

    def column(self, name: str, type_: str, made: Column | None) -> ResultColumn:
        if made is None:
            return ResultColumn(name=name, type=type_)
        found = self._found(made.sources)
        is_same = made.is_plain and len(found) == 1 and made.sources[0].endswith(f".{found[0].column}")
        return ResultColumn(name=name, type=type_, origins=found, is_same=is_same)

    def of_rows(self, root: Node, traced: TracedColumns) -> Iterator[tuple[str, tuple[ColumnOrigin, ...]]]:
        """By how they decide, the columns that decide which rows come out."""
        by: dict[str, list[str]] = {"filter": [], "join": [], "group_by": []}
        for node in root.walk():
            if node.kind in {"Filter", "Join"}:
                by[node.kind.lower()] += traced.sources_of(node.rest, node)
            elif node.kind == "Aggregate" or node.kind in DEDUPES:
                keys = next(iter(lists(node.rest)), [])
                by["group_by"] += [source for key in keys for source in traced.sources_of(key, node)]
        yield from ((how, self._found(sources)) for how, sources in by.items())

    def _found(self, texts: Iterable[str]) -> tuple[ColumnOrigin, ...]:
        return tuple(sorted({origin for text in texts for origin in self._mentioned(text)}))

    def _mentioned(self, text: str) -> Iterator[ColumnOrigin]:
        for found in _SOURCE.finditer(text):
            source, rest = found["source"], text[found.end() :]
            known = self.columns.get(source, {})
            # Mostly it is a column alone; in an expression, one may be called as another one begins.
            names = [rest] if rest in known else [name for name in known if rest.startswith(name)]
            if names:
                yield ColumnOrigin(source, max(names, key=len))
