"""Columns that are the names of folders (`k=v`): of the types that the stream began with, whatever is there later.

Spark infers their types from all the folders that it finds when a stream starts, or a batch is read: `k=007` is a text
beside `k=abc`, and the number 7 without it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, cast

from sluice.errors import DeclarationError, SluiceError
from sluice.locations import is_local, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMMENT = re.compile(r"\bCOMMENT\s+(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.IGNORECASE)
_WITHIN = re.compile(r"<[^<>]*>|\([^()]*\)")
_FOLDER = re.compile(r"(?<=/)([^/=]+)=[^/]*(?=/)")
_DECIMAL = re.compile(r"decimal\((\d+),0\)")
_FRACTION = re.compile(r"[+-]?(\d*\.\d+|\d+\.|(\d+\.?\d*|\.\d+)[eE][+-]?\d+)", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,38}", re.ASCII)
_DEFAULT = "__HIVE_DEFAULT_PARTITION__"
"""What a folder of rows without a value has for one."""
_NOTHING = "void"
"""The type of a column whose folders have no values."""
_WHOLE = {"int", "bigint"}
_NARROWER: Mapping[str, Container[str]] = {"bigint": {"int"}, "double": {"int"}, "timestamp": {"date"}}
"""By a type that Spark finds in names of folders, those whose every value is one of it."""
Files = Callable[[], Iterable[str]]
Load = Callable[[Mapping[str, str]], "DataFrame"]
"""Reads files, of which some columns are to be of these types beside those of the schema."""


def unread_folder(file: str, base: str | None, columns: Container[str], declared: str) -> str | None:
    """The folder of a file that names a column, and that Spark takes for none; None where there is none.

    Args:
        file: The file.
        base: From where on Spark takes columns from folders; None where it takes none.
        columns: Names of columns that folders had when the stream began.
        declared: The schema, as DDL.
    """
    base = base if base is None or not is_local(base) else posixpath.normpath(local_path(base))
    above = file if base is None or not file.startswith(base) else f"{base.rstrip('/')}/"
    columns_of_rows = _top_level(declared)
    for found in _FOLDER.finditer(above):
        name = re.escape(found[1])
        if found[1] in columns or re.search(rf"(?:^|,)\s*`?{name}`?\s*:?\s+\w", columns_of_rows, re.IGNORECASE):
            return found[0]
    return None


def _top_level(declared: str) -> str:
    """A schema without what stands within its types, and without its comments."""
    declared = _COMMENT.sub("", declared)
    while (less := _WITHIN.sub("", declared)) != declared:
        declared = less
    return declared


def found_types(frame: DataFrame, declared: str) -> dict[str, str]:
    """The types of the columns that a schema does not declare: Spark has them from the names of folders."""
    from pyspark.sql.types import StructType

    known = {name.lower() for name in cast("StructType", StructType.fromDDL(declared)).fieldNames()}
    return {name: kind for name, kind in frame.dtypes if name.lower() not in known}


def load_as_begun(load: Load, files: Files, begun: Mapping[str, str], declared: str, path: str) -> DataFrame:
    """Read files such that the columns that are folders have the types that the stream began with.

    Args:
        load: Reads them.
        files: Lists those whose folders Spark has looked at.
        begun: Those types, by column.
        declared: The schema, as DDL.
        path: The source, for messages.

    Raises:
        DeclarationError: The name of a folder that is there now is no value of such a type; or nothing tells the type.
    """
    frame = load({})
    found = found_types(frame, declared)
    begun = {name: kind for name, kind in begun.items() if kind != _NOTHING}
    for name, kind in found.items():
        if kind == _NOTHING and name not in begun:
            raise _no_type(name, path)
    other = {name: kind for name, kind in begun.items() if found.get(name, kind) != kind}
    if not other:
        return frame
    for name, kind in other.items():
        if not _is_within(found[name], kind) and not _are_doubles(name, found[name], kind, files):
            # Spark would cut off what is too much for the type: a time in a day, digits behind a point.
            raise _other_names(name, kind, path)
    try:
        frame = load({name: begun[name] for name in found if name in begun})
        found_types(frame, declared)
    except SluiceError:
        raise
    except Exception as exc:
        name, kind = next(iter(other.items()))
        raise _other_names(name, kind, path) from exc
    return frame


def _is_within(found: str, begun: str) -> bool:
    """Whether every name that Spark finds one type in is a value of another one."""
    if begun == "string" or found == _NOTHING or found in _NARROWER.get(begun, ()):
        return True
    wide, narrow = _DECIMAL.fullmatch(begun), _DECIMAL.fullmatch(found)
    return wide is not None and (found in _WHOLE or (narrow is not None and int(narrow[1]) <= int(wide[1])))


def _are_doubles(name: str, found: str, begun: str, files: Files) -> bool:
    """Whether every name is a double: Spark takes one with long whole numbers beside it for a text."""
    if begun != "double" or not (found in {"bigint", "string"} or _DECIMAL.fullmatch(found)):
        return False
    column = re.compile(rf"/{re.escape(name)}=([^/]*)/", re.IGNORECASE)
    return all(place is not None and _is_double(place[1]) for place in map(column.search, files()))


def _is_double(text: str) -> bool:
    if text == _DEFAULT or _FRACTION.fullmatch(text):
        return True
    return _WHOLE_NUMBER.fullmatch(text) is not None and int(text) == int(float(text))


def _other_names(name: str, kind: str, path: str) -> DeclarationError:
    return DeclarationError(
        f"the column `{name}` of its folders was {kind} when the stream began, and there are folders now whose"
        " names are none",
        where=path,
        remedy=f"move those folders away; or put `{name}` with its type into `schema`, if what is written takes it",
    )


def _no_type(name: str, path: str) -> DeclarationError:
    return DeclarationError(
        f"the column `{name}` of its folders has no type yet: of all folders, `{name}={_DEFAULT}` alone is there",
        where=path,
        remedy=f"put `{name}` with the type that it is to have into `schema`: the stream keeps it from its first batch"
        " on",
    )
