"""What files that were written aside were fitted to: a table may be another one by the time that they are to count."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sluice.delta_log.table import spark_columns
from sluice.sinks.contract import TableForm

if TYPE_CHECKING:
    from deltalake import DeltaTable


def form_of(table: DeltaTable) -> TableForm:
    """What rows are to be fitted to that a table gets.

    Raises:
        StorageError: delta-rs can't tell.
    """
    metadata = table.metadata()
    return TableForm(str(metadata.id), spark_columns(table), tuple(metadata.partition_columns))


def changed_since(then: TableForm | None, table: DeltaTable) -> str | None:
    """Why files that were written for a table can't be added to it as it is now, in words; None when they can.

    A column that others have added takes nulls, and that is what the files have for it.

    Args:
        then: The table that they were written for; None where there was none.
        table: The table, at the version that a commit is to follow.

    Raises:
        StorageError: delta-rs can't tell.
    """
    if then is None:
        return "there is a table"
    now = form_of(table)
    if now.identity != then.identity:
        return "there is another table"
    if now.partition_by != then.partition_by:
        return f"the table is partitioned by {_names(now.partition_by)}, and no longer by {_names(then.partition_by)}"
    for name, kind in then.columns.items():
        if name not in now.columns:
            return f"the table has no column `{name}`"
        if now.columns[name] != kind:
            return f"column `{name}` of the table is of type {now.columns[name]}, and no longer {kind}"
    fields = json.loads(table.schema().to_json())["fields"]
    needed = [found["name"] for found in fields if found["name"] not in then.columns and not found["nullable"]]
    return f"the table has a column `{needed[0]}` that takes no nulls" if needed else None


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns) or "nothing"
