"""The options of Spark's file formats under their snake_case names."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.declaration_checks import snake_case
from sluice.errors import DeclarationError
from sluice.spark_options import FORMATS, check_format, spark_options


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("header", "header"),
        ("nullValue", "null_value"),
        ("timestampNTZFormat", "timestamp_ntz_format"),
        ("columnNameOfCorruptRecord", "column_name_of_corrupt_record"),
        ("int96RebaseMode", "int96_rebase_mode"),
        ("parquet.compression", "parquet_compression"),
    ],
)
def test_snake_case(option: str, name: str) -> None:
    """A declaration uses Spark's names in snake_case."""
    assert snake_case(option) == name


@pytest.mark.parametrize("file_format", FORMATS)
def test_names_are_unique(file_format: str) -> None:
    """No two options of a format have the same snake_case name, and each is a Python name."""
    names = [snake_case(option) for option in FORMATS[file_format]]

    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


def test_values_become_strings() -> None:
    """Booleans are written as Spark reads them."""
    given = {"header": True, "multi_line": False, "sep": ";", "max_columns": 10, "sampling_ratio": 0.5}

    assert spark_options(given, FORMATS["csv"], place="here") == {
        "header": "true",
        "multiLine": "false",
        "sep": ";",
        "maxColumns": "10",
        "samplingRatio": "0.5",
    }


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("heade", "did you mean `header`?"),
        ("nullValue", "write it as `null_value`"),
        ("max_files_per_bath", "did you mean `max_files_per_batch`?"),
    ],
)
def test_unknown_option(name: str, remedy: str) -> None:
    """An unknown option is refused with the nearest valid name, ours included."""
    with pytest.raises(DeclarationError) as caught:
        spark_options({name: 1}, FORMATS["csv"], place="here", ours=("max_files_per_batch",))

    assert caught.value.problem == f"unknown option `{name}`"
    assert caught.value.remedy == remedy
    assert caught.value.where == "here"


def test_unknown_option_without_a_near_one() -> None:
    """When nothing is near, every valid name is listed."""
    with pytest.raises(DeclarationError) as caught:
        spark_options({"zzzzzz": 1}, FORMATS["orc"], place="here", ours=("format",))

    assert caught.value.remedy == "valid are: compression, format, merge_schema, orc_compress"


@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}, b"x"])
def test_value_that_is_no_option(value: Any) -> None:
    """Only strings, numbers and booleans are options; others are not shown, for they may hold a secret."""
    with pytest.raises(DeclarationError) as caught:
        spark_options({"header": value}, FORMATS["csv"], place="here")

    assert caught.value.problem == f"option `header` is {'None' if value is None else f'a {type(value).__name__}'}"


def test_check_format() -> None:
    """A format that Spark does not ship is refused with those that it does."""
    check_format("json", "here", {})

    with pytest.raises(DeclarationError) as caught:
        check_format("jsonl", "here", {})
    assert caught.value.remedy == "use one of: avro, binaryFile, csv, json, orc, parquet, text, xml"
