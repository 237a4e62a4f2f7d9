"""Imports go down only: the graph is drawn from the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROOTS = (REPOSITORY / "include" / "sluice", REPOSITORY / "plugins" / "sluice_airflow")

LAYERS: Mapping[str, int] = {
    **dict.fromkeys(
        [
            "redaction",
            "errors",
            "declaring",
            "memory",
            "schema_text",
            "spark_master",
            "foreign_code",
            "exit_code",
            "times",
            "stream",
            "storage",
            "documents",
            "home",
            "declarations",
            "paths",
            "project",
            "project_code",
            "spark_options",
            "spark_setting",
            "delta_table",
            "watermarks",
        ],
        0,
    ),
    "checkpoint": 1,
    "sources": 2,
    "sinks": 2,
    "planning": 3,
    "quality": 3,
    "spark": 3,
    "running": 4,
    "monitoring": 4,
    "testing": 5,
    "display": 5,
    "cli": 5,
    "template": 5,
    "training": 5,
}
"""The layer of every part of `sluice`; a part may import parts of its own layer and of lower ones."""
TOP = 6
"""`sluice_airflow`, which may import everything."""
EXCEPTIONS = {("sluice.running.submit", "sluice.display")}
"""A script that prints its own progress."""
HEAVY = {"pyspark", "great_expectations", "airflow", "deltalake", "pyarrow"}


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of both packages by its name; what a user's project is copied from is not ours to import."""
    found = {}
    for root in ROOTS:
        for file in sorted(root.rglob("*.py")):
            parts = file.relative_to(root.parent).with_suffix("").parts
            if "project" in parts[:-1]:
                continue
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = ast.parse(file.read_text("utf-8"))
    return found


def imports(tree: ast.Module, *, is_lazy_included: bool) -> Iterator[str]:
    """The dotted names that a module imports when it runs; `from a import b` gives `a.b`."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending += node.orelse
        elif is_lazy_included or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def owner(name: str, known: Mapping[str, ast.Module]) -> str | None:
    """The module of ours that an imported name belongs to; None for other people's."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def graph() -> dict[str, set[str]]:
    known = modules()
    return {
        name: {found for imported in imports(tree, is_lazy_included=True) if (found := owner(imported, known))} - {name}
        for name, tree in known.items()
    }


def layer(module: str) -> int:
    package, _, rest = module.partition(".")
    if package == "sluice_airflow":
        return TOP
    return LAYERS.get(rest.partition(".")[0], TOP) if rest else TOP - 1


def upward(arrows: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    return sorted(
        (module, imported)
        for module, found in arrows.items()
        for imported in found
        if module != "sluice" and layer(imported) > layer(module) and (module, imported) not in EXCEPTIONS
    )


GRAPH = graph()


def test_every_part_has_a_layer() -> None:
    """A new part of the library is put into a layer here."""
    parts = {name.split(".")[1] for name in GRAPH if name.startswith("sluice.")}

    assert parts <= set(LAYERS)
    assert {"errors", "checkpoint", "sources", "sinks", "planning", "running", "monitoring", "cli"} <= parts


def test_no_upward_import() -> None:
    """No module imports one of a higher layer, lazy imports included."""
    assert upward(GRAPH) == []


def test_no_cycle() -> None:
    """No two modules need each other."""
    try:
        order = list(TopologicalSorter(GRAPH).static_order())
    except CycleError as exc:
        pytest.fail(f"imports go round: {' -> '.join(reversed(exc.args[1]))}")

    assert order.index("sluice.errors") < order.index("sluice.planning.planner")


def test_sources_and_sinks_stay_apart() -> None:
    """Within a layer imports go one way: sources and sinks do not know each other, nor monitoring its user."""
    apart = [
        ("sluice.sources", "sluice.sinks"),
        ("sluice.sinks", "sluice.sources"),
        ("sluice.monitoring", "sluice.running"),
    ]

    assert [
        (module, imported)
        for module, found in GRAPH.items()
        for imported in found
        if any(module.startswith(one) and imported.startswith(other) for one, other in apart)
    ] == []


def test_display_is_for_the_command_line() -> None:
    """Only the command line, and the script that spark-submit runs, print."""
    users = {module for module, found in GRAPH.items() if "sluice.display" in found}

    assert users <= {"sluice.cli", "sluice.running.submit"}
    assert "sluice.cli" in users


def test_only_the_plugin_knows_airflow() -> None:
    """Airflow is imported by `sluice_airflow` alone, not even lazily elsewhere."""
    users = {name for name, tree in modules().items() for imported in imports(tree, is_lazy_included=True)
             if imported.partition(".")[0] == "airflow"}  # fmt: skip

    assert users
    assert all(name.startswith("sluice_airflow") for name in users)


@pytest.mark.parametrize(
    "module", [name for name in GRAPH if name.startswith("sluice.") and layer(name) < LAYERS["running"]]
)
def test_nothing_heavy_below_running(module: str) -> None:
    """Below `running`, what is heavy is imported where it is used: planning and parsing a DAG cost milliseconds."""
    found = {name.partition(".")[0] for name in imports(modules()[module], is_lazy_included=False)}

    assert not found & HEAVY


def test_dag_files_parse_lightly() -> None:
    """The plugin, which DAG files import, never imports pyspark and its like at module level."""
    heavy = HEAVY - {"airflow"}

    assert [
        (name, imported)
        for name, tree in modules().items()
        if name.startswith("sluice_airflow")
        for imported in imports(tree, is_lazy_included=False)
        if imported.partition(".")[0] in heavy
    ] == []


@pytest.mark.parametrize(
    ("code", "lazy", "eager"),
    [
        ("import a.b", {"a.b"}, {"a.b"}),
        ("from a import b, c", {"a.b", "a.c"}, {"a.b", "a.c"}),
        ("def f():\n    import a", {"a"}, set()),
        ("class C:\n    import a", {"a"}, {"a"}),
        ("try:\n    import a\nexcept ImportError:\n    import b", {"a", "b"}, {"a", "b"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\nelse:\n    import b",
         {"typing.TYPE_CHECKING", "b"}, {"typing.TYPE_CHECKING", "b"}),
    ],
)  # fmt: skip
def test_imports_are_found(code: str, lazy: set[str], eager: set[str]) -> None:
    """What this test's own eyes see: imports wherever they stand, but for those of type checkers."""
    tree = ast.parse(code)

    assert set(imports(tree, is_lazy_included=True)) == lazy
    assert set(imports(tree, is_lazy_included=False)) == eager


def test_upward_imports_are_found() -> None:
    """An upward arrow is seen, and the one exception is one."""
    arrows = {
        "sluice.stream": {"sluice.planning.plan"},
        "sluice.running.submit": {"sluice.display", "sluice.cli"},
        "sluice.sinks.files": {"sluice.checkpoint.manifest"},
        "sluice.checkpoint.log": {"sluice.sources.files"},
        "sluice.errors": {"sluice"},
    }

    assert upward(arrows) == [
        ("sluice.checkpoint.log", "sluice.sources.files"),
        ("sluice.errors", "sluice"),
        ("sluice.running.submit", "sluice.cli"),
        ("sluice.stream", "sluice.planning.plan"),
    ]
