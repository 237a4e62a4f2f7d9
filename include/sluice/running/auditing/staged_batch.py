"""A batch that goes into two tables: staged and decided once, then published from there by whoever goes on.

<home>/<stream>/staged/0001/<batch_id>.json      what was decided; who puts it there first has decided
<home>/<stream>/staged/0001/<batch_id>-<token>/  the rows as Parquet, each with where it goes and why

A driver that dies between the two commits leaves a batch of which one table has its part. The next one publishes the
other part as it was staged, into the tables of then: today's transform, suite and declaration decide nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import BatchFailedError, DeclarationError, Problem, RefusedError
from sluice.home import StreamHome
from sluice.project import Project
from sluice.quality.compile import QualityPlan
from sluice.quality.sql_text import identifier
from sluice.running.auditing.quarantine import (
    COMPUTED,
    add_column,
    computed_interval,
    failed_expectations,
    quarantine_columns,
)
from sluice.running.auditing.quarantine_places import note_quarantine
from sluice.running.lease import Lease
from sluice.running.query import run_through
from sluice.sinks.delta import DeltaSink
from sluice.storage import join, spark_location
from sluice.stream import SinkBatch, StagingSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROW, _PART, _FAILED = "row", "part", "failed"
"""The columns of a staged file: the row as a struct, the table that it goes to, and the expectations that it fails."""
_READ_ALL = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Whatever the session says: a staged file that is gone must not go unseen."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A Delta table as it was declared when the batch was decided."""

    location: str
    """From the project's folder where it lies in it: a project may be moved before the batch is finished."""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = {}

    @classmethod
    def of(cls, sink: StagingSink, project: Project) -> Table:
        """What is kept of a declared table.

        Raises:
            DeclarationError: It is no Delta table.
        """
        if not isinstance(sink, DeltaSink):
            raise DeclarationError(f"a {sink.kind} sink can't take a part of a batch", remedy="use a Delta sink")
        return cls(location=project.place(sink.path), partition_by=sink.partition_by, options=dict(sink.options))

    def sink(self, project: Project) -> DeltaSink:
        """The table to write to."""
        return DeltaSink(self.location, self.partition_by, self.options).resolved(project.root)


class Decision(Document, frozen=True, kw_only=True):
    """What was decided of a batch, and by what: on disk before either table has any of it."""

    if_lost = (
        "delete it: the batch is decided anew, unless the quarantine has its part of it already; that is refused then"
    )
    batch_id: int
    query_id: str
    run_id: str
    """The run that has decided."""
    folder: str
    """The name of the folder that has the rows, beside this file."""
    files: dict[str, int]
    """Their files' sizes in bytes, by name."""
    row_type: str
    """The columns of the result, as Spark's JSON of a struct type."""
    sink: Table
    quarantine: Table
    values: dict[str, Any]
    """What was measured of the rows, by the suite of then."""
    quarantined: int
    """How many rows go to the quarantine."""
    dropped: int = 0
    """How many rows go nowhere."""
    interval_column: str | None = None
    """The stream's, whose value the quarantine keeps beside each row."""

    def removed(self) -> dict[str, int]:
        """How many rows do not go to the sink, by the policy that took them."""
        return {"quarantine": self.quarantined, "drop": self.dropped}


def read_decision(home: StreamHome, generation: int, batch_id: int) -> Decision | None:
    """What was decided of a batch; None when nothing was, or it is done.

    Raises:
        RefusedError: The file is damaged, or is about another batch.
        StorageError: It can't be read.
    """
    file = _file(home, generation, batch_id)
    found = read_document(home.storage, file, Decision)
    if found is not None and (found.batch_id != batch_id or "/" in found.folder or not found.folder.strip(".")):
        raise RefusedError(
            Problem(
                code="DECISION_DAMAGED",
                file=file,
                cause=f"the file is about batch {found.batch_id} and the folder `{found.folder[:100]}`",
                consequence="rows of another batch could be published",
                remedy="restore it from a backup",
            )
        )
    return found


def stage(
    frame: DataFrame, plan: QualityPlan, home: StreamHome, generation: int, batch: SinkBatch
) -> tuple[str, dict[str, int]]:
    """Write the rows of a batch aside, each with where it goes by a suite; gives the folder's name and its files.

    The rows are computed once: what is measured, and what both tables get, is what was written here.
    """
    from pyspark.sql import functions

    _forget_former(home, generation, batch)
    columns = [functions.col(identifier(name)) for name in frame.columns]
    part = functions.expr(
        f"CASE WHEN {plan.quarantined or 'false'} THEN 'quarantine' WHEN {plan.removed or 'false'} THEN 'drop'"
        " ELSE 'sink' END"
    )
    rows = frame.select(
        functions.struct(*columns).alias(_ROW), part.alias(_PART), failed_expectations(plan).alias(_FAILED)
    )
    name = f"{batch.batch_id}-{batch.token}"
    folder = join(_folder(home, generation), name)
    rows.write.mode("overwrite").parquet(spark_location(folder))
    home.storage.make_durable(folder)
    return name, _files(home, folder)


def staged_rows(session: SparkSession, home: StreamHome, generation: int, folder: str, row_type: str) -> DataFrame:
    """All rows of a staged batch, with the columns of the result."""
    return _read(session, home, generation, folder, row_type).select(f"{_ROW}.*")


def decide(project: Project, home: StreamHome, generation: int, decision: Decision) -> Decision:
    """Put a decision on disk; gives the one that counts: that of another driver, if it was faster.

    Raises:
        RefusedError: The file that is there is damaged.
        StorageError: It could not be written.
    """
    file = _file(home, generation, decision.batch_id)
    note_quarantine(project, home, decision.quarantine.sink(project).path, decision.interval_column)
    if home.storage.put_if_absent(file, encode_document(decision)):
        return decision
    found = read_decision(home, generation, decision.batch_id)
    if found is None:
        raise BatchFailedError(
            f"batch {decision.batch_id} was finished by another driver meanwhile", where=file, remedy="run it again"
        )
    return found


