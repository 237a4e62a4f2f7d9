"""Finds what is certainly wrong with a schema in DDL, without a JVM: `id bigint, at timestamp`.

Spark's own parser has the last word. What is said here of a text, Spark 4.2 says too, for every session; about
whatever this does not know (comments in the text, intervals), it says nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<quoted>`(?:[^`]|``)*`) | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<word>\w+) | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_EXAMPLE = 'schema="id bigint, at timestamp"'
_PLAIN = (
    *("string", "boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint"),
    *("float", "real", "double", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz"),
    *("binary", "void", "variant"),
)
_SIZED = {"decimal": 2, "dec": 2, "numeric": 2, "char": 1, "character": 1, "varchar": 1, "time": 1}
"""The types that take numbers in brackets, and how many at most."""
_UNCHECKED = ("interval", "geometry", "geography")
_NESTED = ("array", "map", "struct")
_MOST_DIGITS = 38
_DEEPEST = 100
_FLOAT_BITS = 24
"""The most that SQL's `float(n)` may be precise to and still be a float; beyond, it is a double."""
_MEANT: Mapping[str, str] = {
    **dict.fromkeys(["str", "text", "char", "varchar", "object", "json", "jsonb", "uuid", "utf8"], "string"),
    **dict.fromkeys(["nvarchar", "varchar2", "nvarchar2", "nchar", "clob", "tinytext", "mediumtext"], "string"),
    **dict.fromkeys(["longtext", "ntext", "enum", "guid", "uniqueidentifier", "inet", "xml", "category"], "string"),
    **dict.fromkeys(["bool", "bit"], "boolean"),
    **dict.fromkeys(["int64", "longtype", "int8", "serial", "bigserial", "uint32"], "bigint"),
    **dict.fromkeys(["int32", "integertype", "int4", "mediumint", "uint16"], "int"),
    **dict.fromkeys(["int16", "int2", "smallserial", "uint8"], "smallint"),
    **dict.fromkeys(["float64", "doubletype", "float8"], "double"),
    **dict.fromkeys(["float32", "floattype", "float4"], "float"),
    **dict.fromkeys(["datetime", "datetime2", "datetime64", "datetimeoffset", "smalldatetime"], "timestamp"),
    **dict.fromkeys(["timestamptz", "timestamp_tz", "timestamptype"], "timestamp"),
    **dict.fromkeys(["bytes", "blob", "bytea", "varbinary", "longblob", "image", "raw"], "binary"),
    "list": "array<...>", "stringtype": "string", "datetype": "date", "booleantype": "boolean", "dict": "map<..., ...>",
    "record": "struct<...>", "bignumeric": "decimal(38, 9)", "money": "decimal(19, 4)", "smallmoney": "decimal(10, 4)",
    "uint64": "decimal(20, 0)", "hugeint": "decimal(38, 0)", "int128": "decimal(38, 0)",
}  # fmt: skip
"""Types of other systems, and ours."""
_DECIMALS = ("number", "bignumeric", "decimaltype", "money")
"""Types of other systems that take the digits of a decimal."""


@dataclass(frozen=True)
class SchemaProblem:
    """What is wrong with a schema, and what to do."""

    problem: str
    remedy: str


@dataclass(frozen=True)
class SchemaText:
    """What a schema says."""

    columns: Mapping[str, str]
    """The types by name, without what is in brackets: `decimal`, `array`."""
    alike: tuple[str, str] | None
    """Two names beside each other, also in a nested type, that differ by case only."""


class _WrongError(Exception):
    """The text is certainly wrong."""


class _UnsureError(Exception):
    """The text has something that only Spark can judge."""


def schema_problem(schema: object) -> SchemaProblem | None:
    """The first thing that is certainly wrong with a schema; None when there is nothing, or only Spark can tell."""
    if not isinstance(schema, str):
        written = _as_text(schema)
        remedy = f"write it as text: schema={written!r}" if written else f"give the columns as DDL: {_EXAMPLE}"
        return SchemaProblem(f"`schema` is a {type(schema).__name__}", remedy)
    if not schema.strip():
        return SchemaProblem("`schema` is empty", f"give the columns as DDL: {_EXAMPLE}")
    try:
        _Reader(_tokens(schema)).columns()
    except _WrongError as wrong:
        problem, remedy = wrong.args
        return SchemaProblem(f"`schema` can't be read: {problem}", remedy)
    except _UnsureError:
        pass
    return None


def read_schema(schema: str) -> SchemaText | None:
    """What a schema says; None when there is something wrong with it, or only Spark can tell."""
    try:
        reader = _Reader(_tokens(schema))
        return SchemaText(reader.columns(), reader.alike)
    except (_WrongError, _UnsureError):
        return None


