"""Tables that are declared by their names in a catalog of Spark's, and where they are, which a plan asks nobody."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.errors import DeclarationError
from sluice.locations import is_local, join
from sluice.paths import expand, resolve_path

WAREHOUSE = "spark.sql.warehouse.dir"
"""Where Spark's own catalog puts the tables that are made without a place."""
SPARK_CATALOG = "spark_catalog"
DEFAULT_DATABASE = "default"
_PART = re.compile(r"\w+")
_PART_OF_SPARK = re.compile(r"[A-Za-z0-9_]+")
"""Of names in Spark's own catalog."""
_MOST_PARTS = 3


@dataclass(frozen=True)
class TableName:
    """The name of a table, in full: Spark's own catalog and its database `default` need not be written."""

    catalog: str
    database: str
    table: str

    @classmethod
    def parse(cls, text: object, *, place: str) -> TableName:
        """A name as people write it: `visits`, `shop.visits`, `lake.shop.visits`.

        Raises:
            DeclarationError: It is no such name.
        """
        parts = text.split(".") if isinstance(text, str) else []
        if not 0 < len(parts) <= _MOST_PARTS or not all(map(_PART.fullmatch, parts)):
            raise DeclarationError(
                f"{text!r} is no name of a table",
                where=place,
                remedy="write it as `table`, `database.table` or `catalog.database.table`, of letters, digits and `_`;"
                " for a folder, give its path",
            )
        catalog, database, table = [SPARK_CATALOG, DEFAULT_DATABASE][: _MOST_PARTS - len(parts)] + parts
        if catalog.lower() == SPARK_CATALOG and not all(map(_PART_OF_SPARK.fullmatch, parts)):
            raise DeclarationError(
                f"{text!r} has letters that Spark's own catalog does not take",
                where=place,
                remedy="write it with a to z, digits and `_`",
            )
        return cls.of(catalog, database, table)

    @classmethod
    def of(cls, catalog: str, database: str, table: str) -> TableName:
        """The name with these parts. Spark's own catalog does not tell capital letters from small ones; others may."""
        if catalog.lower() == SPARK_CATALOG:
            return cls(catalog.lower(), database.lower(), table.lower())
        return cls(catalog, database, table)

    def __str__(self) -> str:
        parts = [self.database, self.table]
        return ".".join(parts if self.catalog == SPARK_CATALOG else [self.catalog, *parts])

    @property
    def quoted(self) -> str:
        """The name in SQL, where no view of the session has it."""
        return f"`{self.catalog}`.`{self.database}`.`{self.table}`"


@dataclass(frozen=True)
class NamedTable:
    """A table that a stream declares by its name, and where the plan has it."""

    name: TableName
    location: str


def read_tables(given: Mapping[str, Any], root: str, *, place: str) -> dict[TableName, str]:
    """What `[tables]` of a project says: where each table is.

    Args:
        given: Paths by names; a dotted key without quotes makes a table of TOML.
        root: The project's folder, which relative paths begin at.
        place: The file, for messages.

    Raises:
        DeclarationError: A name or a path is none, or a table has two.
    """
    found: dict[TableName, str] = {}
    for key, path in _flat(given):
        where = f"{place}, [tables]"
        name = TableName.parse(key, place=where)
        if name in found:
            raise DeclarationError(f"the table `{name}` has two paths", where=where, remedy="leave one of them out")
        found[name] = resolve_path(path, root, place=f"{where}, `{key}`")
    return found


def _flat(given: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def table_location(name: TableName, tables: Mapping[TableName, str], conf: Mapping[str, str], *, place: str) -> str:
    """Where a table is: where the project says, else where Spark's own catalog would put it.

    Args:
        name: The table's.
        tables: The locations that the project gives by name.
        conf: The settings of the session.
        place: Where the table is declared, for messages.

    Raises:
        DeclarationError: Nobody says it.
    """
    _check_catalog(name, conf, place)
    if name in tables:
        return tables[name]
    warehouse = None if (declared := conf.get(WAREHOUSE)) is None else expand(declared, place=f"{place}, {WAREHOUSE}")
    is_sparks = name.catalog == SPARK_CATALOG
    if is_sparks and warehouse is not None:
        if is_local(warehouse) and not warehouse.removeprefix("file:").startswith("/"):
            raise DeclarationError(
                f"`{WAREHOUSE}` is the relative path {warehouse!r}, which Spark takes from wherever a driver starts",
                where=place,
                remedy=f'write it absolute, or the table under [tables] in sluice.toml: `"{name}" = "PATH"`',
            )
        return warehouse_folder(resolve_path(warehouse, "/", place=f"{place}, {WAREHOUSE}"), name.database, name.table)
    near = difflib.get_close_matches(str(name), map(str, tables), n=1)
    by_warehouse = f"; or set `{WAREHOUSE}` under [spark.conf], if it is in there" if is_sparks else ""
    meant = f"did you mean `{near[0]}`? Else " if near else ""
    raise DeclarationError(
        f"nobody says where the table `{name}` is, and a plan can't ask Spark's catalog",
        where=place,
        remedy=f'{meant}write it under [tables] in sluice.toml: `"{name}" = "PATH"`{by_warehouse}',
    )


def _check_catalog(name: TableName, conf: Mapping[str, str], place: str) -> None:
    """Refuse a name of two parts of which Spark takes the first for a catalog.

    Raises:
        DeclarationError: It is such a name.
    """
    if name.catalog == SPARK_CATALOG and name.database in {SPARK_CATALOG, *_catalogs(conf)}:
        raise DeclarationError(
            f"`{name.database}` is a catalog of Spark's, and `{name}` does not say in which of its databases it is",
            where=place,
            remedy=f"write the name in full: `{name.database}.DATABASE.{name.table}`",
        )


def _catalogs(conf: Mapping[str, str]) -> Iterator[str]:
    prefix = "spark.sql.catalog."
    return (key.removeprefix(prefix).lower() for key in conf if key.startswith(prefix))


def warehouse_folder(warehouse: str, database: str, table: str) -> str:
    """Where Spark's own catalog puts a table that is made without a place."""
    folders = [] if database.lower() == DEFAULT_DATABASE else [f"{database.lower()}.db"]
    return join(warehouse, *folders, table.lower())
