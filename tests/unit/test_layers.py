"""Imports go down only: the graph is drawn from the code."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROOTS = (REPOSITORY / "include" / "sluice", REPOSITORY / "plugins" / "sluice_airflow")

GROUND = (
    "errors", "amounts", "datasets", "extras", "redaction", "declaration_checks", "other_names", "free_memory",
    "option_values", "schema_text", "sql_text", "spark_conf_values", "declared_settings", "spark_master",
    "spark_options", "spark_setting", "foreign_code", "exit_code", "times", "trigger", "interval", "paths",
    "locations", "local_disk", "storage_failures", "storage", "storage_options", "typed_json", "documents",
    "watermarks", "sql_tokens", "project_code", "table_names", "surroundings", "declared_table",
)  # fmt: skip
ROOMS: tuple[tuple[str, ...], ...] = (
    GROUND,
    ("delta_log",),
    ("checkpoint",),
    ("kafka",),
    ("sources",),
    ("sinks",),
    ("several_sinks",),
    ("stream",),
    ("pipelines",),
    ("home", "generation_notes", "taken_file_notes"),
    ("project", "declarations", "made_streams", "table_writers"),
    ("plan", "plan_document"),
    ("runs",),
    ("quality",),
    ("gate",),
    ("planning",),
    ("lineage",),
    ("spark",),
    ("auditing",),
    ("running",),
    ("monitoring",),
    ("testing",),
    ("cli", "template", "training"),
)
"""The rooms of `sluice`, the lowest first: a room imports only from those before it. What is listed together is one."""
AIRFLOW_ROOMS: tuple[tuple[str, ...], ...] = (
    (
        "arguments", "deferring", "noted_runs", "openlineage_provider", "outcomes", "projects", "rendered", "run_keys",
        "run_metrics", "slot_priority", "submission", "taken_keys", "time_limit", "unannounced_runs",
    ),
    ("listeners",),
    ("triggers",),
    ("assets", "timetables"),
    ("operators",),
    ("decorators", "stream_dag"),
    ("sensors",),
    ("ui",),
    ("plugin", "deadlines", "provider_info"),
)  # fmt: skip
"""The rooms of `sluice_airflow`, likewise; all of them may import everything of `sluice`."""
LAYERS: Mapping[str, int] = {part: number for number, room in enumerate(ROOMS) for part in room}
AIRFLOW_LAYERS: Mapping[str, int] = {part: number for number, room in enumerate(AIRFLOW_ROOMS) for part in room}
TOP = len(ROOMS) + 1
"""The lowest room of `sluice_airflow`."""
ENTRY = {"sluice.__main__"}
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
    if module in ENTRY:
        return TOP
    if package == "sluice_airflow":
        return TOP + (AIRFLOW_LAYERS[rest.partition(".")[0]] if rest else 0)
    return LAYERS.get(rest.partition(".")[0], TOP) if rest else TOP - 1


def folder(module: str) -> str:
    """Where a module stands: its folder; a module at the top is its room, named by the first of it."""
    package, _, rest = module.partition(".")
    if any(name.startswith(f"{module}.") for name in modules()):
        return f"{module}.__init__"
    if "." in rest:
        return module.rpartition(".")[0]
    if package == "sluice_airflow" and rest in AIRFLOW_LAYERS:
        return f"{package}.{AIRFLOW_ROOMS[AIRFLOW_LAYERS[rest]][0]}"
    return f"{package}.{ROOMS[LAYERS[rest]][0]}" if package == "sluice" and rest in LAYERS else module


def upward(arrows: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    return sorted(
        (module, imported)
        for module, found in arrows.items()
        for imported in found
        if module != "sluice" and layer(imported) > layer(module)
    )


GRAPH = graph()


def test_every_part_has_a_layer() -> None:
    """A new part of either package is put into a layer here."""
    parts = {name.split(".")[1] for name in GRAPH if name.startswith("sluice.") and name not in ENTRY}
    airflow_parts = {name.split(".")[1] for name in GRAPH if name.startswith("sluice_airflow.")}

    assert parts == set(LAYERS)
    assert airflow_parts == set(AIRFLOW_LAYERS)


def test_no_upward_import() -> None:
    """No module imports one of a higher room, lazy imports included."""
    assert upward(GRAPH) == []


def test_no_cycle() -> None:
    """No two modules need each other."""
    try:
        order = list(TopologicalSorter(GRAPH).static_order())
    except CycleError as exc:
        pytest.fail(f"imports go round: {' -> '.join(reversed(exc.args[1]))}")

    assert order.index("sluice.errors") < order.index("sluice.planning.planner")


def test_no_cycle_of_folders() -> None:
    """No two folders need each other, nor do three in a ring; the packages' own `__init__` and entry aside."""
    folders: dict[str, set[str]] = {}
    for module, found in GRAPH.items():
        if module in {"sluice", *ENTRY}:
            continue
        folders.setdefault(folder(module), set()).update(
            folder(imported) for imported in found if imported != "sluice" and folder(imported) != folder(module)
        )
    try:
        order = list(TopologicalSorter(folders).static_order())
    except CycleError as exc:
        pytest.fail(f"imports go round: {' -> '.join(reversed(exc.args[1]))}")

    assert order.index("sluice.planning") < order.index("sluice.running")
    assert order.index("sluice_airflow.triggers") < order.index("sluice_airflow.operators")
    assert order.index("sluice.sinks") < order.index("sluice.sinks.delta") < order.index("sluice.sinks.__init__")


