"""`docs/coverage.md`: the page is of today, and each test that it names is there and is run by `make test`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.draw_coverage import PAGE, REPOSITORY, systems

pytest_plugins = ["pytester"]

NAMED = sorted({test for system in systems() for test in system.tests})
NOT_ALWAYS = ("skip", "xfail", "in_campaigns")
"""What a mark has in it that keeps a test, at times, from passing."""


def test_the_page_is_of_today() -> None:
    """`python -m tests.draw_coverage` writes it anew."""
    from tests.draw_coverage import page

    assert PAGE.read_text("utf-8") == page()


def test_every_system_has_a_name_of_its_own_and_a_test() -> None:
    """A system has one row; a row has a test, and no test twice."""
    found = systems()
    names = [(system.area, system.name) for system in found]
    assert len(set(names)) == len(names)
    assert [system.name for system in found if not system.tests or len(set(system.tests)) < len(system.tests)] == []


@cache
def statements(file: str) -> list[ast.stmt]:
    return ast.parse(Path(REPOSITORY, file).read_text("utf-8")).body


def marks_of(node: str) -> list[str]:
    """The marks of a test: its own, its class's, and its module's.

    Raises:
        LookupError: There is no such test.
    """
    file, *path = node.split("::")
    body = statements(file)
    marks = [
        ast.unparse(statement.value)
        for statement in body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
    ]
    for name in path:
        definitions = [
            found for found in body if isinstance(found, (ast.ClassDef, ast.FunctionDef)) and found.name == name
        ]
        if not definitions or not name.startswith(("test_", "Test")):
            raise LookupError(node)
        body = definitions[0].body
        marks += map(ast.unparse, definitions[0].decorator_list)
    return marks


@pytest.mark.parametrize("node", NAMED)
def test_named_tests_are_run_by_everybody(node: str) -> None:
    """Each is there, and nothing about it is for campaigns alone, skipped, or expected to fail."""
    own = [mark for mark in marks_of(node) if not mark.startswith("pytest.mark.parametrize")]
    assert [mark for mark in own if any(word in mark for word in NOT_ALWAYS)] == []


CONFTEST = """
import pytest
from tests import engine_verdicts
from tests.draw_coverage import System

TESTS = tuple(f"test_numbers.py::{name}" for name in ("test_one", "test_two"))
engine_verdicts.systems = lambda: (System("area", "name", "command", TESTS),)

def pytest_configure(config):
    if engine_verdicts.takes_all_tests(config):
        config.pluginmanager.register(engine_verdicts.Verdicts())
"""
INI = f"[pytest]\ntestpaths = .\npythonpath = {REPOSITORY}\n"
ONE = "import pytest\n\ndef test_one(): pass\n"


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")])
@pytest.mark.parametrize(
    ("rest", "left_out"),
    [
        ("@pytest.mark.parametrize('n', [1, 2])\ndef test_two(n): pass\n", None),
        ("@pytest.mark.skip\ndef test_two(): pass\n", "test_two"),
        ("@pytest.mark.parametrize('n', [])\ndef test_two(n): pass\n", "test_two"),
        ("", "test_two"),
    ],
)
def test_a_run_of_all_tests(
    pytester: pytest.Pytester, rest: str, left_out: str | None, workers: tuple[str, ...]
) -> None:
    """It fails if a named test has not passed in it, and says which; a part of them may leave any out."""
    pytester.makeini(INI)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_numbers=ONE + rest)

    whole = pytester.runpytest_subprocess("-p", "no:cacheprovider", *workers)

    assert whole.ret == (pytest.ExitCode.TESTS_FAILED if left_out else pytest.ExitCode.OK)
    told = f"docs/coverage.md says that it passes, and it did not: test_numbers.py::{left_out}"
    assert (told in whole.outlines) == (left_out is not None)
    if left_out and not workers:
        for part in (("-k", "one"), ("test_numbers.py",)):
            assert pytester.runpytest_subprocess("-p", "no:cacheprovider", *part).ret == pytest.ExitCode.OK
