"""A Delta table to which changes are applied: the newest row of each key, or all that there ever were.

What is to be done with a batch follows from its changes, from the rows that the table has of their keys, and from the
deletes that are known of these: from a set, that is, which only grows. So it matters neither in which order changes
arrive nor how often one does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.delta_log.table import find_table, last_transaction, load_table, refuse_other, spark_columns
from sluice.delta_log.types import path_part
from sluice.errors import DeclarationError, Problem, RefusedError
from sluice.locations import spark_location
from sluice.sinks.contract import BatchOutcome, FunctionLoader, OutputMode, SinkBatch, SinkState, SinkUse
from sluice.sinks.delta import merge, nested_fields, tombstones
from sluice.sinks.delta.changes import Changes
from sluice.sinks.delta.far_times import refusing_far_times
from sluice.sinks.delta.keyed import KeyedDeltaSink
from sluice.sinks.delta.keys import (
    check_begun_with,
    check_changeable,
    check_key_columns,
    check_key_types,
    check_keys,
    check_widened,
    kept_in_partition,
    texts_of_partitions,
)
from sluice.sinks.delta.row_order import UNORDERED, ordered
from sluice.sinks.delta.tombstones import COLUMNS, SEQUENCE, Tombstones
from sluice.sql_text import identifier
from sluice.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    _Known = Callable[[DataFrame], DataFrame]
    """Gives the deletes of keys: see `Tombstones.of`."""

START, END = "__START_AT", "__END_AT"
"""From which sequence on a row of a history was so, and up to which."""
_DELETED, _ENDS, _ARRIVED, _NEWEST, _BEGUN = "__DELETED", "__ENDS", "__ARRIVED", "__NEWEST", "__BEGUN"
_OF_A_BATCH = {name.lower() for name in (_DELETED, _ENDS, _ARRIVED, _NEWEST, _BEGUN, *COLUMNS)}
_RESERVED = _OF_A_BATCH | {START.lower(), END.lower()}


@dataclass(frozen=True)
class ChangedDeltaSink(KeyedDeltaSink):
    """Declared by `sinks.delta` with `changes`."""

    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append",)

    changes: Changes = field(kw_only=True)

    @property
    def is_fenced(self) -> bool:
        # It writes two tables, and the transaction of a batch is that of one of them alone.
        return False

    @property
    def named(self) -> str:
        return "a delta sink with `changes`"

    @property
    def form(self) -> str:
        kept = f"type {self.changes.stored_as_scd_type}, by {', '.join(sorted(self.changes.keys))}"
        return f"{self.kind}, changes as {kept} in the order of {self.changes.sequence_by}"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.changes.keys

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (*super().named_columns, self.changes.sequence_by, *self.changes.except_columns)

    @property
    def takes_keys_once(self) -> bool:
        return False

    @property
    def step(self) -> str:
        return f"apply it as changes of type {self.changes.stored_as_scd_type} to the table"

    def mode_remedy(self, output_mode: str) -> str:
        return "leave it out: each row of the result is a change, and comes once"

    @property
    def replace_obstacle(self) -> str:
        return f"{self.named} can't replace the rows of an interval: they are what changes of any time have left"

    @property
    def split_obstacle(self) -> tuple[str, str]:
        return "a change that is put aside changes nothing, and what it was to change stays as it is", "use `drop`"

    @property
    def _is_history(self) -> bool:
        return self.changes.stored_as_scd_type == 2

    @property
    def _sequence_column(self) -> str:
        """What orders the rows of a key in the table."""
        return START if self._is_history else self.changes.sequence_by

    @property
    def side_tables(self) -> Mapping[str, str]:
        return {"tombstones": f"{self.path.rstrip('/')}_tombstones"}

    def state(self, query_id: str | None, *, storage: Storage) -> SinkState:
        found = super().state(query_id, storage=storage)
        place = self.side_tables["tombstones"]
        deletes = find_table(place, storage=storage)
        if deletes is not None:
            tombstones.check_own(deletes, place=place)
        elif query_id is None:
            refuse_other(place, storage)
        if query_id is None or found.last_batch is None:
            return found
        noted = None if deletes is None else last_transaction(deletes, place, query_id, storage=storage)
        known = None if noted is None else tombstones.taken_back(place, query_id, storage=storage)
        if noted is None or noted < found.last_batch:
            known = "are gone" if noted is None else f"are known up to batch {noted} only: it is an older copy"
        if known is not None:
            raise RefusedError(
                Problem(
                    code="TOMBSTONES_GONE",
                    file=place,
                    cause=f"the table has batches up to {found.last_batch}, and the deletes that they told of {known}",
                    consequence="a late change would bring back what was deleted after it",
                    remedy="restore the folder as it was beside this table; or declare a new stream with a sink of its"
                    " own",
                )
            )
        return found

    def outcomes(self, query_id: str, batch_ids: Collection[int], *, storage: Storage) -> dict[int, BatchOutcome]:
        found = super().outcomes(query_id, batch_ids, storage=storage)
        # How many rows a batch has changed says nothing of how many changes it had.
        return {batch_id: BatchOutcome(None, outcome.version) for batch_id, outcome in found.items()}

    def check_table(self, use: SinkUse) -> None:
        super().check_table(use)
        table, where = find_table(self.path, storage=use.storage), f"{use.place}, {self.path}"
        if table is not None:
            check_changeable(table, place=where)
            needed = [*self.changes.keys, self._sequence_column, *([END] if self._is_history else [])]
            check_key_columns(needed, table, place=where)
            taken = next((name for name in spark_columns(table) if name.lower() in _OF_A_BATCH), None)
            if taken is not None:
                raise DeclarationError(
                    f"the table has a column `{taken}`, which changes of a batch have for themselves",
                    where=where,
                    remedy="rename it in the table, or write to another one",
                )

    def check_result(self, frame: DataFrame, use: SinkUse) -> None:
        self._check_columns(frame, use.place)
        self._check_condition(frame, use.place)
        table, where = find_table(self.path, storage=use.storage), f"{use.place}, {self.path}"
        if table is not None:
            order = frame.selectExpr(f"{identifier(self.changes.sequence_by)} AS {identifier(self._sequence_column)}")
            check_key_types(self.changes.keys, frame, table, place=where)
            check_key_types([self._sequence_column], order, table, place=where)
            self._check_own(frame, table, place=where, storage=use.storage)
        super().check_result(self._kept(frame), replace(use, written=self._kept_of(use.written)))

    def evolve(self, frame: DataFrame, use: SinkUse) -> None:
        super().evolve(self._kept(frame), use)

    def _kept_of(self, written: str) -> str:
        """What the table has of the columns that a batch had, and the fields within them."""
        left_out = tuple(f"{path_part(name)}.".lower() for name in self.changes.except_columns)
        kept = (path for path in written.split("\n") if not f"{path}.".lower().startswith(left_out))
        return "\n".join(kept)

    def _kept(self, frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*map(identifier, self.changes.kept_columns(frame.columns)))

    def _check_own(self, frame: DataFrame, table: DeltaTable, *, place: str, storage: Storage) -> None:
        """Make sure that what Sluice has made of keys and sequence has the types that these have by now.

        Raises:
            DeclarationError: It has not: a merge would cut values to what was there before.
        """
        kinds, order = dict(frame.dtypes), dict(frame.dtypes)[self.changes.sequence_by]
        if self._is_history:
            check_widened({END: order}, table, location=self.path, place=place)
        wanted = {key: kinds[key] for key in self.changes.keys} | {SEQUENCE: order}
        self._tombstones(table).check_types(wanted, frame.sparkSession, place=place, storage=storage)

    def _tombstones(self, table: DeltaTable) -> Tombstones:
        place = self.side_tables["tombstones"]
        return Tombstones(place, self.path, self.changes.keys, str(table.metadata().id))

    def _check_columns(self, frame: DataFrame, place: str) -> None:
        kinds, changes = dict(frame.dtypes), self.changes
        asked = {"sequence_by": (changes.sequence_by,), "except_columns": changes.except_columns}
        for what, names in asked.items():
            if (missing := next((name for name in names if name not in kinds), None)) is not None:
                raise DeclarationError(
                    f"`{what}` names `{missing}`, which is no column of the result",
                    where=place,
                    remedy=f"name one of: {', '.join(kinds)}",
                )
        if (taken := next((name for name in kinds if name.lower() in _RESERVED), None)) is not None:
            raise DeclarationError(
                f"the result has a column `{taken}`, which such a table has for itself",
                where=place,
                remedy="give it another name in the transform",
            )
        if any(word in kinds[changes.sequence_by] for word in UNORDERED):
            raise DeclarationError(
                f"`sequence_by` names `{changes.sequence_by}`, of type {kinds[changes.sequence_by]}, without an order",
                where=place,
                remedy="name a column of numbers, times or texts",
            )

    def _check_condition(self, frame: DataFrame, place: str) -> None:
        if self.changes.apply_as_deletes is None:
            return
        where = f"{place}, apply_as_deletes={self.changes.apply_as_deletes!r}"
        try:
            kind = frame.selectExpr(self.changes.apply_as_deletes).dtypes[0][1]
            if kind == "boolean":
                # Which takes neither aggregates nor what makes several rows of one.
                frame.where(self.changes.apply_as_deletes)
        except Exception as exc:
            why = next((line for line in str(exc).splitlines() if line.strip()), type(exc).__name__)
            raise DeclarationError(
                f"Spark does not take the condition: {why}", where=where, remedy="correct it"
            ) from exc
        if kind != "boolean":
            raise DeclarationError(
                f"the condition is of type {kind}", where=where, remedy="write what is true of a delete"
            )

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        changes = self.changes
        partitions = self.partitions(dict(frame.dtypes), batch.output_mode, storage=storage)
        frame = refusing_far_times(frame, partitions)
        sequence = changes.sequence_by
        rows = check_keys(
            frame, changes.keys, batch.batch_id, place=self.path, sequence=sequence, partitions=partitions
        )
        is_new = find_table(self.path, storage=storage) is None
        if is_new:
            # First this one: what is noted of a table that was here before may have other keys.
            tombstones.begin(self.side_tables["tombstones"], self._deletes(self._events(frame, partitions)))
            self._make(frame)
        table = load_table(self.path, storage=storage)
        self.check_batch(table, self._kept(frame))
        events = nested_fields.fitted(table, self._events(frame, partitions))
        known = self._tombstones(table)
        deletes = self._deletes(events)
        is_first = not is_new and last_transaction(table, self.path, batch.query_id, storage=storage) is None
        if is_first or not known.have_types(dict(deletes.dtypes), storage=storage):
            if not known.are_known(frame.sparkSession, storage=storage):
                tombstones.begin(known.location, deletes)
            known.check_types(dict(deletes.dtypes), frame.sparkSession, place=self.path, storage=storage)
        if is_first:
            self._check_begun_with(frame.sparkSession, known, storage=storage)
        columns = [name for name in events.columns if name not in {SEQUENCE, _DELETED}]
        by = [*changes.keys, SEQUENCE] if self._is_history else changes.keys
        newest = self._newest(events, columns, by).localCheckpoint()
        known.note(self._deletes(newest), batch, storage=storage)
        if rows == 0:
            # A commit that changes nothing would wake whoever reads the table.
            return
        known.note_batch(batch, frame.sparkSession, storage=storage)
        apply = self._apply_to_history if self._is_history else self._apply_to_newest
        apply(newest, columns, partial(known.of, batch=batch, storage=storage), batch)

    def _check_begun_with(self, session: SparkSession, known: Tombstones, *, storage: Storage) -> None:
        """Make sure that each row of a table that was here before is what some change has left."""
        table = session.read.format("delta").load(spark_location(self.path))
        keys = [*self.changes.keys, *([START] if self._is_history else [])]
        check_begun_with(table, keys, place=self.path)
        if not self._is_history:
            return
        begun = table.selectExpr(
            *map(identifier, self.changes.keys), f"{START} AS {SEQUENCE}", END, f"true AS {_BEGUN}"
        )
        about = begun.select(*map(identifier, self.changes.keys)).distinct()
        begun = begun.unionByName(known.of(about, storage=storage), allowMissingColumns=True)
        ends = begun.selectExpr("*", f"lead({SEQUENCE}) OVER ({self._of_each_key()}) AS {_ENDS}")
        unknown = ends.where(f"{_BEGUN} AND ({SEQUENCE} IS NULL OR NOT {END} <=> {_ENDS})").count()
        if unknown:
            raise DeclarationError(
                f"the table, to which the stream has written nothing yet, has {unknown:,} rows that do not end where"
                " the next one of their keys begins: what ended them, nobody knows, and a late change would end them"
                " elsewhere",
                where=self.path,
                remedy="write to a new table, and let the stream read the feed from its beginning",
            )

    def _of_each_key(self) -> str:
        return f"PARTITION BY {', '.join(map(identifier, self.changes.keys))} ORDER BY {SEQUENCE}"

    def _deletes(self, changes: DataFrame) -> DataFrame:
        return changes.where(_DELETED).selectExpr(*map(identifier, [*self.changes.keys, SEQUENCE]))

    def _make(self, frame: DataFrame) -> None:
        """Make the table, without a row: what deletes are noted of it needs its identity."""
        order = identifier(self.changes.sequence_by)
        columns = list(map(identifier, self.changes.kept_columns(frame.columns)))
        if self._is_history:
            columns += [f"{order} AS {START}", f"{order} AS {END}"]
        self._batch_writer(frame.selectExpr(*columns).where("false"), "errorifexists").save(spark_location(self.path))

    def _events(self, frame: DataFrame, partitions: Collection[str]) -> DataFrame:
        """The columns as the table has them, with the sequence of each change, and whether it is a delete."""
        texts, kept = texts_of_partitions(frame, partitions), []
        for name in self.changes.kept_columns(frame.columns):
            named = identifier(name)
            kept.append(f"{kept_in_partition(named)} AS {named}" if name in texts else named)
        order = identifier(self.changes.sequence_by)
        if dict(frame.dtypes)[self.changes.sequence_by] in {"float", "double"}:
            # Both zeros are one sequence: whichever comes first, it is this one.
            order = f"CASE WHEN {order} = 0 THEN abs({order}) ELSE {order} END"
        deleted = f"coalesce({self.changes.apply_as_deletes or 'false'}, false) AS {_DELETED}"
        return frame.selectExpr(*kept, f"{order} AS {SEQUENCE}", deleted)

    def _newest(self, events: DataFrame, columns: Sequence[str], by: Sequence[str]) -> DataFrame:
        """One change of each key: of the newest, a delete, or the greatest row."""
        rank = f"struct({SEQUENCE}, {_DELETED}, {', '.join(ordered(columns, _kinds(events)))})"
        whole = f"struct({', '.join(map(identifier, events.columns))})"
        found = events.groupBy(*map(identifier, by)).agg(_expression(f"max_by({whole}, {rank})", _NEWEST))
        return found.selectExpr(f"{_NEWEST}.*")

    def _apply_to_newest(self, newest: DataFrame, columns: Sequence[str], known: _Known, batch: SinkBatch) -> None:
        """Keep the newest row of each key, unless a delete is newer."""
        keys = list(self.changes.keys)
        named = list(map(identifier, keys))
        last = known(newest.select(*named)).groupBy(*named).agg(_expression(f"max({SEQUENCE})", _ENDS))
        rows = newest.join(last, keys, "left").where(f"{_DELETED} OR {_ENDS} IS NULL OR {SEQUENCE} > {_ENDS}")
        rows = rows.selectExpr(*map(identifier, [*columns, SEQUENCE, _DELETED]))
        there, order = merge.of_table(self._sequence_column), merge.of_rows(SEQUENCE)
        kinds = _kinds(newest)
        is_greater = f"{_rank(merge.ROWS, columns, kinds)} > {_rank(merge.TABLE, columns, kinds)}"
        is_newer = f"({there} IS NULL OR {order} > {there} OR ({order} = {there} AND {is_greater}))"
        deleted = merge.of_rows(_DELETED)
        clauses = [
            f"WHEN MATCHED AND {deleted} AND ({there} IS NULL OR {there} <= {order}) THEN DELETE",
            f"WHEN MATCHED AND NOT {deleted} AND {is_newer} THEN {merge.update(columns)}",
            f"WHEN NOT MATCHED AND NOT {deleted} THEN {merge.insert(columns)}",
        ]
        merge.merge(rows, self.path, merge.same_keys(keys), clauses, batch=batch)

    def _apply_to_history(self, newest: DataFrame, columns: Sequence[str], known: _Known, batch: SinkBatch) -> None:
        """Begin a row with each change, and end it with the next one of its key."""
        session, keys = newest.sparkSession, list(self.changes.keys)
        about, kinds = newest.select(*map(identifier, keys)).distinct(), _kinds(newest)
        table = session.read.format("delta").load(spark_location(self.path)).join(about, keys, "left_semi")
        there = table.selectExpr(*map(identifier, columns), f"{START} AS {SEQUENCE}", f"false AS {_DELETED}")
        deletes = known(about).selectExpr("*", f"true AS {_DELETED}")
        every = there.unionByName(newest).unionByName(deletes, allowMissingColumns=True)
        every = self._newest(every, columns, [*keys, SEQUENCE])
        rows = every.selectExpr("*", f"lead({SEQUENCE}) OVER ({self._of_each_key()}) AS {_ENDS}")
        # Of all others only the end may change: somebody may have corrected, or deleted, such a row this very moment.
        arrived = newest.selectExpr(*map(identifier, [*keys, SEQUENCE]), f"true AS {_ARRIVED}")
        rows = rows.join(arrived, [*keys, SEQUENCE], "left")
        deleted, has_arrived = merge.of_rows(_DELETED), f"{merge.of_rows(_ARRIVED)} IS NOT NULL"
        ends = {END: merge.of_rows(_ENDS)}
        same = f"{_rank(merge.ROWS, columns, kinds)} <=> {_rank(merge.TABLE, columns, kinds)}"
        same_end = f"{merge.of_table(END)} <=> {merge.of_rows(_ENDS)}"
        begins = {START: merge.of_rows(SEQUENCE), **ends}
        clauses = [
            f"WHEN MATCHED AND {deleted} THEN DELETE",
            f"WHEN MATCHED AND {has_arrived} AND NOT ({same_end} AND {same}) THEN {merge.update(columns, **ends)}",
            f"WHEN MATCHED AND NOT {same_end} THEN {merge.update([], **ends)}",
            f"WHEN NOT MATCHED AND {has_arrived} AND NOT {deleted} THEN {merge.insert(columns, **begins)}",
        ]
        found = f"{merge.same_keys(keys)} AND {merge.of_table(START)} = {merge.of_rows(SEQUENCE)}"
        merge.merge(rows, self.path, found, clauses, batch=batch)


def _rank(side: str, columns: Sequence[str], kinds: Mapping[str, DataType]) -> str:
    """What a row is compared with another by, in a merge."""
    return f"struct({', '.join(ordered(columns, kinds, f'{side}.'))})"


def _kinds(frame: DataFrame) -> dict[str, DataType]:
    return {field.name: field.dataType for field in frame.schema.fields}


def _expression(text: str, name: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text).alias(name)
