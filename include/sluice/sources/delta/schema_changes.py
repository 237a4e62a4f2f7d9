"""Changes of a table's columns among the versions that a batch reads.

Spark reads all of them with the columns that the table has now. What was added since, stands in another place or has
become wider is read right: what an older version does not have is null. Of a column that had another name or another
type then, that is there no more, or that may be null no longer, Spark says so once the batch has begun; so it is
refused before. So is a version of before the table was replaced by another one at its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.delta_log.table import (
    DeltaLog,
    TableMetadata,
    column_mapping,
    commit_file,
    is_version_gone,
    load_table,
    read_commit,
    spark_type,
)
from sluice.delta_log.types import PARTS, is_same, is_wider
from sluice.errors import Problem
from sluice.sources.delta.refusals import replaced_within
from sluice.storage import Storage
from sluice.storage_failures import library_call

_DELTA = "spark.databricks.delta."
_RENAMED = f"{_DELTA}streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled"
_PHYSICAL = "delta.columnMapping.physicalName"
_UNREADABLE = "the columns of the Delta table can't be read"
_WIDENS = {"typeWidening", "typeWidening-preview"}
_NO_MAPPING = "none"


@dataclass(frozen=True)
class ReadSettings:
    """What settings of Spark let it read, whatever becomes of the values."""

    renamed: bool = False
    """Versions before a column was renamed or dropped, in a table with column mapping."""
    repartitioned: bool = False
    """Versions before the table was partitioned otherwise."""
    at_start: bool = False
    """A first version with whatever columns, where its own commit does not set them."""
    nullable: bool = False
    """Versions in which a column may be null that may not now."""
    wider: bool = True
    """Versions before a column was given a wider type, in a table with the feature."""

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> ReadSettings:
        """What settings say."""

        def says(name: str, *, unless_set: bool = False) -> bool:
            return conf.get(name, str(unless_set)).strip().lower() == "true"

        widened = f"{_DELTA}typeWidening."
        return cls(
            renamed=says(_RENAMED),
            repartitioned=says(f"{_DELTA}streaming.unsafeReadOnPartitionColumnChanges.enabled"),
            at_start=says(f"{_DELTA}streaming.unsafeReadOnIncompatibleSchemaChangesDuringStreamStart.enabled"),
            nullable=says(f"{_DELTA}streaming.unsafeReadOnNullabilityChange.enabled"),
            wider=says(f"{widened}allowTypeChangeStreamingDeltaSource", unless_set=True)
            and not says(f"{widened}enableStreamingSchemaTracking"),
        )


def told_metadata(log: DeltaLog, versions: range, *, storage: Storage) -> dict[int, TableMetadata | None]:
    """What each of some versions makes of the table; None for one that says nothing of it.

    Raises:
        RefusedError: A commit is damaged.
        StorageError: One can't be read.
    """
    commits = (read_commit(log, version, storage=storage) for version in versions if version <= log.latest)
    return {commit.version: commit.metadata for commit in commits if commit is not None}


def changed_columns(
    log: DeltaLog, read: Mapping[int, TableMetadata | None], settings: ReadSettings | None, *, storage: Storage
) -> Problem | None:
    """What of some versions can't be read as the table that it is now, with its columns; None when all can.

    Args:
        log: The table's log.
        read: The versions of which something is read, in order, with what each makes of the table: by `told_metadata`;
            of a first one that is read as a whole, None.
        settings: What Spark reads all the same; None where it reads each version with its own columns.
        storage: Where the log is.

    Raises:
        StorageError: The log can't be read, or a version has no columns in it.
    """
    told = {version: metadata for version, metadata in read.items() if metadata is not None}
    first = next(iter(read), log.latest + 1)
    if settings is None or first > log.latest:
        return None
    # Of a log that is whole, every version can be told.
    is_gone = log.first_kept > 0 and is_version_gone(log, first, storage=storage)
    is_mapped = column_mapping(log.configuration) != _NO_MAPPING
    if is_gone and is_mapped and not settings.renamed:
        return _untold(log, first)
    if told.keys() <= {first} and max(read) >= log.latest:
        # All of them have the columns of the newest one.
        return None
    at_start = set() if first in told or is_gone else {first}
    for version in at_start:
        told[version] = _metadata(log, version, storage)[0]
    if (another := _another_table(log, told, storage)) is not None:
        return another
    now, widens = _metadata(log, log.latest, storage)
    for version in sorted(told):
        with library_call(_UNREADABLE, commit_file(log.location, version), passing=()):
            found = _Versions(version, told[version], now, settings, version in at_start, widens and settings.wider)
            lines = found.lines()
        if lines:
            return _refused(log, version, lines)
    return None


def _metadata(log: DeltaLog, version: int, storage: Storage) -> tuple[TableMetadata, bool]:
    """What a version of the table is, and whether its columns may be of wider types than in versions before."""
    table = load_table(log.location, storage=storage, version=version)
    with library_call(_UNREADABLE, log.location, passing=()):
        found = table.metadata()
        columns, partitions = table.schema().to_json(), tuple(found.partition_columns)
        metadata = TableMetadata(columns, partitions, dict(found.configuration), str(found.id))
        return metadata, bool(_WIDENS & set(table.protocol().writer_features or ()))


def _another_table(log: DeltaLog, told: Mapping[int, TableMetadata], storage: Storage) -> Problem | None:
    """What is wrong where versions are not of the table that is there now: one that is replaced has a new id."""
    ids = {version: metadata.table_id for version, metadata in told.items() if metadata.table_id is not None}
    if set(ids.values()) <= {log.table_id}:
        return None
    version = min(version for version, table_id in ids.items() if table_id != log.table_id)
    later = told_metadata(log, range(version, log.latest + 1), storage=storage)
    since = log.latest
    for number, found in reversed(later.items()):
        if found is not None and found.table_id != log.table_id:
            break
        since = number if found is not None else since
    return replaced_within(log, version, ids[version], since)


@dataclass(frozen=True)
class _Versions:
    """A version that is read, and the newest one, with whose columns it is."""

    version: int
    then: TableMetadata
    now: TableMetadata
    settings: ReadSettings
    is_start: bool
    """Whether it is where the reading begins, and its own commit says nothing of columns."""
    widens: bool
    """Whether a column of now may be of a wider type."""

    def lines(self) -> list[str]:
        """A line for each column that is not the same column any more, and for what concerns all of them."""
        was, now = json.loads(self.then.columns), json.loads(self.now.columns)
        is_mapped, reads_renamed = self.now.column_mapping != _NO_MAPPING, self.settings.renamed
        is_compared = not (self.is_start and self.settings.at_start)
        found = dict(self._renamed(was, now, "")) if is_mapped and not reads_renamed else {}
        if self.then.column_mapping != _NO_MAPPING and not is_mapped and not reads_renamed:
            found["column mapping"] = f"`{self.then.column_mapping}` in version {self.version}, none now"
        for path, line in self._unread(was, now, "") if is_compared else ():
            found.setdefault(path, line)
        if not self.settings.repartitioned and (not reads_renamed if is_mapped else is_compared):
            found |= self._repartitioned()
        return [f"{path}: {line}" for path, line in found.items()]

    def _repartitioned(self) -> dict[str, str]:
        was, now = (", ".join(found.partition_columns) or "none" for found in (self.then, self.now))
        return {} if was == now else {"partition columns": f"{was} in version {self.version}, {now} now"}

    def _renamed(self, was: Any, now: Any, before: str) -> Iterator[tuple[str, str]]:
        """What column mapping shows: columns whose files are the same and whose names are not, or that are gone."""
        if not isinstance(was, dict) or not isinstance(now, dict) or was["type"] != now["type"]:
            return
        known = {_physical(found): found for found in now.get("fields", ())}
        for found in was.get("fields", ()):
            path, there = f"{before}.{found['name']}".removeprefix("."), known.get(_physical(found))
            if there is None:
                yield path, self._dropped(found["type"])
            elif there["name"] != found["name"]:
                yield path, self._called(there["name"])
            else:
                yield from self._renamed(found["type"], there["type"], path)
        for part, name in PARTS.items():
            if part in was:
                yield from self._renamed(was[part], now[part], f"{before}.{name}")

    def _unread(self, was: Any, now: Any, before: str) -> Iterator[tuple[str, str]]:
        """What the names and types show."""
        if not isinstance(was, dict) or not isinstance(now, dict) or was["type"] != now["type"]:
            are_atomic = isinstance(was, str) and isinstance(now, str)
            if not is_same(was, now) and not (self.widens and are_atomic and is_wider(was, now)):
                yield before, f"{spark_type(was)} in version {self.version}, {spark_type(now)} now"
            return
        known = {found["name"].lower(): found for found in now.get("fields", ())}
        # Of renamed columns Spark then reads what has their names of now.
        may_lack = self.settings.renamed and self.now.column_mapping != _NO_MAPPING
        for found in was.get("fields", ()):
            path, there = f"{before}.{found['name']}".removeprefix("."), known.get(found["name"].lower())
            if there is None:
                if not may_lack:
                    yield path, self._dropped(found["type"])
            elif there["name"] != found["name"]:
                yield path, self._called(there["name"])
            else:
                yield from self._nulls(path, found, there, "nullable")
                yield from self._unread(found["type"], there["type"], path)
        for part, name in PARTS.items():
            if part in was:
                path = f"{before}.{name}"
                yield from self._nulls(
                    path, was, now, {"element": "containsNull", "value": "valueContainsNull"}.get(name)
                )
                yield from self._unread(was[part], now[part], path)

    def _nulls(self, path: str, was: Any, now: Any, word: str | None) -> Iterator[tuple[str, str]]:
        if word is not None and was.get(word, True) and not now.get(word, True) and not self.settings.nullable:
            yield path, f"may be null in version {self.version}, and not now"

    def _dropped(self, kind: Any) -> str:
        return f"{spark_type(kind)} in version {self.version}, dropped since"

    def _called(self, now: str) -> str:
        return f"called so in version {self.version}, renamed to `{now}` since"


def _physical(column: Mapping[str, Any]) -> str:
    """What a column is called in the files, which a new name does not change."""
    return str(column.get("metadata", {}).get(_PHYSICAL, column["name"]))


def _refused(log: DeltaLog, version: int, lines: list[str]) -> Problem:
    return Problem(
        code="SOURCE_COLUMNS_CHANGED",
        file=commit_file(log.location, version),
        cause="of the versions that are to be read, some have columns that the table has no more:"
        + "".join(f"\n  {line}" for line in lines),
        consequence="Spark reads every version with the columns of the newest one, and refuses these once the batch has"
        " begun",
        remedy="let Spark follow the columns: declare `schema_tracking_location`, as docs/schema-evolution.md says; or"
        " declare a new stream with a sink of its own",
    )


def _untold(log: DeltaLog, version: int) -> Problem:
    return Problem(
        code="SOURCE_COLUMNS_CHANGED",
        file=commit_file(log.location, version),
        cause=f"which columns version {version} has, from which on the table is to be read, nobody can tell: the log"
        " before it is gone (log clean-up)",
        consequence="Spark compares them with those of now where a table has column mapping, and refuses what it can't"
        " compare",
        remedy="restore the files of the log; or, if no column was renamed or dropped since, declare"
        f' `Stream(conf={{"{_RENAMED}": True}})` and run once; or declare a new stream with a sink of its own',
    )
