"""Sends repaired rows of a quarantine back into the sink, exactly once.

    claim    one commit marks the rows in the quarantine with the return's id
    append   one commit puts the marked rows into the sink, with the return's id as its transaction
    remove   one commit deletes the marked rows from the quarantine

Each step counts once, however often it is tried, and the return's document is there before the first: a return that
was killed is finished by the next one, in the tables that it began with. Rows that the sink refuses lose their mark,
and hold up nobody.

A backfill computes rows of the quarantine anew: none is at work beside a return, and what a killed one has left in the
quarantine is tidied first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from sluice.auditing.dead_backfills import seal_backfills, tidy_after_backfills
from sluice.auditing.quarantine import (
    OURS,
    RETURN,
    add_column,
    check_quarantine,
    day_columns,
    is_moved,
    is_quarantine,
)
from sluice.auditing.repaired_rows import asked, check_condition, of_done_batches, passing
from sluice.auditing.return_evidence import SEALED, SENT, ReturnEvidence, application
from sluice.auditing.told_work import told_work, works_of
from sluice.errors import BatchFailedError, DeclarationError, RefusedError, SluiceError
from sluice.gate.quarantine_places import known_places, noted_columns
from sluice.gate.returned_rows import (
    Moved,
    RowReturn,
    forget_return,
    keep_return,
    quarantine_gone,
    read_return,
    read_returns,
)
from sluice.home import StreamHome
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.planning.forgotten_batches import forgotten
from sluice.planning.generation_sink import check_sink
from sluice.planning.missing_checkpoint import why_missing
from sluice.project import Project
from sluice.quality.suite import Suite
from sluice.runs.driver import Drivers
from sluice.runs.journal import Journal
from sluice.runs.kept_table import Table
from sluice.runs.lease import Lease, may_wake_up, newest_lease
from sluice.runs.record import new_run_id
from sluice.sinks.contract import SinkBatch
from sluice.sinks.splitting import SplittingSink
from sluice.spark.named_tables import check_tables
from sluice.spark.query import spark_failed
from sluice.spark.session import opened_session
from sluice.spark.shown_error import spark_message
from sluice.spark.writers import name_writer, open_journal
from sluice.stream import Stream
from sluice.times import Clock, epoch_micros, iso_time, parse_time, system_clock

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_ASK_AGAIN = "ask for the release again: it finishes what was begun"
_RESTORED = "the sink was restored to before its rows"


@dataclass(frozen=True)
class RowsReturned:
    """What came of asking for a return."""

    returned: RowReturn
    finished: tuple[RowReturn, ...]
    """Earlier returns that had been killed, and are done now."""


def return_rows(
    project: Project,
    stream: Stream,
    where: str | None,
    returned_by: str,
    *,
    session: SparkSession | None = None,
    clock: Clock = system_clock,
) -> RowsReturned:
    """Move the rows of a stream's quarantine that pass its suite by now into its sink.

    Rows pass by now because somebody has edited them in the quarantine, or because the suite was corrected. A row has
    to pass every expectation about rows with the policy `drop`, `quarantine` or `fail`; the table as a whole is not
    judged anew.

    Args:
        project: The project of the stream.
        stream: The stream, with its paths resolved.
        where: Only rows that meet this condition, in Spark SQL over the quarantine's columns; None for all.
        returned_by: Who asks for it.
        session: A Spark session to use in place of one that the project's settings describe.
        clock: Tells the time.

    Raises:
        DeclarationError: The declaration is wrong, it has no suite or no quarantine, or the condition is wrong.
        LeaseTakenError: A run of the stream, or a backfill, is at work.
        RefusedError: The sink is another table than runs write; a file of the home is damaged; a backfill has left rows
            of the sink there twice; or the quarantine of a return that was killed is gone.
        BatchFailedError: The sink refused the rows, which are in the quarantine as before; or Spark failed, and asking
            again finishes what was begun.
    """
    home = project.stream_home(stream)
    declared = CheckedDeclaration.of(project, stream, project.streams())
    suite, sink, table = _tables(declared)
    declared.check_table(storage=home.storage)
    if (problem := why_missing(project, stream, home)) is not None:
        raise RefusedError(problem)
    journal = open_journal(project, stream, clock)
    returning = RowReturn(
        return_id=new_run_id(clock(), None),
        state="begun",
        returned_by=returned_by,
        began_at=iso_time(clock()),
        sink=Table.of(sink, project),
        quarantine=Table.of(table, project),
        where=where,
    )
    with (
        Drivers(home).telling(returning.return_id),
        journal.take_lease(home.lease_folder(home.current_generation()), returning.return_id, None) as lease,
    ):
        journal = journal.under(lease)
        home = journal.home
        journal.close_dead(lease, None)
        check_sink(project, stream, home)
        unfinished = [found for found in read_returns(home) if not found.is_over]
        if not unfinished and table.columns(storage=home.storage) is None:
            return RowsReturned(msgspec.structs.replace(returning, state="done"), ())
        (begun,) = works_of([returning], project, stream, clock)
        with told_work(project, stream, begun, clock) as told, _spark(project, stream, session) as opened:
            work = _Work(project, stream, home, suite, sink, table, lease, journal, opened)
            done = work.do(returning, unfinished)
            told.extend(works_of([done.returned, *done.finished], project, stream, clock))
            return done


@contextmanager
def _spark(project: Project, stream: Stream, session: SparkSession | None) -> Iterator[SparkSession]:
    """Spark, of which each failure says that asking again goes on."""
    with opened_session(project, stream, session) as opened:
        check_tables(stream, opened)
        try:
            yield opened
        except SluiceError:
            raise
        except Exception as exc:
            raise spark_failed(exc, where=f"stream `{stream.name}`", consequence=_ASK_AGAIN) from exc


def _tables(declared: CheckedDeclaration) -> tuple[Suite, SplittingSink, SplittingSink]:
    stream, suite, table = declared.stream, declared.suite, declared.stream.quarantine_table
    sink, problem, remedy = stream.sink, None, "declare `quality`, with the policy `quarantine`"
    if suite is None:
        problem = "the stream has no suite"
    elif not isinstance(sink, SplittingSink):
        problem = f"a stream with {sink.named} has no quarantine"
    elif declared.project.is_remote:
        problem, remedy = "Spark Connect can't release rows", "use a Spark of its own: `[spark] master`"
    if problem is not None or suite is None or table is None or not isinstance(sink, SplittingSink):
        raise DeclarationError(str(problem), where=stream.place, remedy=remedy)
    return suite, sink, table


@dataclass(frozen=True)
class _Work:
    project: Project
    stream: Stream
    home: StreamHome
    suite: Suite
    sink: SplittingSink
    table: SplittingSink
    """The quarantine."""
    lease: Lease
    journal: Journal
    session: SparkSession

    def do(self, returning: RowReturn, unfinished: list[RowReturn]) -> RowsReturned:
        """Finish the returns that were killed, then send what the new one asks for."""
        name_writer(self.project, self.session, self.lease)
        begun = [(self.begun_by(found), found) for found in unfinished]
        try:
            self.begin(returning)
        except RefusedError as exc:
            if exc.finding.code == "BACKFILL_UNFINISHED":
                # The remedy is a backfill, which begins beside no return.
                for there, found in begun:
                    there.end(found)
            raise
        finished = tuple(there.finish(found) for there, found in begun)
        return RowsReturned(self.send(returning), finished)

    def begin(self, returning: RowReturn) -> None:
        """Say that a return begins, unless a backfill is at work; then tidy up what dead ones have left.

        A backfill looks for returns after it has taken its lease: one of the two sees the other.
        """
        check_quarantine(self.table, storage=self.home.storage)
        if self.is_there:
            self.evidence.check_over(read_returns(self.home), self.project)
        add_column(self.table, self.session, RETURN, storage=self.home.storage)
        if self.is_there:
            check_condition(self.table, self.session, returning.where)
            keep_return(self.home, returning)
        try:
            for folder in self.home.interval_lease_folders():
                self._end_backfills(folder, returning.return_id)
            tidy_after_backfills(self.project, self.stream, self.table, self.home, self.session, check=self.lease.check)
        except BaseException:
            forget_return(self.home, returning)
            raise

    def _end_backfills(self, folder: str, return_id: str) -> None:
        """Let nothing count that backfills of an interval may write yet: none is at work, but one may stand still.

        Raises:
            LeaseTakenError: One is at work.
        """
        storage = self.home.storage
        run_ids = may_wake_up(storage, folder)
        newest = newest_lease(storage, folder)
        if newest is not None and not newest.is_given_up:
            with self.journal.take_lease(folder, return_id, None) as lease:
                self.journal.close_dead(lease, None)
        seal_backfills(run_ids, self.project, self.stream, self.home, lambda: self.session)

    def send(self, returning: RowReturn) -> RowReturn:
        """Claim the rows that pass, and move them."""
        from pyspark.sql import functions

        if not self.is_there:
            return msgspec.structs.replace(returning, state="done")
        self._let_go()
        free = functions.col(RETURN).isNull() & asked(returning.where)
        self.lease.check()
        mark = {RETURN: functions.lit(returning.return_id)}
        self.table.update_rows(self.session, free & self._passes() & of_done_batches(self.home), mark)
        left = self._frame().where(free).count()
        done = self._move(msgspec.structs.replace(returning, left=left))
        if done.state == "refused":
            raise BatchFailedError(
                f"the sink refused the rows: {done.reason}",
                where=f"stream `{self.stream.name}`, {self.sink.location}",
                remedy="the rows are in the quarantine as before: correct them, or the sink, and release them again",
            )
        return done

    def finish(self, returning: RowReturn) -> RowReturn:
        """Do what a return that was killed had yet to do; what it had not claimed is left to the one that asks now.

        Rows that somebody has edited since, and that fail now, are claimed no more; none is, where the sink was
        restored to before it had them: it may be taken forward again.
        """
        if not self.is_there:
            return self._close(returning)
        if not self._seal(returning.return_id):
            if self.evidence.has_sent(returning.return_id):
                return self._take_back(returning, _RESTORED)
            self._free(self._is_claimed(returning.return_id) & ~self._passes())
            returning = msgspec.structs.replace(returning, state="begun")
        return self._move(returning)

    def end(self, returning: RowReturn) -> RowReturn:
        """End a return that was killed without sending more: what it has not sent stays in the quarantine."""
        if self.is_there and not self._seal(returning.return_id):
            return self._take_back(returning, "a backfill is unfinished")
        return self.finish(returning)

    def begun_by(self, returning: RowReturn) -> _Work:
        """The same for the tables that a return has begun with.

        Raises:
            RefusedError: Its quarantine is gone, and its rows are not in the sink; or the sink can't tell whether they
                are.
        """
        kept = None if returning.quarantine is None else returning.quarantine.sink(self.project)
        known = (self.table.at(place) for place in known_places(self.project, self.stream, self.home))
        work = replace(self, sink=self._sink_of(returning))
        # Somebody may have moved the table itself, and old documents do not tell which it was: its rows bear its id.
        for table in (kept, self.table, *known):
            found = replace(work, table=table) if table is not None else None
            if found is not None and found.has_claims(returning.return_id):
                found.check_known(returning.return_id)
                return found
        evidence = replace(work, table=kept or self.table).evidence
        if kept is not None and not evidence.is_about(returning) and not evidence.is_sent(returning.return_id):
            raise RefusedError(quarantine_gone(returning, kept.location or ""))
        evidence.check_marks(returning)
        evidence.check_moved(returning)
        return work

    def _sink_of(self, returning: RowReturn) -> SplittingSink:
        """The sink as it was declared for a return, as long as that is the same table."""
        kept = self.sink if returning.sink is None else returning.sink.sink(self.project)
        then, now = (
            sink.state(application(returning.return_id), storage=self.home.storage) for sink in (kept, self.sink)
        )
        return kept if then.identity == now.identity else self.sink

    def check_known(self, return_id: str) -> None:
        """Make sure that the sink can tell whether it has the rows that a return has claimed.

        Raises:
            RefusedError: It can't.
        """
        if self.evidence.last(return_id) is not None:
            return
        known = read_return(self.home, return_id)
        began_at = parse_time(known.began_at) if known is not None else None
        since_ms = None if began_at is None else epoch_micros(began_at) // 1000
        named, what = application(return_id), f"release {return_id}"
        problem = forgotten(self.sink, named, SENT, since_ms, what=what, storage=self.home.storage)
        if problem is not None:
            raise RefusedError(problem)

    def _let_go(self) -> None:
        """Finish or free rows whose return is over: some were closed that had left rows claimed."""
        from pyspark.sql import functions

        for row in self._frame().where(functions.col(RETURN).isNotNull()).select(RETURN).distinct().collect():
            self.check_known(row[0])
            if self._seal(row[0]):
                self.table.delete_rows(self.session, self._is_claimed(row[0]))
            elif (known := read_return(self.home, row[0])) is not None and self.evidence.has_sent(row[0]):
                self._take_back(known, _RESTORED)
            else:
                self._free(self._is_claimed(row[0]))

    def _move(self, returning: RowReturn) -> RowReturn:
        is_claimed = self._is_claimed(returning.return_id)
        claimed = self._frame().where(is_claimed)
        if returning.state == "begun":
            storage = self.home.storage
            rows, there = claimed.count(), self.table.state(None, storage=storage)
            returning = msgspec.structs.replace(
                returning,
                state="claimed",
                rows=rows,
                moved=self._moved(claimed),
                interval_columns=self._interval_columns(),
                quarantine_version=there.version,
                quarantine_identity=there.identity,
                quarantine_digest=self.table.version_digest(there.version or 0, storage=storage),
            )
            keep_return(self.home, returning)
        if returning.rows:
            self.lease.check()
            if (
                not self.evidence.is_sent(returning.return_id)
                and (reason := self._append(claimed, returning)) is not None
            ):
                return self._give_back(returning, reason)
            self.lease.check()
            self.table.delete_rows(self.session, is_claimed)
        return self._close(returning)

    def _close(self, returning: RowReturn) -> RowReturn:
        returning = msgspec.structs.replace(returning, state="done")
        keep_return(self.home, returning)
        return returning

    def _append(self, claimed: DataFrame, returning: RowReturn) -> str | None:
        """Put claimed rows into the sink; gives why it has not taken them."""
        last = self.evidence.last(returning.return_id)
        number = SENT if last is None else last + (1 if last % 2 == SEALED else 2)
        batch = SinkBatch(application(returning.return_id), number, "append", self.lease.token)
        try:
            self.sink.write_batch(
                claimed.drop(*OURS), batch, load_function=self.project.load_function, storage=self.home.storage
            )
        except DeclarationError as exc:
            # Of a row that does not fit, nothing is written.
            return exc.problem
        except SluiceError:
            raise
        except Exception as exc:
            # The commit may be there, and only its answer was lost: the sink's log tells.
            return None if self.evidence.is_sent(returning.return_id) else spark_message(exc)
        return None

    def _give_back(self, returning: RowReturn, reason: str) -> RowReturn:
        """Let go of rows that the sink has not taken, and takes no more."""
        if self._seal(returning.return_id):
            self.table.delete_rows(self.session, self._is_claimed(returning.return_id))
            return self._close(returning)
        return self._take_back(returning, reason)

    def _take_back(self, returning: RowReturn, reason: str) -> RowReturn:
        """Leave rows in the quarantine that the sink does not show; `check_over` sees to it that it never does."""
        self._free(self._is_claimed(returning.return_id))
        returning = msgspec.structs.replace(returning, state="refused", rows=0, moved=(), reason=reason)
        keep_return(self.home, returning)
        return returning

    def _free(self, claimed: Column) -> None:
        """Take the mark from rows that stay."""
        from pyspark.sql import functions

        self.table.update_rows(self.session, claimed, {RETURN: functions.lit(None).cast("string")})

    def _seal(self, return_id: str) -> bool:
        """Tell whether a return has sent its rows, for good: what it may send yet, standing still, is passed over."""
        named, storage = application(return_id), self.home.storage
        while not self.evidence.is_sent(return_id):
            last = self.evidence.last(return_id)
            number = SEALED if last is None else last + (2 if last % 2 == SEALED else 1)
            if self.sink.seal(named, number, lambda: self.session, after=last, storage=storage):
                return False
        return True

    def _moved(self, claimed: DataFrame) -> tuple[Moved, ...]:
        """The days that somebody has moved claimed rows from, and to."""
        column, kinds = self.stream.interval_column, dict(claimed.dtypes)
        if (moved := is_moved(column, kinds)) is None:
            return ()
        found = claimed.where(moved).selectExpr(*day_columns(column, kinds)).distinct().collect()
        return tuple(Moved(row["was"], row["now"]) for row in found)

    def _interval_columns(self) -> tuple[str | None, ...]:
        noted = noted_columns(self.project, self.home, self.table.location or "")
        return tuple(sorted({*noted, self.stream.interval_column}, key=lambda column: column or ""))

    def _passes(self) -> Column:
        return passing(self._frame(), self.suite)

    def _is_claimed(self, return_id: str) -> Column:
        from pyspark.sql import functions

        return functions.col(RETURN) == return_id

    @property
    def evidence(self) -> ReturnEvidence:
        return ReturnEvidence(self.sink, self.table, self.home.storage, self._is_empty)

    @property
    def is_there(self) -> bool:
        return is_quarantine(self.table, storage=self.home.storage)

    def has_claims(self, return_id: str) -> bool:
        bears_marks = self.is_there and RETURN in self._frame().columns
        return bears_marks and not self._frame().where(self._is_claimed(return_id)).isEmpty()

    def _is_empty(self) -> bool:
        return not self.is_there or self._frame().isEmpty()

    def _frame(self) -> DataFrame:
        return self.table.read_rows(self.session)
