"""Batches that go into several sinks: read once, staged and decided once, then written sink by sink.

A driver that dies between two of them leaves a batch that some of them have. The next one writes the others from what
was staged: today's transform decides nothing of it. The first sink is written last, so a batch that it holds is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from sluice.errors import BatchFailedError, DeclarationError, LeaseLostError, SluiceError
from sluice.gate.decided_batch import (
    Division,
    Part,
    check_counts,
    check_staged,
    discard,
    forget,
    forget_batches_before,
    lost_decision,
    put_staged,
    read_staged,
)
from sluice.generation_notes import WrittenBatch
from sluice.planning.divided_sinks import moved_sink, place_of
from sluice.running.known_generation import KnownGeneration
from sluice.running.result_columns import check_result, let_tables_follow
from sluice.runs.lease import Lease
from sluice.runs.record import BatchRecord
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import BatchSink, SinkBatch
from sluice.spark.active_session import active
from sluice.spark.query import Query, spark_failed
from sluice.spark.staged_rows import read_staged_rows, row_of, write_staged_rows
from sluice.spark.transform_call import call_for_sinks
from sluice.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SINK = "sink"
"""The column of a staged file that has the number of the sink that a row goes to."""
_BEGUN = (
    "another sink has its part of the batch, so the rest stays as it was decided, whatever the transform gives now: let"
    " the table take it, by its columns, types and constraints, and by what it was declared to be partitioned by"
)
_MAY_BE_BEGUN = "nobody knows what it has got of the batch: the next run sends the very same rows again"
_NOT_BEGUN = "no sink has any row of the batch: the next run decides it anew"
"""What becomes of a batch that a sink has refused."""


def written_parts(sink: SeveralSinks, query_id: str, batch_id: int, *, storage: Storage) -> dict[str, WrittenBatch]:
    """The sinks, of several, that have rows of a batch, and in which version of theirs."""
    return {
        name: WrittenBatch(batch_id, state.version, state.identity)
        for name, state in sink.table_states(query_id, storage=storage).items()
        if state.last_batch == batch_id and state.version is not None
    }


@dataclass
class DividedBatches:
    """Writes the batches of one run."""

    query: Query
    sink: SeveralSinks
    known: KnownGeneration
    lease: Lease
    run_id: str
    _divisions: dict[int, Division] = field(default_factory=dict)
    """Those of this run, by batch: what Spark decides is told of once all of it is done."""

    def is_possible(self) -> bool:
        """Whether the sinks take the next batch so: Spark has no other way."""
        return True

    def write(self, note: Callable[[int], None], frame: DataFrame, batch_id: int) -> None:
        """Write a batch.

        Args:
            note: Called with the batch's id once its rows are computed, and before they count.
            frame: The rows of the source.
            batch_id: Its id.
        """
        division = read_staged(self.known.home, self._generation, batch_id, Division)
        if division is None:
            division = self._decided(note, frame, batch_id)
        self.lease.check()
        self._divisions[batch_id] = division
        self._publish(division, frame.sparkSession)

    def told(self, batch: BatchRecord) -> BatchRecord:
        """A batch's record with how many rows each sink got, and who decided it; as it is where nothing tells that."""
        division = self._divisions.get(batch.batch_id)
        division = division or read_staged(self.known.home, self._generation, batch.batch_id, Division)
        if division is None:
            return batch
        rows = {name: part.rows for name, part in division.parts.items()}
        by = None if division.run_id == self.run_id else division.run_id
        return msgspec.structs.replace(batch, rows_by_sink=rows, output_rows=sum(rows.values()), decided_by=by)

    @property
    def _generation(self) -> int:
        return self.known.generation.generation

    def _decided(self, note: Callable[[int], None], frame: DataFrame, batch_id: int) -> Division:
        """Compute a batch, stage what each sink gets, and put down that this counts."""
        home = self.known.home
        self._check_unbegun(batch_id)
        forget_batches_before(home, self._generation, batch_id)
        # Every result reads it.
        rows = frame.localCheckpoint()
        results = self._results(rows)
        self._fit_tables(results)
        name = f"{batch_id}-{self.lease.token}"
        types = {sink: result.schema.json() for sink, result in results.items()}
        try:
            files = write_staged_rows(_tagged(results), home, self._generation, name)
            self._check_rows(frame.sparkSession, name, types)
            note(batch_id)
            self.lease.check()
        except SluiceError:
            discard(home, self._generation, name)
            raise
        counts = self._counts(frame.sparkSession, name, types)
        project = self.query.project
        parts = {
            sink: Part(place=place_of(project, self.sink.parts[sink]), row_type=types[sink], rows=counts[sink])
            for sink in results
        }
        division = Division(
            batch_id=batch_id,
            query_id=self.known.generation.query_id,
            run_id=self.run_id,
            folder=name,
            files=files,
            parts=parts,
        )
        return put_staged(home, self._generation, division)

    def _check_unbegun(self, batch_id: int) -> None:
        first = next(iter(self.sink.parts))
        for name, sink in self.sink.others.items():
            if sink.state(self.known.generation.query_id, storage=self.known.home.storage).holds(batch_id):
                raise lost_decision(batch_id, sink, named=f"sink `{name}`", lacks=f"sink `{first}`")

    def _results(self, rows: DataFrame) -> Mapping[str, DataFrame]:
        (source,) = self.query.stream.sources
        place = f"stream `{self.query.stream.name}`"
        # Spark calls with a copy of the session that the query was analysed in.
        with active(rows.sparkSession):
            return call_for_sinks(self.query.transform, {source: rows}, place, self.sink.parts)

    def _fit_tables(self, results: Mapping[str, DataFrame]) -> None:
        """Compare the results with the tables once more: this run may have made one since it compared them."""
        query, storage = replace(self.query, results=results), self.known.home.storage
        check_result(query, None, None, query.project.conf_of(query.stream), storage=storage)
        let_tables_follow(query, None, self.lease, storage=storage)

    def _counts(self, session: SparkSession, folder: str, types: Mapping[str, str]) -> dict[str, int]:
        found = self._read(session, folder, types).groupBy(_SINK).count().collect()
        counts = {row[_SINK]: int(row["count"]) for row in found}
        return {sink: counts.get(number, 0) for number, sink in enumerate(types)}

    def _check_rows(self, session: SparkSession, folder: str, types: Mapping[str, str]) -> None:
        """Make sure that every sink takes its rows, before one of them has any."""
        for name in types:
            rows = self._rows_for(name, session, folder, types)
            self.sink.parts[name].check_rows(rows, storage=self.known.home.storage)

    def _publish(self, division: Division, session: SparkSession) -> None:
        """Write what was staged into the sinks that have not got it yet, the first of them last."""
        home, storage = self.known.home, self.known.home.storage
        check_counts(home, self._generation, division)
        if (problem := moved_sink(self.query.project, self.sink, division)) is not None:
            raise BatchFailedError(problem.cause, where=problem.file, remedy=problem.remedy)
        types = {name: part.row_type for name, part in division.parts.items()}
        is_begun = False
        for name in self.sink.written_order:
            sink, part = self.sink.parts[name], division.parts[name]
            state = sink.state(division.query_id, storage=storage)
            is_begun = is_begun or state.holds(division.batch_id)
            if state.holds(division.batch_id) or (part.rows == 0 and state.exists):
                # A commit without rows is worth its time only to make a table, so that it can be read.
                continue
            check_staged(home, self._generation, division)
            self.lease.check()
            rows = self._rows_for(name, session, division.folder, types)
            self._write_part(sink, rows, division, is_begun=is_begun)
            is_begun = True

    def _write_part(self, sink: BatchSink, rows: DataFrame, division: Division, *, is_begun: bool) -> None:
        project, home = self.query.project, self.known.home
        batch = SinkBatch(division.query_id, division.batch_id, "append", self.lease.token)
        try:
            sink.write_batch(rows, batch, load_function=project.load_function, storage=home.storage)
        except LeaseLostError:
            raise
        except Exception as exc:
            # Of a topic nobody knows what it has got; and a commit may be there whose answer was lost.
            is_left = is_begun or not sink.is_idempotent or self._is_begun(division)
            if not is_left:
                self.lease.check()
                forget(home, self._generation, division.batch_id)
            known = exc if isinstance(exc, SluiceError) else sink.cause(str(exc))
            if isinstance(known, DeclarationError) and is_left:
                raise DeclarationError(known.problem, where=known.where, remedy=_BEGUN) from exc
            if known is not None:
                raise known from exc
            consequence = _NOT_BEGUN if not is_left else _BEGUN if is_begun else _MAY_BE_BEGUN
            raise spark_failed(exc, where=sink.location or sink.kind, consequence=consequence) from exc

    def _is_begun(self, division: Division) -> bool:
        """Whether any table has its part of a batch, or nobody can tell just now."""
        try:
            states = self.sink.table_states(division.query_id, storage=self.known.home.storage)
        except SluiceError:
            return True
        return any(state.holds(division.batch_id) for state in states.values())

    def _rows_for(self, name: str, session: SparkSession, folder: str, types: Mapping[str, str]) -> DataFrame:
        """What is staged for a sink, with the columns of its result."""
        number = list(types).index(name)
        return self._read(session, folder, types).where(f"{_SINK} = {number}").select(f"{_row(number)}.*")

    def _read(self, session: SparkSession, folder: str, types: Mapping[str, str]) -> DataFrame:
        from pyspark.sql.types import IntegerType, StructType

        schema = StructType().add(_SINK, IntegerType())
        for number, row_type in enumerate(types.values()):
            schema = schema.add(_row(number), StructType.fromJson(msgspec.json.decode(row_type)))
        return read_staged_rows(session, self.known.home, self._generation, folder, schema)


def _row(number: int) -> str:
    """The column of a staged file that has the rows of a sink, as structs."""
    return f"row_{number}"


def _tagged(results: Mapping[str, DataFrame]) -> DataFrame:
    """All results as one, which is computed in one job: at one time, as a batch of a stream is."""
    from pyspark.sql import functions

    tagged = []
    for number, result in enumerate(results.values()):
        tagged.append(result.select(functions.lit(number).alias(_SINK), row_of(result).alias(_row(number))))
    found = tagged[0]
    for other in tagged[1:]:
        found = found.unionByName(other, allowMissingColumns=True)
    return found
