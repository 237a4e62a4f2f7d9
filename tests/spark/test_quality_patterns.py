"""Patterns against Java itself: what is accepted compiles there, and what Java's users write is accepted."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from sluice.quality.patterns import like_problem, regex_problem

pytestmark = pytest.mark.spark

_PIECES = [
    *"ab01.^$|()[]{}*+?\\-,&<>=!:#PQ",
    "(?:",
    "(?<n>",
    "(?P<n>",
    "(?i)",
    "(?i-s:",
    "(?=",
    "(?<!",
    "[^",
    "\\d",
    "\\p{L}",
    "\\Q",
    "\\E",
    "\\k<n>",
    "{1,3}",
    "{,3}",
    "{2}",
    "\\h",
    "\\Z",
    "\\b",
    "[a-z]",
    "(a)",
    "\\1",
    "\\x41",
    "\\u0041",
    "\\t",
    "]]",
]


def java_problem(spark: SparkSession, pattern: str) -> str | None:
    """What Java itself says; None when it compiles the pattern."""
    try:
        spark.sparkContext._jvm.java.util.regex.Pattern.compile(pattern)  # type: ignore[union-attr]
    except IllegalArgumentException as exc:
        return str(exc)
    return None


def compiles(spark: SparkSession, pattern: str) -> bool:
    return java_problem(spark, pattern) is None


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=st.lists(st.sampled_from(_PIECES), max_size=7).map("".join))
def test_what_is_accepted_compiles(spark: SparkSession, pattern: str) -> None:
    """Java compiles every pattern that is accepted, unless it can't tell how far something looks behind."""
    if regex_problem(pattern) is None:
        found = java_problem(spark, pattern)
        assert found is None or "Look-behind group does not have an obvious maximum length" in found


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "^[A-Z]{2}\\d{4}$",
        r"[\w.+-]+@[\w-]+\.[\w.]+",
        r"\p{Lu}\p{IsGreek}\h+",
        r"\Qa(b[\E$",
        "(?<y>[0-9]{4})-\\k<y>",
        "[a-z&&[^aeiou]]",
        "[[a-c][x-z]]",
        r"a\z",
        "a(?i)b(?-i)c",
        "(?s-m:.)",
        "(?<=a{1,3})b",
        "(?<=(?=a*)b)c",
        "a++b*+c?+",
        "(?>ab|a)c",
        "[]a]",
        r"[\[\]]",
        r"\{\}",
        "}",
        r"\u00e9\x{1F600}\R",
        "(a|b)\\1",
        "^(?!.*x).*$",
        "é|日",
        r"[^\s\"'`]+",
        r"\d+(\.\d+)?",
    ],
)
def test_java_s_own_syntax(spark: SparkSession, pattern: str) -> None:
    """What Java compiles and people write is accepted."""
    assert compiles(spark, pattern)
    assert regex_problem(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)",
        "*",
        "[",
        "[a",
        "a{,3}",
        "{",
        "a{",
        "a{2,1}",
        "(?P<n>a)",
        "(?<a_b>x)",
        "(?(1)a|b)",
        "\\",
        r"\y",
        "(?L)a",
        "(?#c)",
        "[z-a]",
        "[[a]",
        "a(?i)*",
        r"\Q\E+",
        r"\P{1,3}",
        r"[\k<n>]]",
        r"[a\b]",
    ],
)
def test_what_java_refuses(spark: SparkSession, pattern: str) -> None:
    """What Java does not compile is refused, also where Python would."""
    assert not compiles(spark, pattern)
    assert regex_problem(pattern) is not None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=st.text(alphabet="a%_\\!", max_size=6), escape=st.sampled_from(["\\", "!"]))
def test_like_patterns(spark: SparkSession, pattern: str, escape: str) -> None:
    """A LIKE pattern is refused exactly where Spark refuses it."""
    quoted, mark = (text.replace("\\", "\\\\") for text in (pattern, escape))
    try:
        spark.sql(f"SELECT 'a' LIKE '{quoted}' ESCAPE '{mark}'").collect()
        problem = None
    except Exception as exc:
        problem = exc
    assert (like_problem(pattern, escape) is None) == (problem is None)
