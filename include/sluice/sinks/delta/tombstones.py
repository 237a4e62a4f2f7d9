"""The deletes that a table of changes has been told of: a change that arrives later, and is older, must not count.

They lie in a table beside it. A batch notes its deletes there first, and then changes the table, whose commit says that
the batch is done. What a batch has noted that was not done is taken back when it is done again: by then it may have
other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.delta_log.table import (
    TRANSACTIONS_EXPIRE,
    find_table,
    last_transaction,
    load_table,
    open_log,
    read_commit,
    spark_columns,
)
from sluice.errors import DeclarationError, StorageError
from sluice.locations import spark_location
from sluice.sinks.contract import SinkBatch
from sluice.sinks.delta import merge, sealing
from sluice.sinks.delta.keys import check_widened
from sluice.sinks.delta.taken_back import taken_back_since
from sluice.sql_text import identifier, string_literal
from sluice.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

SEQUENCE = "__SEQUENCE"
_QUERY, _BATCH, _TABLE = "__QUERY", "__BATCH", "__TABLE"
COLUMNS = (SEQUENCE, _QUERY, _BATCH, _TABLE)


def check_own(table: DeltaTable, *, place: str) -> None:
    """Make sure that what lies there are such deletes: a new table's take the place of those of the one before.

    Raises:
        DeclarationError: It is another table.
    """
    if not set(COLUMNS) <= spark_columns(table).keys():
        raise DeclarationError(
            "another table is where the deletes of the feed are to be noted",
            where=place,
            remedy="move it, or let the sink lie elsewhere",
        )


def taken_back(location: str, query_id: str, *, storage: Storage) -> str | None:
    """That somebody has taken the deletes back behind what a query has noted; None where nobody has.

    Raises:
        RefusedError: The log is damaged.
        StorageError: It can't be read.
    """
    log = open_log(location, storage=storage)
    if log is None:
        return None
    for version in reversed(log.versions):
        commit = read_commit(log, version, storage=storage)
        if commit is not None and query_id in commit.transactions:
            problem = taken_back_since(location, version, is_pending=False, storage=storage)
            return None if problem is None else f"were taken back: {problem.cause}"
    # All of them are older than what the log has.
    problem = taken_back_since(location, log.first_kept - 1, is_pending=False, storage=storage)
    return None if problem is None else f"may have been taken back: {problem.cause}"


def begin(location: str, deletes: DataFrame) -> None:
    """Make the table, without a row, in the place of one that is there.

    Args:
        location: Where.
        deletes: Has the columns: keys and `__SEQUENCE`.
    """
    kinds = {_QUERY: "string", _BATCH: "bigint", _TABLE: "string"}
    named = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in kinds.items()]
    writer = deletes.selectExpr("*", *named).where("false").write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").option("partitionOverwriteMode", "static").save(spark_location(location))


@dataclass(frozen=True)
class Tombstones:
    """The deletes of one table."""

    location: str
    about: str
    """Where the table is that they are about."""
    keys: tuple[str, ...]
    table_id: str
    """Of that table: what is noted of another one, which was at its place before, is nothing."""

    def note(self, deletes: DataFrame, batch: SinkBatch, *, storage: Storage) -> None:
        """Note the deletes of a batch, and nothing else of it.

        Args:
            deletes: Keys and `__SEQUENCE`, each pair once.
            batch: Which batch.
            storage: Where the table is.
        """
        owner = {_QUERY: string_literal(batch.query_id), _BATCH: str(batch.batch_id)}
        owner[_TABLE] = string_literal(self.table_id)
        if find_table(self.location, storage=storage) is None:
            begin(self.location, deletes)
        is_left = f"({_TABLE} <> {owner[_TABLE]} OR ({_QUERY} = {owner[_QUERY]} AND {_BATCH} = {owner[_BATCH]}))"
        columns = [*self.keys, SEQUENCE]
        # Also what another stream has noted: that may never count.
        own = " AND ".join(f"{merge.of_table(name)} = {owner[name]}" for name in (_TABLE, _QUERY))
        if deletes.isEmpty() and self._read(deletes.sparkSession).where(is_left).isEmpty():
            return
        merge.merge(
            deletes,
            self.location,
            f"{merge.same_keys(columns)} AND {own}",
            [
                f"WHEN NOT MATCHED THEN {merge.insert(columns, **owner)}",
                f"WHEN NOT MATCHED BY SOURCE AND {is_left} THEN DELETE",
            ],
        )

    def note_batch(self, batch: SinkBatch, session: SparkSession, *, storage: Storage) -> None:
        """Note that all deletes are here up to those of a batch, also where it has none: an older copy lacks that.

        Raises:
            StorageError: Somebody else has written at this very moment, or it can't be written.
        """
        table = load_table(self.location, storage=storage)
        last = last_transaction(table, self.location, batch.query_id, storage=storage)
        of_batch = batch.query_id, batch.batch_id
        if not sealing.seal(self.location, *of_batch, lambda: session, after=last, storage=storage):
            raise StorageError(
                "somebody else has noted deletes of the feed at this very moment",
                where=self.location,
                remedy="let nobody else write there, and run it again",
            )

    def are_known(self, session: SparkSession, *, storage: Storage) -> bool:
        """Whether any of the table are; those of one that was at its place before may have other keys."""
        if find_table(self.location, storage=storage) is None:
            return False
        return not self._read(session).where(f"{_TABLE} = {string_literal(self.table_id)}").isEmpty()

    def have_types(self, kinds: Mapping[str, str], *, storage: Storage) -> bool:
        """Whether deletes of these types are kept as they are; also where none is kept yet."""
        table = find_table(self.location, storage=storage)
        there = spark_columns(table) if table is not None else {}
        return all(there.get(name, kind) == kind for name, kind in kinds.items())

    def check_types(self, kinds: Mapping[str, str], session: SparkSession, *, place: str, storage: Storage) -> None:
        """Make sure of that, where any are kept that count: else the table is made anew.

        Raises:
            DeclarationError: A value would be cut.
        """
        table = find_table(self.location, storage=storage)
        if table is None or self.have_types(kinds, storage=storage) or not self.are_known(session, storage=storage):
            return
        check_widened(kinds, table, location=self.location, place=place)

    def of(self, keys: DataFrame, *, batch: SinkBatch | None = None, storage: Storage) -> DataFrame:
        """The deletes of some keys that count: keys and `__SEQUENCE`, each pair once.

        Of a batch that the table has not, none does: it was given up, or is under way elsewhere.

        Args:
            keys: The keys.
            batch: Under way here: what it has noted counts.
            storage: Where the tables are.
        """
        noted, counted = self._read(keys.sparkSession).where(f"{_TABLE} = {string_literal(self.table_id)}"), ["false"]
        for (query,) in noted.select(_QUERY).distinct().collect():
            if batch is not None and query == batch.query_id:
                last: int | None = batch.batch_id
            else:
                last = self._last_counted(query, storage)
            if last is not None:
                counted.append(f"({_QUERY} = {string_literal(query)} AND {_BATCH} <= {last})")
        found = noted.where(" OR ".join(counted)).selectExpr(*map(identifier, [*self.keys, SEQUENCE])).distinct()
        return found.join(keys, list(self.keys), "left_semi")

    def _last_counted(self, query: str, storage: Storage) -> int | None:
        table = load_table(self.about, storage=storage)
        last = last_transaction(table, self.about, query, storage=storage)
        if last is not None:
            return last
        # Here it was noted, before it counted. Of a later batch than the first, the table knew once.
        noted = last_transaction(load_table(self.location, storage=storage), self.location, query, storage=storage)
        return noted if noted or TRANSACTIONS_EXPIRE in table.metadata().configuration else None

    def _read(self, session: SparkSession) -> DataFrame:
        return session.read.format("delta").load(spark_location(self.location))
