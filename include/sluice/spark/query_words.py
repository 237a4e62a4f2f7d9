"""What is known of the words of the query at work: its columns, which may be told, and its literals, which may not."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluice.planning.module_words import ModuleWords
from sluice.project import Project
from sluice.project_code import own_modules
from sluice.redaction import MASK, SHORTEST
from sluice.spark.plan_reader import PlanReader
from sluice.spark.shown_plan import is_sparks_word
from sluice.spark.transform import SqlTransform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEPT = re.compile(r"((?<![\w/])(?:[a-z][a-z0-9]*:)?/[^\s'\"`,;()\[\]]+|\[[A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)*\])")
"""Where a file is, and the class of an error: `raise_error` has that as a literal in its plan."""


@dataclass(frozen=True)
class QueryWords:
    """The words of a query; of none, nothing is known."""

    columns: frozenset[str] = frozenset()
    literals: tuple[str, ...] = ()
    """The longest first."""

    @classmethod
    def of(cls, columns: Iterable[str], literals: Iterable[str]) -> QueryWords:
        """The words without the literals that tell nothing: short ones, names of columns, words of Spark's."""
        known = frozenset(columns)
        told = {text for text in literals if len(text) >= SHORTEST and text not in known and not is_sparks_word(text)}
        return cls(known, tuple(sorted(told, key=lambda text: (-len(text), text))))

    def telling(self, texts: Collection[str]) -> QueryWords:
        """The same words, some of which may be told."""
        return replace(self, literals=tuple(text for text in self.literals if text not in texts))

    def masked(self, text: str, *, is_of_spark: bool = False) -> str:
        """The text without the literals; where a file is, and an error's class, are told.

        Args:
            text: The text.
            is_of_spark: Whether it has Spark's own words only, so that a plain word in it is one of those.
        """
        parts = _KEPT.split(text)
        for number in range(0, len(parts), 2):
            for literal in self.literals:
                if is_of_spark and literal.isalpha():
                    continue
                # A plain word is found in others, too.
                edges = (r"(?<!\w)", r"(?!\w)") if literal.isalpha() else ("", "")
                parts[number] = re.sub(edges[0] + re.escape(literal) + edges[1], MASK, parts[number])
        return "".join(parts)


NO_WORDS = QueryWords()


@dataclass
class _Noted:
    tell: Callable[[Iterable[DataFrame]], QueryWords]


_noted = _Noted(lambda _: NO_WORDS)


def note_query(project: Project, functions: Iterable[Any], plans: PlanReader, frames: Mapping[str, DataFrame]) -> None:
    """From now on, errors are told with what is known of this query. Costs nothing before there is one.

    Args:
        project: Whose modules hold its literals.
        functions: The transform, and the function of its sink.
        plans: Reads its plans.
        frames: Its sources, by name, and its result, which has none.
    """
    files = {getattr(sys.modules.get(name), "__file__", None) for name in own_modules(project.import_roots)}
    files |= {
        getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", None) for function in functions
    }

    def tell(others: Iterable[DataFrame]) -> QueryWords:
        written = ModuleWords()
        for file in filter(None, files):
            written.read(file)
        for function in functions:
            if isinstance(function, SqlTransform):
                written.read_sql(function.sql)
        columns = {column for name, frame in frames.items() if name for column in _columns(frame)} | written.columns
        planned = {text for frame in [*frames.values(), *others] for text in _literals(plans, frame)}
        return QueryWords.of(columns, {*planned, *written.secrets()})

    _noted.tell = tell


def words_at(exc: BaseException) -> QueryWords:
    """The words of the query at work, with the literals of the DataFrames that were at hand when something failed."""
    try:
        return _noted.tell(_frames_of(exc))
    except Exception:  # Spark may be gone
        return NO_WORDS


def _columns(frame: DataFrame) -> list[str]:
    try:
        return frame.columns
    except Exception:  # a Spark that is gone
        return []


def _literals(plans: PlanReader, frame: DataFrame) -> list[str]:
    try:
        return list(plans.literals(frame))
    except Exception:  # a plan that is none yet, or a Spark that is gone
        return []


def _frames_of(exc: BaseException) -> Iterator[DataFrame]:
    from pyspark.sql import DataFrame

    trace = exc.__traceback__
    while trace is not None:
        yield from (value for value in trace.tb_frame.f_locals.values() if isinstance(value, DataFrame))
        trace = trace.tb_next
