"""Which rules a Delta table has that only Spark's own writer heeds: a commit of metadata would pass over them.

What is not known to mean nothing to a writer is taken for such a rule: Spark's writer is right with every table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PLAIN_WRITER_VERSION = 2
_PLAIN_FEATURES = {"appendOnly", "invariants"}
_PLAIN_SETTINGS = {
    "delta.appendOnly",
    "delta.autoOptimize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.checkpointRetentionDuration",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableExpiredLogCleanup",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.setTransactionRetentionDuration",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
}
"""Settings of Delta's own that say nothing about which rows a table takes, nor how they are written."""
_PLAIN_NOTES = {"comment", "spark.watermarkDelayMs"}
"""What a column may note without a meaning for writers; the others are lengths, defaults, expressions, identities. A
column that was an event time of the stream says so in the table that it made."""
_PLAIN_TYPES = {
    "binary",
    "boolean",
    "byte",
    "date",
    "double",
    "float",
    "integer",
    "long",
    "short",
    "string",
    "timestamp",
}

_PARTITION_KINDS = ("string", "byte", "short", "integer", "long", "boolean", "date")
"""Types whose values a folder's name has as Delta's log has them."""


def rule_for_spark(table: DeltaTable) -> str | None:
    """A rule of a table that only Spark's writer heeds, in words; None when there is none."""
    metadata, protocol = table.metadata(), table.protocol()
    settings = (key for key in metadata.configuration if key.startswith("delta.") and key not in _PLAIN_SETTINGS)
    if (setting := next(settings, None)) is not None:
        return f"the table has `{setting}`, which only Spark heeds"
    features = set(protocol.writer_features or ()) - _PLAIN_FEATURES
    if features or (protocol.min_writer_version > _PLAIN_WRITER_VERSION and protocol.writer_features is None):
        return f"the table has features that only Spark heeds ({', '.join(sorted(features)) or 'an older protocol'})"
    return rule_of_columns(json.loads(table.schema().to_json()))


def rule_of_columns(columns: Mapping[str, Any]) -> str | None:
    """A rule or a type of columns, as Spark's JSON has them, that only Spark's writer heeds; None without one."""
    return next(_rules_of_struct(columns, ""), None)


def rule_of_partitions(kinds: Mapping[str, Any], partition_by: Iterable[str]) -> str | None:
    """Why the folders of a partition don't have its values as Delta's log has them; None when they do.

    Args:
        kinds: The types of the columns, by name, as Delta's log has them.
        partition_by: The partition columns.
    """
    wrong = next((name for name in partition_by if kinds.get(name) not in _PARTITION_KINDS), None)
    return None if wrong is None else f"the table is partitioned by `{wrong}`, of type {kinds.get(wrong)}"


def _rules_of_struct(struct: Mapping[str, Any], before: str) -> Iterator[str]:
    for found in struct["fields"]:
        path = f"{before}{found['name']}"
        if not found["nullable"]:
            yield f"column `{path}` takes no nulls, which only Spark heeds"
        notes = sorted(found.get("metadata", {}).keys() - _PLAIN_NOTES)
        if notes:
            yield f"column `{path}` has `{notes[0]}`, which only Spark heeds"
        yield from _rules_of_type(found["type"], path)


def _rules_of_type(kind: Any, path: str) -> Iterator[str]:
    if isinstance(kind, str):
        if kind not in _PLAIN_TYPES and not kind.startswith("decimal("):
            yield f"column `{path}` is of type {kind}, which only Spark writes"
        return
    if kind["type"] == "struct":
        yield from _rules_of_struct(kind, f"{path}.")
        return
    if not kind.get("containsNull", True) or not kind.get("valueContainsNull", True):
        yield f"column `{path}` takes no nulls in it, which only Spark heeds"
    for part in ("elementType", "keyType", "valueType"):
        if part in kind:
            yield from _rules_of_type(kind[part], f"{path}.{part.removesuffix('Type')}")
