"""A Delta table seen without a JVM: versions, commit times, files, transactions.

delta-rs answers what concerns the table as a whole; single commits are read from the log's own JSON, because only
they tell what a stream would see: which files each version added, and whether it changed data otherwise. Times are
those in the log (in-commit timestamps where the table has them), never file times, which do not survive a copy.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from sluice.delta_log.checkpoint import AppTransaction, LogCheckpoint, checkpoint_transactions, complete_checkpoints
from sluice.errors import DeclarationError, Problem, RefusedError
from sluice.locations import is_local, join
from sluice.storage import Storage
from sluice.storage_failures import library_call

if TYPE_CHECKING:
    from deltalake import DeltaTable, Transaction

TRANSACTIONS_EXPIRE = "delta.setTransactionRetentionDuration"
"""The property by which a table lets transactions be forgotten; without it, none ever is."""
_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_LOOK = "check the table's _delta_log"
_MAX_COMMIT_BYTES = 512 * 1024 * 1024


class _Add(msgspec.Struct, rename="camel"):
    path: str
    size: int = 0
    data_change: bool = True
    modification_time: int = 0
    stats: str | None = None
    deletion_vector: dict[str, Any] | None = None


class _Remove(msgspec.Struct, rename="camel"):
    path: str
    data_change: bool = True


class _CommitInfo(msgspec.Struct, rename="camel"):
    # Free-form by Delta's protocol: what is not as expected is not known.
    timestamp: Any = None
    in_commit_timestamp: Any = None
    operation: Any = None
    operation_metrics: Any = None
    user_metadata: Any = None


class _Txn(msgspec.Struct, rename="camel"):
    app_id: str
    version: int


class _Action(msgspec.Struct, rename="camel"):
    add: _Add | None = None
    remove: _Remove | None = None
    commit_info: _CommitInfo | None = None
    txn: _Txn | None = None
    meta_data: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None


class _Stats(msgspec.Struct, rename="camel"):
    num_records: int | None = None


_ACTION = msgspec.json.Decoder(_Action)
_STATS = msgspec.json.Decoder(_Stats)


_SPARK_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Delta's names of types that Spark calls otherwise."""


@dataclass(frozen=True)
class AddedFile:
    """One data file of a version, in the order in which a stream reads them."""

    size_bytes: int
    rows: int | None
    """Rows that a reader gets; None when the log does not tell."""
    path: str = field(default="", compare=False)
    """As the log spells it: percent-encoded, relative to the table or absolute."""


@dataclass(frozen=True)
class TableMetadata:
    """What the log of a table says of it, and of its columns, from one version on."""

    columns: str
    """As Spark's JSON."""
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    """The table's properties."""
    table_id: str | None = None

    @property
    def column_mapping(self) -> str:
        """See `column_mapping`."""
        return column_mapping(self.configuration)


def column_mapping(properties: Mapping[str, str]) -> str:
    """How columns are found in the files of a table with some properties: `none`, `name` or `id`."""
    return str(properties.get("delta.columnMapping.mode", "none")).lower()


@dataclass(frozen=True)
class Commit:
    """What one version of a table did."""

    version: int
    timestamp_ms: int | None
    """When it was committed, in milliseconds since the epoch; None when its writer did not say."""
    operation: str | None
    files: tuple[AddedFile, ...]
    """Files that it added with new data."""
    removes_data: bool
    """Whether it removed or rewrote rows that earlier versions had."""
    transactions: Mapping[str, int]
    """Application transactions: version by application id."""
    metrics: Mapping[str, Any]
    removed: tuple[str, ...] = ()
    """Every file that it took out of the table, as the log spells it; also those that it only rewrote."""
    user_metadata: str | None = None
    """What its writer noted."""
    changes_table: bool = False
    """Whether it changed what the table is: its columns, properties or features."""
    metadata: TableMetadata | None = None
    """What the table is from it on; None where it says nothing of that."""


