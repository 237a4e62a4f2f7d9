"""Suites: what is read from them, and what every kind of mistake says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import DeclarationError
from sluice.quality.suite import Suite, build_suite, parse_suite, read_suite
from sluice.storage import Storage
from tests.fuzzing import DEEP, damaged, outcome
from tests.unit.quality.suites import document, row, suite

NOT_NULL = row("expect_column_values_to_not_be_null", column="a")
VALID = document(
    row("expect_column_values_to_be_between", policy="drop", column="a", min_value=1, max_value="2026-01-01T00:00:00")
    | {"kwargs": {"column": "a", "min_value": 1, "mostly": 0.9, "row_condition": {"type": "nullity"}}},
    row("expect_column_values_to_match_regex", column="b", regex="^a+$"),
)


@pytest.mark.parametrize(
    ("severity", "meta", "policy"),
    [
        (None, {}, "fail"),
        ("critical", {}, "fail"),
        ("warning", {}, "warn"),
        ("info", {}, "warn"),
        ("critical", {"sluice": {"policy": "quarantine"}}, "quarantine"),
        ("info", {"sluice": {"policy": "fail"}, "team": "x"}, "fail"),
    ],
)
def test_policy(severity: str | None, meta: dict[str, Any], policy: str) -> None:
    """The policy is what `meta` says; without it a critical expectation fails, others warn."""
    (found,) = suite(NOT_NULL | {"severity": severity, "meta": meta}).expectations

    assert found.policy == policy


def test_arguments_as_great_expectations_reads_them() -> None:
    """Numbers become floats, dates are read, defaults are filled in; what the suite says is kept beside."""
    (found,) = suite(
        row(
            "expect_column_values_to_be_between",
            column="a",
            min_value="2026-01-02T00:00:00",
            max_value="2026-01-03 05:00:00",
        )
    ).expectations

    assert found.arguments["min_value"].isoformat() == "2026-01-02T00:00:00"
    assert found.arguments["max_value"].isoformat() == "2026-01-03T05:00:00"
    assert (found.arguments["strict_min"], found.mostly) == (False, 1.0)
    assert found.kwargs["min_value"] == "2026-01-02T00:00:00"
    (counted,) = suite(row("expect_column_values_to_be_between", column="a", min_value=1)).expectations
    assert repr(counted.arguments["min_value"]) == "1.0"


def test_ids_are_stable() -> None:
    """An id depends on type and arguments alone, unless Great Expectations gave one."""
    one, two = suite(row("expect_table_row_count_to_equal", value=1), NOT_NULL).expectations
    same, named = suite(
        NOT_NULL | {"notes": "x"}, row("expect_table_row_count_to_equal", value=2) | {"id": "7"}
    ).expectations

    assert one.id != two.id == same.id
    assert named.id == "7"


KIND = "expect_column_values_to_be_between"
WRONG = [
    (row("expect_column_values_to_be_betwen", column="a"), "expect_column_values_to_be_between"),
    (row("nonsense"), "core expectation"),
    (row(KIND, column="a", min_valu=1), "min_value"),
    (row(KIND, column="a", min_value=[1]), "a number, or a date"),
    (row(KIND, column="a", min_value="0001-01-01T00:00:00+02:00"), "between the years 1 and 9999 in UTC"),
    (row(KIND, column="a"), "give one or both"),
    (row(KIND, min_value=1), "give it"),
    (row(KIND, column=5, min_value=1), "the name of a column"),
    (row(KIND, column="a", min_value=3, max_value=1), "exchange"),
    (row(KIND, column="a", min_value=3, max_value="2026-01-01"), "two of a kind"),
    (row(KIND, column="a", min_value=3, mostly=1.5), "from 0 to 1"),
    (row(KIND, column="a", min_value=3, strict_min="yes"), "true or false"),
    (row(KIND, column="a", min_value=10**400), "a double can hold"),
    (row(KIND, column="a", min_value={"$PARAMETER": "x"}), "write the value"),
    (row(KIND, policy="dorp", column="a", min_value=3), "`drop`"),
    (row(KIND, policy="explode", column="a", min_value=3), "quarantine"),
    (row(KIND, meta={"sluice": {"polcy": "drop"}}, column="a", min_value=3), "`policy`"),
    (row(KIND, meta={"sluice": "drop"}, column="a", min_value=3), "write"),
    (row(KIND, meta={"sluice": {"approximate": True}}, column="a", min_value=3), "a sketch can answer"),
    (row(KIND, column="a", min_value=3) | {"severity": "grave"}, "critical"),
    (row("expect_column_mean_to_be_between", policy="drop", column="a"), "`warn` or `fail`"),
    (row("expect_table_row_count_to_equal", policy="quarantine", value=1), "`warn` or `fail`"),
    (row("expect_column_values_to_be_unique", policy="drop", column="a"), "`warn` or `fail`"),
    (row("expect_column_values_to_be_of_type", policy="drop", column="a", type_="x"), "`warn` or `fail`"),
    (row("expect_column_values_to_match_regex", column="a", regex="(a"), "correct it"),
    (row("expect_column_values_to_match_regex", column="a", regex="(?P<n>a)"), "Java"),
    (row("expect_column_values_to_match_regex_list", column="a", regex_list=["a", "*"]), "correct it"),
    (row("expect_column_values_to_match_regex_list", column="a", regex_list=[]), "at least one"),
    (row("expect_column_values_to_match_like_pattern", column="a", like_pattern="a\\b"), "escape"),
    (row("expect_column_values_to_match_like_pattern", column="a", like_pattern="a", escape="xy"), "single character"),
    (row("expect_column_pair_values_to_be_in_set", column_A="a", column_B="b", value_pairs_set=[[1]]), "list of pairs"),
    (row("expect_multicolumn_values_to_be_equal", column_list=["a"]), "at least two"),
    (row("expect_multicolumn_values_to_be_equal", column_list=["a", "b"], ignore_row_if="x"), "one of"),
    (row("expect_table_row_count_to_equal", value=1.5), "whole number"),
    (row("expect_column_values_to_be_in_set", column="a", value_set=[{}]), "strings, numbers or booleans"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "advice"), WRONG, ids=lambda value: json.dumps(value)[:60])
def test_mistakes(wrong: dict[str, Any], advice: str) -> None:
    """Every mistake is one message that names the file, the expectation, and what to do."""
    with pytest.raises(DeclarationError) as caught:
        suite(NOT_NULL, wrong)

    assert "suite.json, expectation 2" in (caught.value.where or "")
    assert advice in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "pattern", [r"\p{Lu}\h+", r"\Qa(b\E", "(?<year>[0-9]{4})-\\k<year>", "[a-z&&[^b]]", r"a\z", "(?i)x"]
)
def test_java_regexes(pattern: str) -> None:
    """What Java's regular expressions know, and Python's do not, is no mistake."""
    (found,) = suite(row("expect_column_values_to_match_regex", column="a", regex=pattern)).expectations

    assert found.arguments["regex"] == pattern


def test_duplicates() -> None:
    """An expectation that is there twice is refused, and both places are named."""
    with pytest.raises(DeclarationError, match="twice") as caught:
        suite(NOT_NULL, row("expect_table_row_count_to_equal", value=1), NOT_NULL | {"id": "other"})

    assert "expectation 1" in (caught.value.where or "")
    assert "and 3" in (caught.value.where or "")


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"name": 1, "expectations": []}', b'{"name": "s"}', b'{"name":"s","expectations":[{}]}', DEEP],
    ids=lambda content: repr(content[:30]),
)
def test_no_suite(content: bytes) -> None:
    """What is no suite is refused, whatever it is."""
    with pytest.raises(DeclarationError, match="does not parse"):
        parse_suite(content, source="suite.json")


def test_an_empty_suite() -> None:
    with pytest.raises(DeclarationError, match="the suite is empty"):
        parse_suite(b"", source="suite.json")


@given(st.data())
def test_damaged_files(data: st.DataObject) -> None:
    """A damaged file is a suite or a DeclarationError, and nothing else."""
    found = outcome(lambda: parse_suite(data.draw(damaged(VALID)), source="suite.json"))

    assert isinstance(found, Suite | DeclarationError)


def test_missing_file(tmp_path: Path) -> None:
    """Whoever declares it says that it is not there."""
    assert read_suite(str(tmp_path / "none.json"), storage=Storage()) is None


def test_reads_a_file(tmp_path: Path) -> None:
    """A suite is read from its file."""
    (tmp_path / "s.json").write_bytes(document(NOT_NULL))

    found = read_suite(str(tmp_path / "s.json"), storage=Storage())

    assert found is not None
    assert len(found.expectations) == 1


def test_builds_from_python() -> None:
    """A function may build the suite; it is read as its JSON is."""
    built = SimpleNamespace(expectations=[], to_json_dict=lambda: json.loads(document(NOT_NULL)))

    assert build_suite(lambda: built, source="m:f").expectations == suite_of(document(NOT_NULL)).expectations


def suite_of(content: bytes) -> Suite:
    return parse_suite(content, source="m:f")


@pytest.mark.parametrize(("build", "problem"), [(lambda: 1 / 0, "ZeroDivisionError"), (lambda: 5, "a int")])
def test_builds_nothing(build: Any, problem: str) -> None:
    """A function that fails, or gives no suite, is named."""
    with pytest.raises(DeclarationError, match=problem):
        build_suite(build, source="m:f")


def test_great_expectations_stays_away() -> None:
    """Neither the package nor reading and compiling a suite imports Great Expectations or pyspark."""
    code = f"""
import sys
import sluice
from sluice.quality.compile import compile_suite
from sluice.quality.results import check_results
from sluice.quality.suite import parse_suite
plan = compile_suite(parse_suite({document(NOT_NULL)!r}, source="s"), "a INT")
assert check_results(plan, [{{measure.name: 1 for measure in plan.measures}}])[0].result["element_count"] == 1
print([name for name in ("great_expectations", "pyspark", "pandas") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
