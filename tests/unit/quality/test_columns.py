"""Columns: read from DDL and from Spark's own type strings, and found as people name them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import DeclarationError
from sluice.quality.columns import Column, Schema
from tests.fuzzing import outcome


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a INT, b STRING", {"a": "int", "b": "string"}),
        ("a integer NOT NULL COMMENT 'x, y: z', b DECIMAL(10, 2)", {"a": "int", "b": "decimal(10,2)"}),
        ("`odd name, x` LONG, `a``b` decimal", {"odd name, x": "bigint", "a`b": "decimal(10,0)"}),
        ("s STRUCT<A: INT, `b c`: ARRAY<LONG>>", {"s": "struct<A:int,`b c`:array<bigint>>"}),
        ("m MAP<STRING, STRUCT<x: INT>>", {"m": "map<string,struct<x:int>>"}),
        ("a: int, b: timestamp_ntz", {"a": "int", "b": "timestamp_ntz"}),
        ("", {}),
    ],
)
def test_ddl(ddl: str, expected: dict[str, str]) -> None:
    """Names and types of a DDL string, spelled as Spark's `simpleString` spells them."""
    assert {column.name: column.type for column in Schema.of(ddl).columns} == expected


@pytest.mark.parametrize("ddl", ["a", "a INT,, b INT", "INT,", ",", "`a"])
def test_no_ddl(ddl: str) -> None:
    """What is no DDL is refused."""
    with pytest.raises(DeclarationError, match="is no column"):
        Schema.of(ddl)


@given(st.text(alphabet="ab `<>(),:'\"INTSTRUCT", max_size=60))
def test_any_text(text: str) -> None:
    """Any text is a schema or a DeclarationError."""
    assert isinstance(outcome(lambda: Schema.of(text)), Schema | DeclarationError)


SCHEMA = Schema.of(
    {
        "id": "bigint",
        "Name": "string",
        "a.b": "int",
        "s": "struct<Inner:struct<odd name:int>,x:date>",
        "S2": "int",
        "s2": "int",
    }
)


@pytest.mark.parametrize(
    ("name", "path", "kind"),
    [
        ("id", ("id",), "bigint"),
        ("NAME", ("Name",), "string"),
        ("a.b", ("a.b",), "int"),
        ("`a.b`", ("a.b",), "int"),
        ("s.X", ("s", "x"), "date"),
        ("s.inner.`odd name`", ("s", "Inner", "odd name"), "int"),
        ("s2", ("s2",), "int"),
    ],
)
def test_found(name: str, path: tuple[str, ...], kind: str) -> None:
    """A whole name comes before a path, case does not matter, and the exact spelling wins."""
    assert SCHEMA.find(name, place="here") == Column(path, kind)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("nmae", "did you mean `Name`"),
        ("s.inne", "did you mean `s.Inner`"),
        ("zzz", "the columns are"),
        ("`s.x`", "s.x"),
    ],
)
def test_not_found(name: str, remedy: str) -> None:
    """A column that is not there is named, with the nearest one."""
    with pytest.raises(DeclarationError, match="there is no column") as caught:
        SCHEMA.find(name, place="here")

    assert remedy in (caught.value.remedy or "")
    assert caught.value.where == "here"


def test_ambiguous() -> None:
    """Two columns that differ by case alone need their exact spelling."""
    with pytest.raises(DeclarationError, match="may be any of"):
        Schema.of({"AB": "int", "Ab": "int"}).find("ab", place="here")


def test_variables_in_names() -> None:
    """Spark would replace what looks like a variable in the name of a column."""
    with pytest.raises(DeclarationError, match="can't be named"):
        Schema.of({"${x}": "int"}).find("${x}", place="here")