@dataclass(frozen=True)
class DeltaLog:
    """A table's log: its identity and the versions that can still be read one by one."""

    location: str
    table_id: str
    latest: int
    """The newest version."""
    versions: tuple[int, ...]
    """Versions whose commit file is still there, ascending."""
    checkpoints: tuple[LogCheckpoint, ...] = ()
    """What stands for those whose commit file is not, ascending."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    """The table's properties."""

    @property
    def first_kept(self) -> int:
        """The version from which on every commit file is there; 0 where log clean-up has deleted none."""
        there, first = set(self.versions), self.latest + 1
        while first - 1 in there:
            first -= 1
        return first

    @property
    def standing(self) -> LogCheckpoint | None:
        """The oldest checkpoint after which every commit is there; None where the log begins with the table.

        With those commits it knows what any newer one does, and transactions that a newer one has let expire.
        """
        first = self.first_kept
        return next((found for found in self.checkpoints if found.version >= first - 1), None) if first else None


def open_log(location: str, *, storage: Storage) -> DeltaLog | None:
    """Look at a table's log; None when there is none.

    Raises:
        StorageError: It can't be read.
    """
    opened = open_table(location, storage=storage)
    return None if opened is None else opened[0]


def open_table(location: str, *, storage: Storage) -> tuple[DeltaLog, DeltaTable] | None:
    """Look at a table's log, and open the table with delta-rs at its newest version; None where there is none.

    Raises:
        DeclarationError: Its path has a character that delta-rs misreads.
        StorageError: It can't be read.
    """
    folder = storage.list_folder(join(location, "_delta_log"))
    names = folder.files if folder is not None else []
    versions = sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))
    checkpoints = complete_checkpoints(names)
    if not versions and not checkpoints:
        return None
    table = load_table(location, storage=storage)
    metadata = table.metadata()
    log = DeltaLog(
        location, str(metadata.id), table.version(), tuple(versions), checkpoints, dict(metadata.configuration)
    )
    return log, table


def load_table(location: str, *, storage: Storage, version: int | None = None) -> DeltaTable:
    """Open a table with delta-rs, at its newest version unless one is given.

    Raises:
        DeclarationError: Its path has a character that delta-rs misreads.
        StorageError: delta-rs can't read it.
    """
    from deltalake import DeltaTable

    if is_local(location) and "%" in location:
        raise DeclarationError(
            "the path of a Delta table has a `%`, which delta-rs reads as an escape: it would open another folder",
            where=location,
            remedy="give the table a folder without `%` in its path",
        )
    with library_call("the Delta table can't be read", location, passing=(), remedy=_LOOK):
        return DeltaTable(location, version=version, storage_options=dict(storage.options) or None)


def find_table(location: str, *, storage: Storage) -> DeltaTable | None:
    """Open a table at its newest version; None where there is none.

    Raises:
        DeclarationError: Its path has a character that delta-rs misreads.
        StorageError: delta-rs can't read it.
    """
    opened = open_table(location, storage=storage)
    return None if opened is None else opened[1]


def last_transaction(table: DeltaTable, location: str, application: str, *, storage: Storage) -> int | None:
    """The newest transaction of an application in a table, as it numbers them; None when it has none.

    Also one that the table lets expire, as long as its commit is there: delta-rs and Delta's own writer take those for
    forgotten, and a batch would be written again.

    Raises:
        RefusedError: A commit is damaged.
        StorageError: The log can't be read.
    """
    last: int | None = table.transaction_version(application)
    if last is not None or TRANSACTIONS_EXPIRE not in table.metadata().configuration:
        return last
    log = open_log(location, storage=storage)
    noted = transactions(log, storage=storage) if log is not None else iter(())
    return next((found.version for found in noted if found.application == application), None)


def transactions(log: DeltaLog, *, storage: Storage) -> Iterator[AppTransaction]:
    """All transactions that a log still knows, commit by commit, the newest first; then those of a checkpoint.

    That of an application that comes first is its newest. Nothing is read before it is asked for.

    Raises:
        RefusedError: A commit is damaged.
        StorageError: The log can't be read.
    """
    for version in reversed(log.versions):
        commit = read_commit(log, version, storage=storage)
        for application, number in commit.transactions.items() if commit is not None else ():
            yield AppTransaction(application, number, commit.timestamp_ms if commit is not None else None)
    yield from expired_transactions(log, storage=storage)


