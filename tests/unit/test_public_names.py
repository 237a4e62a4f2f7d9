"""What `import sluice` gives: few names, each of them meant."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sluice
from sluice import sinks, sources
from sluice.errors import DeclarationError

PACKAGES = [sluice, sources, sinks]


def imported_names(package: ModuleType) -> set[str]:
    """The names that a package's `__init__.py` imports from the package, type checkers' imports included."""
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text("utf-8"))
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("sluice")
        for alias in node.names
    }


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_few(package: ModuleType) -> None:
    """At most 15 names, in order, each once."""
    assert len(package.__all__) <= 15
    assert list(package.__all__) == sorted(set(package.__all__))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_all_is_what_is_imported(package: ModuleType) -> None:
    """`__all__` is what the package brings together, no less and no more."""
    assert set(package.__all__) == imported_names(package)


@pytest.mark.parametrize("name", [f"{package.__name__}:{name}" for package in PACKAGES for name in package.__all__])
def test_importable_and_documented(name: str) -> None:
    """Every name can be imported, and says in a sentence of its own what it is."""
    module, _, attribute = name.partition(":")
    value = getattr(importlib.import_module(module), attribute)
    first_line = (inspect.getdoc(value) or "").partition("\n")[0]

    assert first_line.endswith((".", "?"))


@pytest.mark.parametrize("package", [sources, sinks], ids=lambda package: package.__name__)
def test_kinds(package: ModuleType) -> None:
    """Every kind is a function named as its module or folder, and as the `kind` of what it makes."""
    for name in package.__all__:
        function = getattr(package, name)
        assert inspect.isfunction(function)
        assert function.__name__ == name
        # What a Delta table is told of a feed of changes is no kind of its own.
        assert name == "changes" or f"{function.__module__}.".startswith(f"{package.__name__}.{name}.")


def test_declarations_need_no_spark() -> None:
    """Importing what a declaration needs imports nothing heavy: DAG files do it at every parse."""
    code = (
        "import sys, sluice; from sluice import Stream, sinks, sources; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(sluice.__file__).parents[1])},
    )
    loaded = set(result.stdout.split())

    assert "sluice" in loaded
    assert not loaded & {
        "pyspark",
        "py4j",
        "airflow",
        "great_expectations",
        "deltalake",
        "pyarrow",
        "pandas",
        "obstore",
    }


def test_typed() -> None:
    """The package says that it is typed."""
    assert (Path(sluice.__file__).parent / "py.typed").is_file()


def test_a_name_of_another_package_is_answered() -> None:
    """An import of what is elsewhere says where, also in a DAG file; any other is Python's own error."""
    with pytest.raises(DeclarationError, match=r"write `from sluice_airflow.stream_dag import stream_dag`"):
        exec("from sluice import stream_dag")
    with pytest.raises(ImportError, match="cannot import name 'anything'"):
        exec("from sluice import anything")
