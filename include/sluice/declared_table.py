"""A table as it is declared: by its path, or by its name in a catalog of Spark's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from sluice.declaration_checks import check_path
from sluice.errors import DeclarationError
from sluice.surroundings import Surroundings
from sluice.table_names import NamedTable, TableName


@dataclass(frozen=True)
class DeclaredTable:
    """Base of the sources and sinks that are such a table."""

    declared_by: ClassVar[str]
    """What declares it: `sources.delta`."""

    path: str
    """Where it is; of a table by name only once it is resolved, and the name before."""
    table: TableName | None = field(default=None, kw_only=True)
    """Its name, where it is declared by that."""

    @property
    def named_table(self) -> NamedTable | None:
        """The table by its name; None for one that is declared by its path."""
        return None if self.table is None else NamedTable(self.table, self.path)

    def located(self, around: Surroundings) -> Self:
        """The same with its location.

        Raises:
            DeclarationError: The path leaves the project, or nobody says where the table is.
        """
        if self.table is not None:
            place = declared_place(self.declared_by, None, str(self.table))
            return replace(self, path=around.table(self.table, place=place))
        return replace(self, path=around.path(self.path, place=declared_place(self.declared_by, self.path, None)))


def declared_place(function: str, path: object, table: object) -> str:
    """What is declared, as it stands in the declaration, for messages."""
    if path is not None:
        return f"{function}({path!r})"
    return f"{function}()" if table is None else f"{function}(table={table!r})"


def path_or_name(path: str | None, table: str | None, place: str) -> tuple[str, TableName | None]:
    """What a table is declared by, checked: its path, or its name, which stands in for the path until it is known.

    Raises:
        DeclarationError: Both are given, or none, or what is given is none.
    """
    if table is None:
        if path is None:
            raise DeclarationError("`path` is missing", where=place, remedy="give the table's folder, or `table=NAME`")
        check_path(path, place)
        return path, None
    if path is not None:
        raise DeclarationError("a path and `table` are both given", where=place, remedy="keep one of them")
    name = TableName.parse(table, place=place)
    return str(name), name
