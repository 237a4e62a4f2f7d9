"""The rules of a table that a commit of metadata would pass over, told by its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sluice.sinks.delta.table_rules import rule_for_spark
from tests.builders import edit_commit, make_delta


def make_table(folder: Path, column: dict[str, Any], settings: dict[str, str] | None = None) -> DeltaTable:
    """A table with a column as a log has it."""
    make_delta(folder, [1])
    field = {"name": "c", "type": "integer", "nullable": True, "metadata": {}} | column
    schema = {"schemaString": json.dumps({"type": "struct", "fields": [field]}), "partitionColumns": []}
    edit_commit(folder, 0, schema | {"configuration": settings or {}}, action="metaData")
    return DeltaTable(folder)


def struct(**field: Any) -> dict[str, Any]:
    inner = {"name": "a", "type": "integer", "nullable": True, "metadata": {}} | field
    return {"type": "struct", "fields": [inner]}


def array(element: Any, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def mapped(value: Any, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": nulls}


NO_NULLS = struct(nullable=False)


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        ({"nullable": False}, "`c` takes no nulls"),
        ({"type": NO_NULLS}, "`c.a` takes no nulls"),
        ({"type": struct(name="s", type=NO_NULLS)}, "`c.s.a` takes no nulls"),
        ({"type": array(NO_NULLS)}, "`c.element.a` takes no nulls"),
        ({"type": mapped(NO_NULLS)}, "`c.value.a` takes no nulls"),
        ({"type": array("integer", nulls=False)}, "`c` takes no nulls in it"),
        ({"type": array(mapped("integer", nulls=False))}, "`c.element` takes no nulls in it"),
        ({"metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}, "`c` has `__CHAR_VARCHAR_TYPE_STRING`"),
        ({"type": struct(metadata={"CURRENT_DEFAULT": "3"})}, "`c.a` has `CURRENT_DEFAULT`"),
        ({"metadata": {"comment": "x", "delta.generationExpression": "1"}}, "`c` has `delta.generationExpression`"),
        ({"metadata": {"delta.invariants": "{}"}}, "`c` has `delta.invariants`"),
    ],
)
def test_a_rule_of_a_column(tmp_path: Path, column: dict[str, Any], rule: str) -> None:
    """At whatever depth it is; it is told with the column."""
    found = rule_for_spark(make_table(tmp_path, column))

    assert found is not None
    assert found.startswith(f"column {rule}")


@pytest.mark.parametrize(
    "column",
    [
        {"metadata": {"comment": "an amount"}},
        {"type": "timestamp", "metadata": {"spark.watermarkDelayMs": 86_400_000}},
        {"type": "decimal(38,10)"},
        {"type": struct(type=array(mapped("timestamp")), metadata={"comment": "x"})},
    ],
)
def test_no_rule(tmp_path: Path, column: dict[str, Any]) -> None:
    """A comment, an event time, a type, a depth mean nothing to a writer; nor do settings about logs, or of others."""
    settings = {"delta.checkpointInterval": "3", "delta.appendOnly": "true", "owner": "ada"}

    assert rule_for_spark(make_table(tmp_path, column, settings)) is None


@pytest.mark.parametrize("setting", ["delta.universalFormat.enabledFormats", "delta.something.new"])
def test_a_setting_that_is_not_known(tmp_path: Path, setting: str) -> None:
    """It may ask a writer for something: Spark's knows."""
    found = rule_for_spark(make_table(tmp_path, {}, {setting: "x"}))

    assert found == f"the table has `{setting}`, which only Spark heeds"
