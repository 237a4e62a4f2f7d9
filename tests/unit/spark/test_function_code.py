"""What tells functions in Python from others: their code and what it uses, in whatever process they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from sluice.spark.function_code import function_digests

MODULE = """
from statistics import mean

LIMITS = {"low": [1, 2], "high": {3, 4}}
SELF = []
SELF.append(SELF)


def inner(value):
    return mean([value, LIMITS["low"][0], len(SELF)])


def outer(value):
    return inner(value) + 1
"""


def digest(function: Callable[..., Any], name: str = "f") -> str:
    return function_digests([(name, CloudPickleSerializer().dumps((function, "string")))])[name]


def of_module(folder: Path, text: str) -> str:
    """The digest of `outer`, as a process of its own tells it."""
    folder.mkdir()
    (folder / "cleaning.py").write_text(text)
    code = f"import cleaning; from {__name__} import digest; print(digest(cleaning.outer))"
    roots = os.pathsep.join([str(folder), *sys.path])
    environment = os.environ | {"PYTHONPATH": roots, "PYTHONHASHSEED": str(len(text))}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def adding(number: int) -> Callable[[int], int]:
    return lambda value: value + number


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (lambda s: s.lower(), lambda s: s.upper()),
        (lambda s: s + "a", lambda s: s + "b"),
        (lambda s, t="a": s + t, lambda s, t="b": s + t),
        (lambda s: [c + "a" for c in s], lambda s: [c + "b" for c in s]),
        (adding(1), adding(2)),
        (partial(pow, 2), partial(pow, 3)),
        (str.lower, str.upper),
        ("a".join, len),
    ],
)
def test_other_code(was: Callable[..., Any], becomes: Callable[..., Any]) -> None:
    assert digest(was) == digest(was)
    assert digest(was) != digest(becomes)


def test_code_that_is_called(tmp_path: Path) -> None:
    """It counts as well, as long as it is of the project; where it stands does not, nor what nobody calls."""
    was = of_module(tmp_path / "was", MODULE)
    assert of_module(tmp_path / "moved", f"# A comment.\n{MODULE}\n\ndef other():\n    pass\n") == was
    edits = {"LIMITS": MODULE.replace("[1, 2]", "[2, 2]"), "inner": MODULE.replace("mean([value", "mean([-value")}
    for name, text in edits.items():
        assert of_module(tmp_path / name, text) != was


def test_functions_of_one_name() -> None:
    """Nothing tells which is called where: together they are told from others, in any order."""
    first, second = (("f", CloudPickleSerializer().dumps((adding(number), "int"))) for number in (1, 2))
    assert function_digests([first, second]) == function_digests([second, first, first])
    assert function_digests([first]) != function_digests([first, second])
