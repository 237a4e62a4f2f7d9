"""What tells functions in Python from others: their code and what it uses, in whatever process they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from sluice.spark.function_code import function_digests

MODULE = """
from functools import lru_cache
from statistics import mean

import words

LIMITS = {"low": [1, 2], "high": {3, 4}}
SELF = []
SELF.append(SELF)


NAMES = {name: 1 for name in {"a", "b", "c", "d"}}


class Rule:
    def of(self, value):
        return value


@lru_cache
def inner(value):
    return mean([value, LIMITS["low"][0], len(SELF), NAMES.get(value, 0), Rule().of(value), words.size(value)])


def outer(value):
    return inner(value) + 1
"""


class Color(Enum):
    RED = "red"
    BLUE = "blue"


def digest(function: Callable[..., Any], name: str = "f") -> str:
    return function_digests([(name, CloudPickleSerializer().dumps((function, "string")))])[name]


WORDS = "def size(value):\n    return len(value)\n"


def of_module(folder: Path, text: str, words: str = WORDS) -> str:
    """The digest of `outer`, as a process of its own tells it."""
    folder.mkdir()
    (folder / "words.py").write_text(words)
    (folder / "cleaning.py").write_text(text)
    code = f"import cleaning; from {__name__} import digest; print(digest(cleaning.outer))"
    roots = os.pathsep.join([str(folder), *sys.path])
    environment = os.environ | {"PYTHONPATH": roots, "PYTHONHASHSEED": str(len(text) + len(str(folder)))}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def adding(number: int) -> Callable[[int], int]:
    return lambda value: value + number


def both(first: int, second: int) -> Callable[[int], int]:
    """Two closures, each with cells of its own."""
    one, other = adding(first), adding(second)
    return lambda value: one(value) + other(value)


def unassigned() -> Callable[[int], int]:
    def function(value: int) -> int:
        try:
            return value + later
        except NameError:
            return value

    if not function:
        later = 1
    return function


def documented(text: str) -> Callable[[int], int]:
    def function(value: int) -> int:
        return value + 1

    function.__code__ = function.__code__.replace(co_consts=(text, *function.__code__.co_consts[1:]))
    function.__doc__ = text
    return function


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (lambda s: s.lower(), lambda s: s.upper()),
        (lambda s: s + "a", lambda s: s + "b"),
        (lambda s, t="a": s + t, lambda s, t="b": s + t),
        (lambda s: [c + "a" for c in s], lambda s: [c + "b" for c in s]),
        (adding(1), adding(2)),
        (both(1, 1), both(1, 2)),
        (both(1, 1), both(2, 1)),
        (lambda s, p=re.compile("a"): p.sub("", s), lambda s, p=re.compile("b"): p.sub("", s)),
        (lambda s, p=Decimal(1): s * p, lambda s, p=Decimal(2): s * p),
        (lambda s, p=Color.RED: s + p.value, lambda s, p=Color.BLUE: s + p.value),
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
    edits = {
        "LIMITS": MODULE.replace("[1, 2]", "[2, 2]"),
        "inner": MODULE.replace("mean([value", "mean([-value"),
        "method": MODULE.replace("        return value\n", "        return -value\n"),
    }
    for name, text in edits.items():
        assert of_module(tmp_path / name, text) != was
    assert of_module(tmp_path / "words", MODULE, WORDS.replace("len(value)", "len(value) + 1")) != was


def test_the_same_code() -> None:
    """What is said of a function is none of it, and a variable that was never assigned is no obstacle."""
    assert digest(documented("One.")) == digest(documented("Another."))
    assert digest(unassigned()) == digest(unassigned())


def test_functions_of_one_name() -> None:
    """Nothing tells which is called where: together they are told from others, in any order."""
    first, second = (("f", CloudPickleSerializer().dumps((adding(number), "int"))) for number in (1, 2))
    assert function_digests([first, second]) == function_digests([second, first, first])
    assert function_digests([first]) != function_digests([first, second])
