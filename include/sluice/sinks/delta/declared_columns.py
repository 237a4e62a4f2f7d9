"""Whether a table has, or can have, columns by their names: those of a result, of its partitions, of its intervals."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.delta_log.types import column_paths
from sluice.errors import DeclarationError
from sluice.interval import KINDS
from sluice.sinks.delta.implicit_casts import columns_of

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


def check_alike(frame: DataFrame, *, place: str) -> None:
    """Refuse a result of which two columns, or fields, have names that are one to Delta, which tells no `a` from `A`.

    Raises:
        DeclarationError: It has such; Delta would say so in the first batch, once that is planned.
    """
    known = dict[str, tuple[int, str]]()
    for number, path in enumerate(path for path, _ in column_paths(columns_of(frame))):
        before, other = known.setdefault(path.lower(), (number, path))
        if before == number:
            continue
        if path in frame.columns and other == path:
            # What has no name is called after its expression, literals and all: that is told to nobody.
            first, second, *_ = (at for at, name in enumerate(frame.columns, 1) if name == path)
            told = f"columns {first} and {second} of the result have one name"
        else:
            told = f"the result has `{other}` and `{path}`, which are one name to Delta, whatever Spark's settings say"
        raise DeclarationError(told, where=place, remedy="rename one of them in the transform")


def check_partitions(table: DeltaTable, partition_by: Sequence[str], *, place: str) -> None:
    """Refuse a table that is partitioned by other columns.

    Args:
        table: The table.
        partition_by: What is declared.
        place: The stream and the table, for messages.

    Raises:
        DeclarationError: It is.
    """
    there = table.metadata().partition_columns
    if [name.lower() for name in partition_by] == [name.lower() for name in there]:
        return
    columns = [column.name for column in table.schema().fields]
    known = {name.lower() for name in columns}
    missing = next((name for name in partition_by if name.lower() not in known), None)
    near = difflib.get_close_matches(missing, columns, n=1) if missing is not None else []
    declared = f"it is partitioned by {', '.join(f'`{name}`' for name in there) or 'nothing'}"
    raise DeclarationError(
        f"`partition_by` names `{missing}`, which is no column of the table"
        if missing is not None
        else f"`partition_by` is {list(partition_by)}, which the table is not",
        where=place,
        remedy=f"did you mean `{near[0]}`?" if near else f"{declared}: declare that, or write to a new table",
    )


def interval_kind(table: DeltaTable, column: str, *, place: str, may_come: bool = False) -> str | None:
    """The type of the column of intervals.

    Args:
        table: The table.
        column: What is declared.
        place: The stream and the table, for messages.
        may_come: Whether a batch may bring the column; then None says that it is not there yet.

    Raises:
        DeclarationError: It is no column of the table, or none of a date or time.
    """
    kinds = {found.name: getattr(found.type, "type", "nested") for found in table.schema().fields}
    if kinds.get(column) in KINDS:
        return kinds[column]
    if column not in kinds and may_come:
        return None
    near = difflib.get_close_matches(column, [name for name, kind in kinds.items() if kind in KINDS], n=1)
    what = f"is of type {kinds[column]}" if column in kinds else f"is no column of the table ({', '.join(kinds)})"
    raise DeclarationError(
        f"`interval_column` is `{column}`, which {what}",
        where=place,
        remedy=f"did you mean `{near[0]}`?" if near else "name a column of type date or timestamp",
    )
