"""A Delta table that its first batch makes, in one commit with the batch's files, as Delta's stream writer would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sluice.delta_log.table import open_log
from sluice.errors import StorageError
from sluice.sinks.delta.refused_columns import name_not_taken
from sluice.sinks.delta.table_rules import rule_of_columns, rule_of_partitions
from sluice.storage import Storage
from sluice.storage_failures import library_call

if TYPE_CHECKING:
    from deltalake import CommitProperties
    from deltalake.transaction import AddAction


def obstacle(columns: str, partition_by: Sequence[str]) -> str | None:
    """Why only Spark can make a table of these columns, or says what is wrong with them; None when it can be made here.

    Args:
        columns: Those of the batch, as Spark's JSON.
        partition_by: The columns that the sink is declared to be partitioned by.
    """
    made = _nullable(json.loads(columns))
    kinds = {found["name"]: found["type"] for found in made["fields"]}
    if not kinds or len({name.lower() for name in kinds}) < len(made["fields"]):
        return "the batch has no columns, or one of them twice"
    if (name := name_not_taken(made)) is not None:
        return f"the name of column `{name}` is none that Delta takes"
    if len(partition_by) >= len(kinds):
        return "every column is a partition column"
    return rule_of_partitions(kinds, partition_by) or rule_of_columns(made)


def create(
    location: str,
    columns: str,
    partition_by: Sequence[str],
    added: Sequence[AddAction],
    properties: CommitProperties,
    *,
    storage: Storage,
) -> None:
    """Make the table, with a batch's files in it.

    Raises:
        CommitFailedError: It is there meanwhile.
        StorageError: It could not be made.
    """
    from deltalake import Schema
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import create_table_with_add_actions

    schema = Schema.from_json(json.dumps(_nullable(json.loads(columns))))
    try:
        with library_call("the Delta table could not be made", location, passing=()):
            create_table_with_add_actions(
                location,
                schema,
                [*added],
                partition_by=[*partition_by],
                storage_options=dict(storage.options) or None,
                commit_properties=properties,
            )
    except StorageError as exc:
        # delta-rs has no error of its own for that.
        if open_log(location, storage=storage) is None:
            raise
        raise CommitFailedError(f"the table is there: {exc}") from exc


def _nullable(kind: Any) -> Any:
    """A type in which everything may be null, as Spark makes the columns of a table that a stream begins."""
    if not isinstance(kind, dict):
        return kind
    match kind["type"]:
        case "struct":
            return kind | {
                "fields": [found | {"nullable": True, "type": _nullable(found["type"])} for found in kind["fields"]]
            }
        case "array":
            return kind | {"containsNull": True, "elementType": _nullable(kind["elementType"])}
        case "map":
            kinds = {part: _nullable(kind[part]) for part in ("keyType", "valueType")}
            return kind | kinds | {"valueContainsNull": True}
    return kind