def expired_transactions(log: DeltaLog, *, storage: Storage) -> list[AppTransaction]:
    """The transactions that only a checkpoint tells of: the commits before it are gone.

    Empty where the log begins with the table.

    Raises:
        StorageError: It can't be read.
    """
    standing = log.standing
    return [] if standing is None else checkpoint_transactions(log.location, standing, storage=storage)


def transaction_of(application: str, version: int) -> Transaction:
    """What a commit says of who has made it. A table may let what bears no time be forgotten at once."""
    from deltalake import Transaction

    return Transaction(application, version, int(time.time() * 1000))


def spark_columns(table: DeltaTable) -> dict[str, str]:
    """The columns of a table, in order, with their types as Spark's `simpleString` spells them.

    Raises:
        StorageError: delta-rs can't tell, or a type is nested too deeply to be read.
    """
    with library_call("the columns of the Delta table can't be read", table.table_uri, passing=(), remedy=_LOOK):
        fields = json.loads(table.schema().to_json())["fields"]
        return {found["name"]: spark_type(found["type"]) for found in fields}


def spark_type(kind: Any) -> str:
    """A type as Delta's log has it in Spark's words; nested types are objects there."""
    if not isinstance(kind, dict):
        return _SPARK_TYPES.get(kind, str(kind))
    match kind["type"]:
        case "struct":
            fields = (f"{found['name']}:{spark_type(found['type'])}" for found in kind["fields"])
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{spark_type(kind['elementType'])}>"
    return f"map<{spark_type(kind['keyType'])},{spark_type(kind['valueType'])}>"


def commit_file(location: str, version: int) -> str:
    """The file of a version's commit."""
    return join(location, "_delta_log", f"{version:020d}.json")


def commit_lines(location: str, version: int, *, storage: Storage) -> list[bytes] | None:
    """The actions of a version's commit, each still JSON; None when its file is gone (log clean-up).

    Raises:
        StorageError: It can't be read.
    """
    content = storage.read(commit_file(location, version), max_bytes=_MAX_COMMIT_BYTES)
    return None if content is None else [line for line in content.split(b"\n") if line.strip()]


def read_commit(log: DeltaLog, version: int, *, storage: Storage) -> Commit | None:
    """Read one version's commit; None when its file is gone (log clean-up).

    Raises:
        RefusedError: The commit file does not parse.
        StorageError: It can't be read.
    """
    lines = commit_lines(log.location, version, storage=storage)
    if lines is None:
        return None
    info = _CommitInfo()
    files: list[AddedFile] = []
    transactions: dict[str, int] = {}
    removed: list[str] = []
    removes = changes = False
    metadata: TableMetadata | None = None
    try:
        for line in lines:
            action = _ACTION.decode(line)
            if action.add is not None and action.add.data_change:
                files.append(AddedFile(action.add.size, _rows(action.add), action.add.path))
            if action.remove is not None:
                removed.append(action.remove.path)
                removes = removes or action.remove.data_change
            if action.txn is not None:
                transactions[action.txn.app_id] = action.txn.version
            changes = changes or action.meta_data is not None or action.protocol is not None
            metadata = _metadata(action.meta_data) or metadata
            info = action.commit_info or info
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise RefusedError(
            Problem(
                code="DELTA_COMMIT_DAMAGED",
                file=commit_file(log.location, version),
                cause=f"the commit does not parse: {exc}",
                consequence="no reader can use this table",
                remedy="restore the file from a backup",
            )
        ) from exc
    return Commit(
        version=version,
        timestamp_ms=next((time for time in (info.in_commit_timestamp, info.timestamp) if isinstance(time, int)), None),
        operation=info.operation if isinstance(info.operation, str) else None,
        files=tuple(files),
        removes_data=removes,
        transactions=transactions,
        metrics=info.operation_metrics if isinstance(info.operation_metrics, dict) else {},
        removed=tuple(removed),
        user_metadata=info.user_metadata if isinstance(info.user_metadata, str) else None,
        changes_table=changes,
        metadata=metadata,
    )


def _metadata(action: Mapping[str, Any] | None) -> TableMetadata | None:
    """What an action says of a table; None where it does not."""
    columns = (action or {}).get("schemaString")
    if action is None or not isinstance(columns, str):
        return None
    partitions, properties = action.get("partitionColumns"), action.get("configuration")
    table_id = action.get("id")
    return TableMetadata(
        columns,
        tuple(map(str, partitions)) if isinstance(partitions, list) else (),
        properties if isinstance(properties, dict) else {},
        table_id if isinstance(table_id, str) else None,
    )


