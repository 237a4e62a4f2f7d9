"""The columns of a plan's operators, by the numbers that Spark gives them, read from the plan's text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sluice.spark.plan_reader import PlanReader
from sluice.spark.plan_tree import Node, parse_plan
from sluice.spark_setting import spark_setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ATTRIBUTE = re.compile(r"#(\d+)")
MAKES_COLUMNS = {"Project", "Aggregate"}
"""Operators whose last list says what each of their columns is made of."""
ALIAS = re.compile(r"(?P<expression>.*?) AS (?P<name>.*)#(?P<id>\d+)L?(?:-T\d+ms)?", re.DOTALL)
"""One of those: what Spark calls a column that nobody has named may have an AS of its own."""
DEDUPES = {"Deduplicate", "DeduplicateWithinWatermark"}
"""Operators that keep one row of each key; their first list has the keys."""
PYTHON = {"ArrowEvalPython", "BatchEvalPython"}
"""Operators that call functions in Python: their lists are the calls, and the columns of the results."""
_KEEPS_COLUMNS = {
    *("CollectMetrics", "Distinct", "EventTimeWatermark", "Filter", "GlobalLimit", "LocalLimit", "Repartition"),
    *("RepartitionByExpression", "ResolvedHint", "Sort", "SubqueryAlias", "View"),
    *DEDUPES,
}
_BRACKETS = {"()", "[]", "{}"}
_MOST_FIELDS = "spark.sql.debug.maxToStringFields"
_ALL_FIELDS = "100000"
_ONE_SIDED = {"LeftSemi", "LeftAnti"}


def whole_plan(frame: DataFrame, plans: PlanReader) -> Node:
    """The analysed plan of a query, with all columns, however many they are."""
    with spark_setting(frame.sparkSession, _MOST_FIELDS, _ALL_FIELDS):
        return parse_plan(plans.analysed_text(frame))


def optimised_plan(frame: DataFrame, plans: PlanReader) -> Node:
    """What Spark makes of it, with all columns."""
    with spark_setting(frame.sparkSession, _MOST_FIELDS, _ALL_FIELDS):
        return parse_plan(plans.optimised_text(frame))


def made_columns(node: Node) -> dict[str, str]:
    """What a node makes columns of: expressions, by the number of the column."""
    return {number: match["expression"] for number, match in aliases(node).items()}


def aliases(node: Node) -> dict[str, re.Match[str]]:
    """The columns that a node makes, by their numbers: what `ALIAS` tells of each."""
    if node.kind not in MAKES_COLUMNS:
        return {}
    return {match["id"]: match for item in items(node.rest) if (match := ALIAS.fullmatch(item))}


def output_columns(node: Node) -> list[str] | None:
    """The columns of a node in order; None when the text does not tell."""
    if node.kind in MAKES_COLUMNS | {"Expand"}:
        return _last_numbers(items(node.rest))
    if not node.children:
        return next(filter(None, (_last_numbers(listed) for listed in reversed(lists(node.rest)))), None)
    if node.kind == "Join" and node.rest.split(",")[0].strip() not in _ONE_SIDED:
        sides = [output_columns(child) for child in node.children]
        return None if None in sides else [column for side in sides for column in side or ()]
    if node.kind in PYTHON:
        below = output_columns(node.children[0])
        return None if below is None else [*below, *called_columns(node)]
    if node.kind in _KEEPS_COLUMNS or node.kind in {"Union", "Join"}:
        return output_columns(node.children[0])
    return None


def called_columns(node: Node) -> list[str]:
    """The results of an operator that calls functions in Python, in the order of the calls."""
    return ATTRIBUTE.findall(" ".join(lists(node.rest)[-1]))


def lists(rest: str) -> list[list[str]]:
    """Every list of expressions that stands in a node's text, beside those within another."""
    parts = (part.strip() for part in split(rest.strip()))
    return [split(part[1:-1]) for part in parts if part.startswith("[") and part.endswith("]")]


def items(rest: str) -> list[str]:
    """The expressions of the last list in a node's text.

    A literal with a bracket of its own makes one expression of several, whose origins then are those of all.
    """
    parts = split(rest.strip())
    return split(parts[-1].strip()[1:-1]) if parts and parts[-1].strip().startswith("[") else []


def split(text: str, separator: str = ",") -> list[str]:
    """The parts between the commas, or other separators, that are in no bracket."""
    depth, start, parts = 0, 0, []
    for index, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == separator[0] and depth == 0 and text.startswith(separator, index):
            parts.append(text[start:index].strip())
            start = index + len(separator)
    return [*parts, text[start:].strip()]


def is_nested(text: str) -> bool:
    """Whether every bracket is closed by its like: else a literal has one, and where lists end can't be told."""
    open_brackets = []
    for character in text:
        if character in "([{":
            open_brackets.append(character)
        elif character in ")]}" and (not open_brackets or f"{open_brackets.pop()}{character}" not in _BRACKETS):
            return False
    return not open_brackets


def closed(text: str, start: int) -> int:
    """Where a bracket is closed that was opened before a place; the end, where a literal hides it."""
    depth = 1
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index + 1
    return len(text)


def _last_numbers(listed: list[str]) -> list[str] | None:
    found = [ATTRIBUTE.findall(item) for item in listed]
    return [numbers[-1] for numbers in found] if found and all(found) else None
