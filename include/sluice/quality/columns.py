"""The columns that a suite is checked against: names and types, read from DDL or from a mapping, without Spark."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sluice.errors import DeclarationError
from sluice.sql_text import identifier

Family = Literal["number", "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary", "nested", "other"]

_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(["tinyint", "smallint", "int", "bigint", "float", "double", "decimal"], "number"),
    **dict.fromkeys(["string", "varchar", "char"], "string"),
    **dict.fromkeys(["array", "map", "struct"], "nested"),
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "binary": "binary",
}
INTEGRAL = ("tinyint", "smallint", "int", "bigint")
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`,<>()]+))\s*:?\s*", re.DOTALL)
_SUFFIX = re.compile(r"\s+(NOT\s+NULL|COMMENT\s|COLLATE\s|DEFAULT\s).*", re.DOTALL | re.IGNORECASE)
_MAX_DEPTH = 100
_MAX_DDL = 1_000_000


@dataclass(frozen=True)
class Column:
    """A column, or a field of a struct in one."""

    path: tuple[str, ...]
    """Its name; for a field of a struct, the names on the way to it."""
    type: str
    """Its type as Spark's `simpleString` spells it."""

    @property
    def name(self) -> str:
        """The name as people write it."""
        return ".".join(self.path)

    @property
    def sql(self) -> str:
        """The column in an expression."""
        return identifier(*self.path)

    @property
    def base(self) -> str:
        """The type without its parameters: `decimal(10,2)` is `decimal`."""
        return re.split(r"[(<]", self.type, maxsplit=1)[0].strip()

    @property
    def family(self) -> Family:
        """What values it can be compared with."""
        return _FAMILIES.get(self.base, "other")

    @property
    def is_orderable(self) -> bool:
        """Whether Spark can sort by it."""
        return self.family not in {"other", "nested"} or (
            self.family == "nested" and not re.search(r"\b(map|variant)\b", self.type)
        )


@dataclass(frozen=True)
class Schema:
    """The columns of a DataFrame, in order."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, described: str | Mapping[str, str]) -> Schema:
        """Read columns from a DDL string (`"a INT, b STRING"`) or from a mapping of names to types.

        Raises:
            DeclarationError: It does not parse.
        """
        for text in [described] if isinstance(described, str) else described.values():
            _check_depth(text)
        if isinstance(described, str):
            return cls(tuple(Column((name,), kind) for name, kind in _fields(described)))
        return cls(tuple(Column((name,), _normal(kind)) for name, kind in described.items()))

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.path[0] for column in self.columns]

    def find(self, name: str, *, place: str) -> Column:
        """The column that a suite means: by its whole name first, then as a path into structs; case does not matter.

        Raises:
            DeclarationError: There is none, or there are several.
        """
        quoted = re.fullmatch(r"`((?:[^`]|``)+)`", name)
        whole = quoted[1].replace("``", "`") if quoted else name
        found = _same(self.columns, whole, place)
        if found is None and not quoted:
            found = self._nested(name, place)
        if found is not None:
            if "${" in found.name:
                raise DeclarationError(
                    f"the column `{found.name}` can't be named in SQL",
                    where=place,
                    remedy="rename it: Spark takes `${...}` for a variable",
                )
            return found
        known = {known.lower(): known for known in self._all_names()}
        near = difflib.get_close_matches(name.lower(), known, n=1)
        raise DeclarationError(
            f"there is no column `{name}`",
            where=place,
            remedy=f"did you mean `{known[near[0]]}`?" if near else f"the columns are: {', '.join(self.names)}",
        )

    def _nested(self, name: str, place: str) -> Column | None:
        parts = [
            (quoted.replace("``", "`") if quoted else plain)
            for quoted, plain in re.findall(r"`((?:[^`]|``)+)`|([^.`]+)", name)
        ]
        level, found = self.columns, None
        for part in parts:
            field = _same(level, part, place)
            if field is None:
                return None
            found = Column((*found.path, *field.path) if found else field.path, field.type)
            level = tuple(_struct_fields(field.type))
        return found

    def _all_names(self) -> Iterator[str]:
        for column in self.columns:
            yield column.name
            yield from (f"{column.name}.{field.name}" for field in _struct_fields(column.type))


def _same(columns: tuple[Column, ...], name: str, place: str) -> Column | None:
    exact = [column for column in columns if column.path[0] == name]
    if exact:
        return exact[0]
    alike = [column for column in columns if column.path[0].lower() == name.lower()]
    if len(alike) > 1:
        raise DeclarationError(
            f"`{name}` may be any of {', '.join(f'`{column.path[0]}`' for column in alike)}",
            where=place,
            remedy="write it as the column is spelled",
        )
    return alike[0] if alike else None


def _check_depth(ddl: str) -> None:
    depth = 0
    for bracket in re.findall(r"[<>]", ddl):
        depth += 1 if bracket == "<" else -1
        if depth > _MAX_DEPTH:
            raise DeclarationError(
                "a type in a schema is nested too deeply", remedy=f"nest at most {_MAX_DEPTH} types in each other"
            )


def _struct_fields(kind: str) -> Iterator[Column]:
    if kind.startswith("struct<") and kind.endswith(">"):
        for name, field in _fields(kind[len("struct<") : -1]):
            yield Column((name,), field)


def _fields(ddl: str) -> Iterator[tuple[str, str]]:
    if len(ddl) > _MAX_DDL:
        raise DeclarationError("the schema is too long", remedy=f"give at most {_MAX_DDL:,} characters")
    for part in _split(ddl):
        # Spark's `simpleString` puts a colon behind the name of a field, and no quotes around it.
        colon = next(_outside(part, ":"), None)
        match = _FIELD.match(part)
        if colon is not None and "`" not in part[:colon]:
            yield part[:colon].strip(), _normal(_SUFFIX.sub("", part[colon + 1 :]))
            continue
        kind = _normal(_SUFFIX.sub("", part[match.end() :])) if match else ""
        if not match or not kind:
            raise DeclarationError(
                f"`{part.strip()[:80]}` in a schema is no column",
                remedy='write columns as "name TYPE, name TYPE"; names with other characters in backticks',
            )
        name = match[1].replace("``", "`") if match[1] else match[2]
        yield name, kind


def _split(ddl: str) -> Iterator[str]:
    """The parts of a DDL string between the commas that are in no bracket, no backticks and no quotes."""
    start = 0
    for at in _outside(ddl, ","):
        yield ddl[start:at]
        start = at + 1
    if ddl[start:].strip():
        yield ddl[start:]


def _outside(ddl: str, wanted: str) -> Iterator[int]:
    """Where a character stands in no bracket, no backticks and no quotes."""
    depth, quote = 0, ""
    for at, character in enumerate(ddl):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == wanted and depth == 0:
            yield at


def _normal(kind: str) -> str:
    """A type as `simpleString` spells it; the names of fields keep their case."""
    text = kind.strip()
    head = re.match(r"[A-Za-z_]+", text)
    if not head:
        return text
    name, rest = head[0].lower(), text[head.end() :].strip()
    name = _SYNONYMS.get(name, name)
    if rest.startswith("<") and rest.endswith(">"):
        inner = rest[1:-1]
        if name == "struct":
            return f"struct<{','.join(f'{_quoted(field)}:{found}' for field, found in _fields(inner))}>"
        return f"{name}<{','.join(_normal(part) for part in _split(inner))}>"
    if name == "decimal" and not rest:
        return "decimal(10,0)"
    return name + re.sub(r"\s", "", rest)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else identifier(name)
