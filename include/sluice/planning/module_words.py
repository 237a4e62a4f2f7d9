"""Which texts a module of a transform holds: names of columns, and literals, one of which may be a salt or a key."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sluice.planning.declared_sql import DeclaredSql
from sluice.planning.module_tree import module_tree
from sluice.redaction import SHORTEST

_NAMING = """col column alias select drop groupBy groupby rollup cube orderBy sort sortWithinPartitions withColumn
    withColumnRenamed withWatermark dropDuplicates dropDuplicatesWithinWatermark drop_duplicates partitionBy getField
    colRegex cast astype try_cast concat coalesce greatest least struct array hash xxhash64 count_distinct"""
"""Functions of Spark's all of whose texts are names of columns or types."""
_TAKE_NAMES = frozenset(_NAMING.split())
_TAKE_VALUES = frozenset(["lit", "expr"])
"""Its functions that take no column's name; of all others the first argument is one."""
_PROSE = re.compile(r"[A-Za-z]+(?: [A-Za-z]+)*[.:!?]?")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.|'')*)'|\"((?:[^\"\\]|\\.|\"\")*)\"")


@dataclass
class ModuleWords(ast.NodeVisitor):
    """The texts of one or several modules."""

    names: set[str] = field(default_factory=set)
    """Those in the place of a column's name."""
    columns: set[str] = field(default_factory=set)
    """Those that are one for certain."""
    literals: set[str] = field(default_factory=set)
    """All of them, and what stands in quotes in them, as SQL writes its own."""
    _functions: set[str] = field(default_factory=set)

    def read(self, file: str) -> None:
        """Read a module's file; one that can't be read has no words."""
        try:
            words = _words_of(Path(file).read_bytes())
        except (OSError, SyntaxError, ValueError):
            return
        self.names |= words.names
        self.columns |= words.columns
        self.literals |= words.literals

    def read_sql(self, sql: DeclaredSql) -> None:
        """Read a query."""
        self.names |= sql.words
        self.literals |= sql.literals

    def secrets(self) -> tuple[str, ...]:
        """The literals that may be one, the longest first: neither names, nor prose, nor as short as a part of a word.

        Words as people write them, letters and spaces, stand in every message: masked, nothing would be understood.
        """
        told = self.literals - self.names
        found = {text for text in told if len(text) >= SHORTEST and _PROSE.fullmatch(text) is None}
        return tuple(sorted(found, key=lambda text: (-len(text), text)))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """See how the module calls Spark's functions."""
        names = {alias.name: alias.asname or alias.name for alias in node.names}
        if node.module == "pyspark.sql" and "functions" in names:
            self._functions.add(names["functions"])
        elif node.module == "pyspark.sql.functions":
            self._functions.update(names.values())

    def visit_Import(self, node: ast.Import) -> None:
        """See how the module calls Spark's functions."""
        self._functions.update(alias.asname for alias in node.names if alias.asname and "functions" in alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        """Tell the names among a call's texts."""
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        place = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if called in _TAKE_NAMES:
            self.columns.update(text for given in node.args for text in _texts(given))
        elif isinstance(place, ast.Name) and place.id in self._functions and called not in _TAKE_VALUES and node.args:
            self.columns.update(_texts(node.args[0]))
        self.names |= self.columns
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """`frame["id"]` names a column."""
        self.names.update(_texts(node.slice))
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is told."""

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave docstrings out."""
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Keep a text, and what it quotes."""
        if isinstance(node.value, str):
            quoted = (first or second for first, second in _QUOTED.findall(node.value))
            self.literals.update([node.value, *quoted])


def _words_of(text: bytes) -> ModuleWords:
    """The words of one module; of one that is nested too deep for who asks, the first of them.

    Raises:
        SyntaxError: It is no Python.
        ValueError: It has a null byte.
    """
    with contextlib.suppress(RecursionError):
        return _all_words(text)
    words = ModuleWords()
    with contextlib.suppress(RecursionError):
        words.visit(module_tree(text))
    return words


@functools.lru_cache(16)
def _all_words(text: bytes) -> ModuleWords:
    words = ModuleWords()
    words.visit(module_tree(text))
    return words


def _texts(node: ast.expr) -> Iterator[str]:
    """The texts of an argument: it is one, or a list of some."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.List | ast.Tuple):
        for part in node.elts:
            yield from _texts(part)