def test_the_picture_is_of_today() -> None:
    """The architecture page shows the rooms as they are: `python -m tests.draw_rooms` draws them anew."""
    from tests.draw_rooms import PAGE, drawing, drawn

    page = PAGE.read_text("utf-8")
    assert drawn(page) == drawing()
    assert [room[0] for room in ROOMS if f"`{room[0]}" not in page and room is not GROUND] == []


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function, its docstring aside."""
    whole = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    return whole - ((first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0)


def test_files_and_functions_are_short() -> None:
    """No file has more than 500 lines, and no function more than 60 beside its docstring."""
    files = [file for root in ROOTS for file in root.rglob("*.py")]
    functions = {
        f"{module}.{node.name}": code_lines(node)
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert [file.name for file in files if len(file.read_text("utf-8").splitlines()) > 500] == []
    assert {name: lines for name, lines in functions.items() if lines > 60} == {}
    assert max(functions.values()) > 30


def test_sources_and_sinks_stay_apart() -> None:
    """Sinks know no source."""
    assert [
        (module, imported)
        for module, found in GRAPH.items()
        for imported in found
        if module.startswith("sluice.sinks") and imported.startswith("sluice.sources")
    ] == []


CONTRACTS = ("contract", "replaceable", "bench", "coded", "row_contract", "splitting", "keyed")
"""The files of `sources` and `sinks` that say what a kind can do, and are none."""
KIND_OWNERS = ("sluice.sources", "sluice.sinks")
OF_KINDS = {
    # Files and their log are asked for by what their source can; these are the words in which it is told.
    ("sluice.running.drained_files", "sluice.sources.files.refusals"),
    ("sluice.running.logged_files", "sluice.sources.files.refusals"),
    ("sluice.running.planned_files", "sluice.sources.files.taken_files"),
    # A backfill copies its input into files, and reads those as a stream.
    ("sluice.running.backfill_as_stream", "sluice.sources.files.declared"),
}
"""Who imports a module of a kind from outside of `sources` and `sinks`."""


def kinds() -> tuple[dict[str, str], set[str]]:
    """The classes of all kinds by their module, and what `kind` is in them."""
    classes, words = {}, set()
    for module, tree in modules().items():
        if module.startswith(KIND_OWNERS) and module.rpartition(".")[2] not in CONTRACTS:
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    classes[node.name] = module
                    words |= {
                        item.value.value
                        for item in node.body
                        if isinstance(item, ast.AnnAssign)
                        and ast.unparse(item.target) == "kind"
                        and isinstance(item.value, ast.Constant)
                    }
    return classes, words


def is_of_kinds(node: ast.AST) -> bool:
    """Whether an expression is a source or a sink, by what it is called."""
    return ast.unparse(node).rpartition(".")[2] in {"source", "sink", "declared", "table", "quarantine"}


def asks_for_kinds(tree: ast.Module, words: Collection[str]) -> Iterator[str]:
    """Where a module asks what a source or a sink is, and not what it can do."""
    for node in ast.walk(tree):
        compared: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            compared = [node.subject, *(value for case in node.cases for value in ast.walk(case.pattern))]
        elif isinstance(node, ast.Subscript):
            compared = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            compared = [*node.args]
        asked = [found for found in compared if isinstance(found, ast.Attribute) and found.attr == "kind"]
        told = {part.value for found in compared for part in ast.walk(found) if isinstance(part, ast.Constant)}
        if any(is_of_kinds(found.value) for found in asked) or (asked and told & {*words}):
            yield ast.unparse(node)
        is_probe = isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr"}
        if is_probe and is_of_kinds(node.args[0]):
            yield ast.unparse(node)


def test_nobody_asks_what_a_source_or_a_sink_is() -> None:
    """Whoever is not of a kind asks what it can do, with `isinstance` on a contract: nothing else knows of kinds."""
    classes, words = kinds()
    asked = {
        (module, name.id)
        for module, tree in modules().items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "isinstance"
        for name in ast.walk(call.args[1])
        if isinstance(name, ast.Name) and name.id in classes and folder(classes[name.id]) != folder(module)
    }

    assert {"FilesSource", "DeltaSink", "MemorySink"} <= classes.keys()
    assert {"files", "delta", "kafka", "memory", "rate_micro_batch"} <= words
    assert asked == set()
    assert [
        (module, found)
        for module, tree in modules().items()
        if not module.startswith(KIND_OWNERS)
        for found in asks_for_kinds(tree, words)
    ] == []


def test_a_kind_is_known_in_its_folder_alone() -> None:
    """A new kind of source or sink touches its own file or folder, and its line in `__init__`."""
    assert {
        (module, imported)
        for module, found in GRAPH.items()
        for imported in found
        if imported.startswith(tuple(f"{owner}." for owner in KIND_OWNERS))
        and imported.rpartition(".")[2] not in CONTRACTS
        and not module.startswith(KIND_OWNERS)
    } == OF_KINDS


@pytest.mark.parametrize(
    ("code", "is_asked"),
    [
        ('stream.sink.kind == "delta"', True),
        ('found.kind in ("files", "delta")', True),
        ("source.kind not in FED", True),
        ("LOGS[self.sink.kind]", True),
        ("WRITERS.get(source.kind)", True),
        ('match sink.kind:\n    case "delta":\n        pass', True),
        ('getattr(stream.sink, "options", {})', True),
        ('getattr(source, "skip_change_commits", True)', True),
        ('batch.kind == "no_data"', False),
        ('f"a sink of {sink.kind}"', False),
        ('getattr(self, "source")', False),
    ],
)
def test_questions_for_kinds_are_seen(code: str, *, is_asked: bool) -> None:
    """What the test above sees, and what it lets pass."""
    assert bool([*asks_for_kinds(ast.parse(code), ("delta", "files"))]) is is_asked


def test_printing_is_for_the_command_line() -> None:
    """Only the command line prints tables and bars."""
    users = {module for module, found in GRAPH.items() if "sluice.cli.printing" in found}

    assert users
    assert all(module.startswith("sluice.cli.") for module in users)


@pytest.mark.parametrize("folder", ["include", "plugins", "dags", "jobs"])
def test_nothing_needs_the_tests(folder: str) -> None:
    """Neither the library nor the demos: who has them need not have the tests."""
    files = sorted((REPOSITORY / folder).rglob("*.py"))
    assert files
    users = [
        str(file.relative_to(REPOSITORY))
        for file in files
        if any(
            name.partition(".")[0] == "tests" for name in imports(ast.parse(file.read_bytes()), is_lazy_included=True)
        )
    ]
    assert users == []


def test_only_the_plugin_knows_airflow() -> None:
    """Airflow is imported by `sluice_airflow` alone, not even lazily elsewhere."""
    users = {name for name, tree in modules().items() for imported in imports(tree, is_lazy_included=True)
             if imported.partition(".")[0] == "airflow"}  # fmt: skip

    assert users
    assert all(name.startswith("sluice_airflow") for name in users)


@pytest.mark.parametrize(
    "module", [name for name in GRAPH if name.startswith("sluice.") and layer(name) < LAYERS["spark"]]
)
def test_nothing_heavy_below_spark(module: str) -> None:
    """Below `spark`, what is heavy is imported where it is used: planning costs milliseconds."""
    found = {name.partition(".")[0] for name in imports(modules()[module], is_lazy_included=False)}

    assert not found & HEAVY


def at_once(module: str) -> set[str]:
    """Every module of ours that is imported as soon as a module is."""
    known, seen, pending = modules(), set(), [module]
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            eager = imports(known[name], is_lazy_included=False)
            pending += [found for imported in eager if (found := owner(imported, known))]
    return seen


@pytest.mark.parametrize(
    "module", ["sluice", "sluice.cli.app", *(name for name in modules() if name.startswith("sluice_airflow"))]
)
def test_nothing_heavy_at_once(module: str) -> None:
    """The command line starts, and DAG files are parsed, without pyspark and its like, through whatever imports."""
    heavy = HEAVY - {"airflow"}

    assert [
        (name, imported)
        for name in sorted(at_once(module))
        for imported in imports(modules()[name], is_lazy_included=False)
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
    """An upward arrow is seen."""
    arrows = {
        "sluice.stream": {"sluice.plan"},
        "sluice.running.submit": {"sluice.running.runner", "sluice.cli.app"},
        "sluice.sinks.files": {"sluice.checkpoint.manifest"},
        "sluice.checkpoint.log": {"sluice.sources.files"},
        "sluice.errors": {"sluice"},
        "sluice_airflow.triggers.run": {"sluice_airflow.operators.run_stream", "sluice.cli.app"},
    }

    assert upward(arrows) == [
        ("sluice.checkpoint.log", "sluice.sources.files"),
        ("sluice.errors", "sluice"),
        ("sluice.running.submit", "sluice.cli.app"),
        ("sluice.stream", "sluice.plan"),
        ("sluice_airflow.triggers.run", "sluice_airflow.operators.run_stream"),
    ]
