"""Columns that are the names of folders (`k=v`): of the types that the stream began with, whatever is there later.

Spark infers their types from all the folders that it finds when a stream starts, or a batch is read: `k=007` is a text
beside `k=abc`, and the number 7 without it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, cast

from sluice.errors import DeclarationError, SluiceError
from sluice.locations import is_local, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMMENT = re.compile(r"\bCOMMENT\s+(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.IGNORECASE)
_WITHIN = re.compile(r"<[^<>]*>|\([^()]*\)")
_FOLDER = re.compile(r"(?<=/)([^/=]+)=[^/]*(?=/)")
_WHOLE = {"int", "bigint"}
_NARROWER: Mapping[str, Container[str]] = {"bigint": {"int"}, "double": {"int"}, "timestamp": {"date"}}
"""By a type that Spark finds in names of folders, those whose every value is one of it."""
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


def load_as_begun(load: Load, begun: Mapping[str, str], declared: str, path: str) -> DataFrame:
    """Read files such that the columns that are folders have the types that the stream began with.

    Args:
        load: Reads them.
        begun: Those types, by column.
        declared: The schema, as DDL.
        path: The source, for messages.

    Raises:
        DeclarationError: The name of a folder that is there now is no value of such a type.
    """
    frame = load({})
    found = found_types(frame, declared) if begun else {}
    other = {name: kind for name, kind in begun.items() if found.get(name, kind) != kind}
    if not other:
        return frame
    for name, kind in other.items():
        allowed = _WHOLE if kind.startswith("decimal") else _NARROWER.get(kind, ())
        if kind != "string" and found[name] not in allowed:
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


def _other_names(name: str, kind: str, path: str) -> DeclarationError:
    return DeclarationError(
        f"the column `{name}` of its folders was {kind} when the stream began, and there are folders now whose"
        " names are none",
        where=path,
        remedy=f"move those folders away; or put `{name}` with its type into `schema`, if what is written takes it",
    )
