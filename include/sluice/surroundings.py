"""What the declarations of a project are resolved by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.paths import resolve_path
from sluice.table_names import TableName, table_location


@dataclass(frozen=True)
class Surroundings:
    """What a declaration is resolved by: what its project says."""

    root: str
    """The folder that relative paths begin at."""
    moving_folder: str | None = None
    """What no stream may read nor write in: the next version of it lies elsewhere."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """The project's settings of Spark."""
    import_roots: tuple[str, ...] = ()
    """Where the project's own code is imported from."""
    tables: Mapping[TableName, str] = field(default_factory=dict)
    """Where the tables are that the project tells by their names."""

    def path(self, declared: str, *, place: str) -> str:
        """A declared path as a location; see `resolve_path`.

        Raises:
            DeclarationError: It leaves the project, or names a variable that is not set.
        """
        return resolve_path(declared, self.root, place=place)

    def table(self, name: TableName, *, place: str) -> str:
        """The location of a table that is declared by its name; see `table_location`.

        Raises:
            DeclarationError: Nobody says where it is.
        """
        return table_location(name, self.tables, self.conf, place=place)