def running_times(log: DeltaLog, storage: Storage, first: int) -> Iterator[tuple[int, int]]:
    """Every version from `first` on with the newest commit time up to it, in milliseconds since the epoch.

    Commit times can go back by a clock's error; the running maximum can't, so that a bound cuts a prefix.
    """
    newest = 0
    for version in log.versions[bisect_left(log.versions, first) :]:
        commit = read_commit(log, version, storage=storage)
        if commit is not None and commit.timestamp_ms is not None:
            newest = max(newest, commit.timestamp_ms)
        yield version, newest


def snapshot_files(log: DeltaLog, version: int, *, storage: Storage) -> list[AddedFile]:
    """The data files of a whole version, in the order in which a stream reads its initial snapshot.

    Raises:
        StorageError: The version can't be read any more.
    """
    import pyarrow as pa

    table = load_table(log.location, storage=storage, version=version)
    with library_call("the files of the Delta table can't be read", log.location, passing=(), remedy=_LOOK):
        actions = pa.table(table.get_add_actions(flatten=True))
    columns = set(actions.column_names)
    paths = actions.column("path").to_pylist()
    sizes = actions.column("size_bytes").to_pylist()
    times = actions.column("modification_time").to_pylist()
    rows = actions.column("num_records").to_pylist() if "num_records" in columns else [None] * len(paths)
    has_vectors = any(name.startswith("deletion_vector") for name in columns)
    order = sorted(range(len(paths)), key=lambda index: (times[index], paths[index]))
    return [AddedFile(sizes[index], None if has_vectors else rows[index], paths[index]) for index in order]


def is_version_gone(log: DeltaLog, version: int, *, storage: Storage) -> bool:
    """Whether log clean-up has deleted what a version is rebuilt from: its commits since the start or a checkpoint.

    Raises:
        StorageError: The log can't be listed.
    """
    folder = storage.list_folder(join(log.location, "_delta_log"))
    names = folder.files if folder is not None else []
    there = {int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))}
    for match in filter(None, map(_COMPACTED.fullmatch, names)):
        there.update(range(int(match[1]), min(int(match[2]), version) + 1))
    # Only the newest one below counts: from an older one, more commits are needed.
    first = max((found.version + 1 for found in complete_checkpoints(names) if found.version <= version), default=0)
    return not there.issuperset(range(first, version + 1))


def file_location(table: str, path: str) -> str:
    """Where a data file is, by the path that the table's log has for it."""
    decoded = unquote(path)
    if decoded.startswith("file:/"):
        # A shallow clone's files are another table's.
        return "/" + decoded.removeprefix("file:").lstrip("/")
    return decoded if decoded.startswith("/") or "://" in decoded else join(table, decoded)


def _rows(add: _Add) -> int | None:
    if add.stats is None:
        return None
    try:
        records = _STATS.decode(add.stats).num_records
    except (msgspec.DecodeError, RecursionError):
        return None
    if records is None or add.deletion_vector is None:
        return records
    deleted = add.deletion_vector.get("cardinality")
    return records - deleted if isinstance(deleted, int) else None


def refuse_other(location: str, storage: Storage) -> None:
    """Make sure that a new table can be made at a location: nothing else is there.

    Raises:
        RefusedError: A file, or a folder with files, is there.
    """
    folder = storage.list_folder(location)
    if folder is not None and any(not name.startswith((".", "_")) for name in (*folder.files, *folder.folders)):
        raise RefusedError(
            Problem(
                code="NOT_A_DELTA_TABLE",
                file=location,
                cause="the folder has files, but no Delta log",
                consequence="Spark would write a table over files that it does not know",
                remedy="give the table a folder of its own, or convert the files with CONVERT TO DELTA",
            )
        )
    if folder is None and storage.stat(location) is not None:
        raise RefusedError(
            Problem(
                code="NOT_A_DELTA_TABLE",
                file=location,
                cause="a file is where the Delta table should be",
                consequence="Spark can't make a table there",
                remedy="move the file away, or correct the path",
            )
        )