def _as_text(schema: object) -> str | None:
    """What somebody has probably meant who gave Spark's `StructType`, or names and types."""
    if isinstance(schema, Mapping):
        pairs = [(name, kind) for name, kind in schema.items() if isinstance(name, str) and isinstance(kind, str)]
        return ", ".join(f"{name} {kind}" for name, kind in pairs) if len(pairs) == len(schema) else None
    columns = getattr(schema, "fields", None)
    if not isinstance(columns, list):
        return None
    return ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in columns)


def _tokens(schema: str) -> list[tuple[str, str]]:
    """The kind and text of every token but blanks."""
    if any(comment in schema for comment in ("--", "/*")):
        raise _UnsureError
    found = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(schema)]
    return [(kind, text) for kind, text in found if kind != "space"]


@dataclass
class _Reader:
    tokens: list[tuple[str, str]]
    at: int = 0
    opened: list[str] = field(default_factory=list)
    """The nested types around what is being read."""
    alike: tuple[str, str] | None = None
    """The first two names beside each other that differ by case only."""

    @property
    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "end"

    @property
    def text(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, text: str) -> bool:
        """Whether the next token is this one, which is then passed."""
        if self.kind in {"word", "sign"} and self.text.lower() == text:
            self.at += 1
            return True
        return False

    def columns(self) -> dict[str, str]:
        if self.kind == "word" and [text.lower() for _, text in self.tokens[:2]] == ["struct", "<"]:
            raise _WrongError("it is a type, and not a list of columns", "leave out `struct<` and `>`")
        found: dict[str, str] = {}
        while True:
            name = self.name()
            self.beside(name, found)
            if self.text == ":":
                raise _WrongError(f"there is a colon after `{name}`", f"leave it out: `{name} TYPE`")
            found[name] = self.type_of(name)
            self.rest(name)
            if self.kind == "end":
                return found
            self.comma(name)

    def beside(self, name: str, others: Iterable[str]) -> None:
        """Note a name by those that stand before it, and refuse one that is there already."""
        if name in others:
            raise _WrongError(f"`{name}` is there twice", "leave one of the two out, or rename it")
        if self.alike is None:
            self.alike = next(((other, name) for other in others if other.lower() == name.lower()), None)

    def name(self) -> str:
        kind, text = self.kind, self.text
        self.at += 1
        if kind == "end":
            raise _WrongError(
                "it ends where a column is expected", "leave out the last comma, or name a column and its type"
            )
        if kind == "quoted":
            return text[1:-1].replace("``", "`")
        if kind == "word" and text.isascii() and not text[0].isdigit():
            if self.text in {"-", "."}:
                raise _WrongError(
                    f"the name that begins with `{text}` has a `{self.text}` in it",
                    "write the whole name between backquotes",
                )
            return text
        if kind == "word" and not text.isascii():
            raise _WrongError(f"the name `{text}` has letters beyond a to z", f"write it between backquotes: `{text}`")
        if kind == "word":
            raise _UnsureError
        if text == ",":
            raise _WrongError("there are two commas in a row", "leave one out")
        raise _WrongError(f"`{text}` stands where a column's name is expected", f"give the columns as DDL: {_EXAMPLE}")

    def type_of(self, name: str) -> str:
        kind, given = self.kind, self.text
        word = given.lower()
        if kind == "end" or (kind == "sign" and given in ",>)"):
            raise _WrongError(f"column `{name}` has no type", f"write `{name} string`, or another type")
        if kind != "word" or not given.isascii():
            raise _WrongError(
                f"`{given}` stands where the type of `{name}` is expected", f"write `{name} string`, or another type"
            )
        self.at += 1
        if word in _UNCHECKED:
            raise _UnsureError
        if word in _NESTED:
            self.nested(word, name)
            return word
        if word not in _PLAIN and word not in _SIZED:
            meant = _meant(word, name, self.numbers())
            raise _WrongError(f"`{name}` has the type `{given}`, which Spark does not have", meant)
        if self.text == "<":
            raise _WrongError(
                f"the type `{given}` of `{name}` takes nothing in `<>`", "use `array<...>`, `map<...>` or `struct<...>`"
            )
        self.sizes(word, name)
        if self.take("collate") or self.take("without") or self.take("with"):
            raise _UnsureError
        return word

    def nested(self, word: str, name: str) -> None:
        if not self.take("<"):
            example = {"array": "array<string>", "map": "map<string, int>", "struct": "struct<a: int>"}[word]
            raise _WrongError(f"the {word} `{name}` does not say of what", f"write it in full: `{name} {example}`")
        self.opened.append(f"{word}<")
        if len(self.opened) > _DEEPEST:
            raise _UnsureError
        if word == "struct":
            if self.text != ">":
                self.fields()
        else:
            self.type_of(name)
            if word == "map":
                if not self.take(","):
                    raise _WrongError(
                        f"the map `{name}` has one type", f"give the key's and the value's: `{name} map<string, int>`"
                    )
                self.type_of(name)
        if self.kind == "end":
            raise _WrongError(f"the `{word}<` of `{name}` is not closed", "close it by `>`")
        if not self.take(">"):
            raise _WrongError(f"`{self.text}` can't stand in the type of `{name}`", f"close `{word}<` by `>` before it")
        self.opened.pop()

    def fields(self) -> None:
        found: list[str] = []
        while True:
            name = self.name()
            self.beside(name, found)
            found.append(name)
            self.take(":")
            self.type_of(name)
            self.rest(name)
            if self.text == ">" or self.kind == "end":
                return
            self.comma(name)

    def sizes(self, word: str, name: str) -> None:
        numbers: list[int] = []
        if self.take("("):
            while self.kind == "word" and self.text.isdecimal() and self.text.isascii():
                numbers.append(int(self.text[:9]))
                self.at += 1
                if not self.take(","):
                    break
            if not self.take(")"):
                raise _WrongError(
                    f"the `{word}(` of `{name}` is not closed by numbers and `)`", f"write it as {_sized(word)}"
                )
            if not 1 <= len(numbers) <= _SIZED.get(word, 0):
                plain = "double" if word == "float" and numbers and numbers[0] > _FLOAT_BITS else word
                takes = f"write it as {_sized(word)}" if word in _SIZED else f"write `{name} {plain}`"
                raise _WrongError(
                    f"the type `{word}` of `{name}` does not take ({', '.join(map(str, numbers))})", takes
                )
        elif word in {"char", "character", "varchar"}:
            raise _WrongError(f"the type `{word}` of `{name}` has no length", f"write `{name} string`, or `{word}(20)`")
        if _SIZED.get(word) == 2 and numbers and (numbers[0] > _MOST_DIGITS or numbers[-1] > numbers[0]):
            raise _WrongError(
                f"`{name}` is a decimal of {numbers[0]} digits, {sum(numbers[1:])} of them behind the point",
                f"at most {_MOST_DIGITS} in all: `decimal(18, 2)`",
            )  # fmt: skip

    def numbers(self) -> tuple[int, ...]:
        """The numbers in brackets that stand next, which are not passed; none where there are none."""
        ahead = "".join(text for _, text in self.tokens[self.at : self.at + 5])
        found = re.match(r"\((\d{1,9})(?:,(\d{1,9}))?\)", ahead)
        return tuple(int(number) for number in found.groups() if number) if found else ()

    def rest(self, name: str) -> None:
        """What may follow a type: `NOT NULL`, then a comment."""
        if self.take("not") and not self.take("null"):
            raise _WrongError(f"`NOT` after `{name}` is not followed by `NULL`", "write NOT NULL")
        if self.take("comment"):
            if self.kind != "text":
                raise _WrongError(f"the comment of `{name}` is not quoted", "write COMMENT 'what it is'")
            self.at += 1

    def comma(self, name: str) -> None:
        if self.take(","):
            return
        if self.text == ">":
            raise _WrongError(f"there is a `>` too many after `{name}`", "leave it out")
        if self.text == ";":
            raise _WrongError(f"there is a semicolon after `{name}`", "leave it out; a comma separates columns")
        if self.text.lower() in {
            "null",
            "default",
            "generated",
            "primary",
            "unique",
            "references",
            "check",
            "constraint",
        }:
            raise _WrongError(
                f"`{self.text}` stands after `{name}`", "leave it out: a schema has names, types, NOT NULL and COMMENT"
            )
        raise _WrongError(f"there is no comma between `{name}` and `{self.text}`", "separate the columns by commas")


def _sized(word: str) -> str:
    return "`decimal(18, 2)`" if _SIZED[word] == 2 else f"`{word}(6)`" if word == "time" else f"`{word}(20)`"


def _meant(word: str, name: str, numbers: Sequence[int]) -> str:
    if word in _DECIMALS and numbers and numbers[0] <= _MOST_DIGITS:
        return f"use `decimal({','.join(map(str, numbers))})`"
    if word in {"number", "decimaltype"}:
        return "use `bigint` for whole numbers, else `decimal(18, 2)` or `double`"
    if word in _MEANT:
        return f"use `{_MEANT[word]}`"
    if name.lower() in _PLAIN:
        return f"the name stands before the type: `{word} {name}`"
    near = difflib.get_close_matches(word, [*_PLAIN, *_SIZED, *_NESTED], n=1)
    return f"did you mean `{near[0]}`?" if near else f"types are: {', '.join([*_PLAIN, *_NESTED])} and decimal"
