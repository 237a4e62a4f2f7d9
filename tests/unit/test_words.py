"""Words that have one meaning: a name that has one stands where that is meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.unit.test_layers import modules

ROOMS: dict[str, tuple[str, ...]] = {
    # A try, a run and a driver come "before", or are "earlier".
    "former": (),
    # A stream is; a file is set aside, a batch is in the sink.
    "held": ("sluice.errors", "sluice.gate.", "sluice.auditing.judge_with_spark", "sluice.running.preparation"),
    # A person lets a batch through, or a stream go on; a lease is given up, rows are returned.
    "release": ("sluice.gate.state", "sluice.cli.", "sluice_airflow.ui."),
    "released": (
        "sluice.gate.",
        "sluice.auditing.run_gate",
        "sluice.runs.record",
        "sluice.quality.report",
        "sluice.cli.",
        "sluice_airflow.",
    ),
    # Rows of an earlier run are judged; what a dead backfill has left is tidied.
    "settle": ("sluice.gate.unjudged_runs", "sluice.auditing.judge_with_spark", "sluice.running."),
}
"""By each word, where names may have it."""
HELD_BACK = "held_back"
"""Of Spark's watermarks, one input holds the others back."""
NOT_THERE = {"released": ("sluice.gate.returned_rows",), "settle": ("sluice.running.backfill",)}
"""What of those places has another meaning."""


def names(tree: ast.Module) -> Iterator[str]:
    """Every name that a module makes or uses; no strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.alias):
            yield node.name


def words(name: str) -> set[str]:
    """`HeldError` and `is_held` have `held`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name.replace(HELD_BACK, "_"))}


@pytest.mark.parametrize("word", ROOMS)
def test_it_stands_where_it_is_meant(word: str) -> None:
    """Another meaning takes another word."""
    astray = {
        f"{module}: {name}"
        for module, tree in modules().items()
        if not module.startswith(ROOMS[word] or ("-",)) or module in NOT_THERE.get(word, ())
        for name in names(tree)
        if word in words(name)
    }
    assert sorted(astray) == []


@pytest.mark.parametrize("word", [word for word, rooms in ROOMS.items() if rooms])
def test_every_place_has_it(word: str) -> None:
    """A table that names more than there is would let it stray."""
    found = {module for module, tree in modules().items() if any(word in words(name) for name in names(tree))}

    assert [room for room in ROOMS[word] if not any(module.startswith(room) for module in found)] == []