def publish(
    decision: Decision, session: SparkSession, project: Project, home: StreamHome, generation: int, *, token: int
) -> None:
    """Write what was staged into the tables that have not got it yet: the quarantine first.

    Args:
        decision: What was decided.
        session: Spark.
        project: Where the tables are.
        home: The stream's folder in the home.
        generation: The generation of the batch.
        token: The lease's.

    Raises:
        RefusedError: Staged rows are gone.
        StorageError: A table can't be read.
    """
    storage = home.storage
    batch = SinkBatch(decision.query_id, decision.batch_id, "append", token)
    for part, table in (("quarantine", decision.quarantine.sink(project)), ("sink", decision.sink.sink(project))):
        state = table.state(decision.query_id, storage=storage)
        if state.holds(decision.batch_id):
            continue
        if part == "quarantine" and decision.quarantined == 0 and state.exists:
            # A commit without rows is worth its time only to make a table, so that it can be read.
            continue
        _check_staged(decision, home, generation)
        rows = _read(session, home, generation, decision.folder, decision.row_type).where(f"{_PART} = '{part}'")
        columns = [f"{_ROW}.*"]
        if part == "quarantine":
            kinds = dict(rows.select(f"{_ROW}.*").dtypes)
            computed = computed_interval(decision.interval_column, kinds, before=(_ROW,))
            if computed is not None:
                add_column(table, session, COMPUTED, storage=storage)
            columns += quarantine_columns(_FAILED, decision.run_id, decision.batch_id, computed)
        table.write_batch(rows.selectExpr(*columns), batch, load_function=project.load_function, storage=storage)


def forget(home: StreamHome, generation: int, batch_id: int) -> None:
    """Delete what was staged of a batch, by whomever: both tables have it, and its commit is on disk.

    Raises:
        StorageError: Something is still there.
    """
    root = _folder(home, generation)
    found = home.storage.list_folder(root)
    if found is None:
        return
    home.storage.delete(_file(home, generation, batch_id))
    for name in found.folders:
        if name.partition("-")[0] == str(batch_id):
            home.storage.delete_folder(join(root, name))


def discard(home: StreamHome, generation: int, folder: str) -> None:
    """Delete staged rows of which nothing was decided.

    Raises:
        StorageError: Something is still there.
    """
    home.storage.delete_folder(join(_folder(home, generation), folder))


@dataclass
class Followed:
    """A decided batch of a stream that has no suite any more: only its tables have yet to get it."""

    decision: Decision
    home: StreamHome
    generation: int
    project: Project
    lease: Lease

    def write(self, frame: DataFrame, _batch_id: int) -> None:
        """Finish the batch, in the place of the sink's own stream writer."""
        run_through(frame)
        self.lease.check()
        token = self.lease.token
        publish(self.decision, frame.sparkSession, self.project, self.home, self.generation, token=token)


def lost_decision(batch_id: int, table: StagingSink) -> RefusedError:
    """What to raise where the quarantine has its part of a batch, the sink has not, and nothing tells why."""
    return RefusedError(
        Problem(
            code="DECISION_LOST",
            file=table.location or "",
            cause=f"the quarantine holds its part of batch {batch_id}, the sink does not, and what was decided is gone",
            consequence="decided anew, rows could be in both tables or in neither",
            remedy="restore the folder `staged` of the stream's home",
        )
    )


def _read(session: SparkSession, home: StreamHome, generation: int, folder: str, row_type: str) -> DataFrame:
    from pyspark.sql.types import ArrayType, StringType, StructType

    columns = StructType.fromJson(msgspec.json.decode(row_type))
    schema = StructType().add(_ROW, columns).add(_PART, StringType()).add(_FAILED, ArrayType(StringType()))
    location = spark_location(join(_folder(home, generation), folder))
    return session.read.options(**_READ_ALL).schema(schema).parquet(location)


def _check_staged(decision: Decision, home: StreamHome, generation: int) -> None:
    folder = join(_folder(home, generation), decision.folder)
    if _files(home, folder) != decision.files:
        raise RefusedError(
            Problem(
                code="STAGED_ROWS_GONE",
                file=folder,
                cause=f"rows that run {decision.run_id} has staged of batch {decision.batch_id} are gone",
                consequence="a part of the batch may be in one table already; decided anew, rows could be doubled",
                remedy="restore the folder from a backup",
            )
        )


def _files(home: StreamHome, folder: str) -> dict[str, int]:
    """The Parquet files of a folder, and their sizes."""
    listed = home.storage.list_folder(folder)
    if listed is None:
        return {}
    found = {name: listed.stat(name) for name in sorted(listed.files) if name.endswith(".parquet")}
    return {name: stat.size_bytes for name, stat in found.items() if stat is not None}


def _forget_former(home: StreamHome, generation: int, batch: SinkBatch) -> None:
    """Delete what became of batches before; another driver's try of this one may count yet."""
    root, own = _folder(home, generation), f"{batch.batch_id}"
    found = home.storage.list_folder(root)
    for name in found.files if found is not None else ():
        if name != f"{own}.json":
            home.storage.delete(join(root, name))
    for name in found.folders if found is not None else ():
        if name.partition("-")[0] != own:
            home.storage.delete_folder(join(root, name))


def _folder(home: StreamHome, generation: int) -> str:
    return join(home.staged_folder(), f"{generation:04d}")


def _file(home: StreamHome, generation: int, batch_id: int) -> str:
    return join(_folder(home, generation), f"{batch_id}.json")
