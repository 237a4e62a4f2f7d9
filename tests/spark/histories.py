"""Whole histories of a stream: arrivals, runs, cuts at any write, edits, backfills, releases, other writers.

A history is a list of steps; see `history_steps`. `history_oracle` tells where each row must be, and is asked after
every step. Files are renamed, or vanish: before they are read, and in the last moment. What a step asks for is either
done, or refused for a reason that is known beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sluice.auditing.release_rows import release_rows
from sluice.errors import (
    BatchFailedError,
    DeclarationError,
    HeldError,
    QualityFailedError,
    RefusedError,
    SluiceError,
)
from sluice.gate.state import release_gate
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.query_starts import QueryStarts
from sluice.runs.record import RunRecord
from sluice.times import system_clock
from tests.spark.history_inputs import DAYS, Inputs
from tests.spark.history_oracle import QUARANTINES, TABLES, Oracle
from tests.spark.history_steps import Step, as_json
from tests.spark.history_streams import IS_ONCE, STATIC_TABLE, WIDE, Declared, Place
from tests.spark.lab import Lab
from tests.spark.power_cuts import Cut, Moment, power_cut

Ended = Literal["done", "stopped"]
"""Whether a run did all that there was, or quality has stopped it."""


@dataclass
class History:
    """One stream's life."""

    lab: Lab
    steps: Sequence[Step]
    declared: Declared = Declared()
    followed: Declared | None = None
    """What was declared when the first batch was planned; its sink is the stream's for good."""
    let_through: set[int] = field(default_factory=set)
    """The batches that somebody has released."""
    releasing: dict[int, Place] | None = None
    """The rows that a killed release was to send, and where to."""
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inputs = Inputs(self.lab.root, self.lab.checkpoint(self.declared.stream()))
        self.oracle = Oracle(self.lab.root, self.inputs.days, self.story)

    def live(self) -> None:
        """Take the steps, then let everything be finished."""
        try:
            for name, how in self.steps:
                getattr(self, name)(**how)
            self._finish()
            self._check_readers()
        except BaseException as exc:
            exc.add_note(self.story())
            raise
        finally:
            for setting in (STATIC_TABLE, IS_ONCE):
                self.lab.spark.conf.unset(setting)

    def story(self) -> str:
        """What was done, and the steps to do it again."""
        return "\n".join([*self.told, as_json(self.steps)])

    def begin(self, shape: str, edit: Mapping[str, Any], *, is_partitioned: bool) -> None:
        self.declared = Declared(shape, is_partitioned=is_partitioned)  # type: ignore[arg-type]  # from a file
        self.inputs.begin(has_table=shape == "union")
        if shape == "static":
            self.lab.spark.conf.set(STATIC_TABLE, str(self.lab.root / "static"))
        if shape == "once":
            self.lab.spark.conf.set(IS_ONCE, "true")
        self.edit(**edit)

    def arrive(self, files: Sequence[Mapping[str, Any]]) -> None:
        inputs, shape = self.inputs, self.declared.shape
        for file in files:
            before = sorted(inputs.days)
            numbers = inputs.make_rows(file["days"])
            if shape == "once" and before:
                numbers = [*numbers, *{before[pick % len(before)] for pick in file["again"]}]
            if shape == "union" and file["is_in_table"]:
                inputs.write_table(numbers)
            else:
                inputs.write_file(numbers, is_same_time=file["is_same_time"])
        self.told.append(f"arrive: {inputs.made} rows")

    def edit(self, **changes: Any) -> None:
        self.declared = replace(self.declared, **changes)
        if self.declared.shape != "static":
            self.declared = replace(self.declared, shift=0)
        self.told.append(f"edit: {self.declared}")

    def rename(self, pick: int) -> None:
        self.told.append(f"rename: {self.inputs.rename(pick)}")

    def vanish(self, pick: int) -> None:
        self.told.append(f"vanish: {self.inputs.vanish(pick)}")

    def run(self, *, is_drained: bool = False) -> Ended:
        """Run the stream; what it is refused for is put right first."""
        self._declare()
        if is_drained:
            # Spark would read a renamed file again, which refuses the drain.
            self._bring_back()
        logged = self.inputs.logged()
        limits = Limits(strategy="drain" if is_drained else None)
        ended = self._run_to_an_end(limits)
        if ended == "done" and self.inputs.is_held_back():
            self._bring_back()
            ended = self._run_to_an_end(Limits())
        if is_drained:
            self.inputs.drained |= self.inputs.logged() - logged
        self._look(is_complete=ended == "done")
        return ended

    def _run_to_an_end(self, limits: Limits) -> Ended:
        for _ in range(4):
            try:
                record = self._run(limits)
            except (RefusedError, DeclarationError) as exc:
                self.told.append(f"run refused: {exc}")
                if self._stops(exc):
                    return "stopped"
                self._put_right(exc)
            except QualityFailedError as exc:
                self._check_stop(exc)
                self.told.append(f"run stopped: {exc}")
                return "stopped"
            else:
                self.told.append(f"run: {record.status} {[batch.batch_id for batch in record.batches]}")
                self._check_gate(record)
                return "done"
        raise AssertionError("what a run is refused for was put right, and it is refused again")

    def _put_right(self, exc: SluiceError) -> None:
        """Do as a refusal says, if there is a reason for it."""
        code = exc.finding.code if isinstance(exc, RefusedError) else ""
        if code == "INPUT_GONE" and self.inputs.renamed:
            self._bring_back()
        elif code in {"SINK_MOVED", "SINK_REPLACED"} and self.followed and self.followed.sink != self.declared.sink:
            self.edit(sink=self.followed.sink)
        elif isinstance(exc, DeclarationError) and self._is_partitioned_otherwise():
            self.edit(is_partitioned=not self.declared.is_partitioned)
        else:
            raise exc

    def _is_partitioned_otherwise(self) -> bool:
        there = self.oracle.partitions(self.declared.sink)
        return self.declared.is_partitioned and there is not None and there != ["day"]

    def _stops(self, exc: SluiceError) -> bool:
        """Whether quality has stopped a run for a reason: a bad row that nobody has let through."""
        if not isinstance(exc, (QualityFailedError, HeldError)):
            return False
        new = [n for batch, numbers in self.inputs.batches().items() if batch not in self.let_through for n in numbers]
        assert self.declared.is_stopping, "nothing stops a run"
        assert any(self._is_bad(number) for number in new), "no row is bad"
        return True

    def _check_stop(self, exc: SluiceError) -> None:
        if not self._stops(exc):
            raise exc

    def _is_bad(self, number: int) -> bool:
        """Whether a row may be bad, by what is declared now or was."""
        by = [self.declared, *self.oracle.decided.values()]
        return any(True in declared.may_be_bad(number) for declared in by)

    def _check_gate(self, record: RunRecord) -> None:
        """A run that is done has let no bad row through; what the sink would not have is the oracle's."""
        if self.declared.policy != "hold":
            return
        rows = self.inputs.batches()
        for batch in record.batches:
            if not batch.was_in_sink and batch.decided_by is None and batch.batch_id not in self.let_through:
                bad = [n for n in rows[batch.batch_id] if self.declared.may_be_bad(n) == {True}]
                assert not bad, f"batch {batch.batch_id} has bad rows {bad}, and holds nothing"

    def cut_run(
        self, *, match: str, nth: int, moment: Moment, max_batches: int | None = None, is_drained: bool = False
    ) -> None:
        self._bring_back()
        limits = Limits(max_batches=max_batches, strategy="drain" if is_drained else None)
        logged = self.inputs.logged()
        self._heed_tables()
        self._cut("run", Cut(match, nth, moment), lambda: self._run(limits))
        if is_drained:
            self.inputs.drained |= self.inputs.logged() - logged
        self._look(is_complete=False)

    def run_short(self, pick: int) -> None:
        """A file vanishes between the last look and Spark's: that is loud, and its batch is not committed.

        But where Delta's own writer commits before anybody can look; then its rows come in another file, as the
        remedy says.
        """
        self._bring_back()
        self._heed_tables()
        self._declare()
        inputs, gone = self.inputs, list[str]()
        start = QueryStarts.start

        def vanishing(starts: QueryStarts, *args: Any, **how: Any) -> Any:
            present = sorted(name for name in inputs.newest_logged() if inputs.file(name).exists())
            if not gone and present:
                gone.append(present[pick % len(present)])
                inputs.file(gone[0]).rename(inputs.file(f"_{gone[0]}"))
            return start(starts, *args, **how)

        failed: SluiceError | None = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(QueryStarts, "start", vanishing)
            try:
                self._run(Limits())
            except (BatchFailedError, QualityFailedError, HeldError) as exc:
                failed = exc
        self.told.append(f"run without {gone}: {failed}")
        if isinstance(failed, BatchFailedError):
            assert gone, failed
        elif failed is not None:
            self._check_stop(failed)
        for name in gone:
            aside = inputs.file(f"_{name}")
            if isinstance(failed, BatchFailedError) and "is committed without their rows" in str(failed):
                assert self.declared.policy in {"none", "warn", "hold"}, failed
                recorded = self.lab.records(self.declared.stream())[-1]["batches"]
                assert [batch["batch_id"] for batch in recorded][-1] == inputs.newest("commits"), failed
                aside.unlink()
                inputs.lost.add(name)
                inputs.write_file(inputs.files[name])
                inputs.files[name] = []
            else:
                aside.rename(inputs.file(name))
        self._note()
        self.run()

    def backfill(self, day: int) -> None:
        if self.inputs.newest("commits") >= 0:
            self._heed_tables()
            self._backfill(DAYS[day])

    def cut_backfill(self, day: int, edit: Mapping[str, Any], *, match: str, nth: int, moment: Moment) -> None:
        """It is asked for again at once, as Airflow does; what is declared may have changed since.

        Where that is refused, the first may be half done, or done: it is declared as then, as the remedy says, or so
        that nothing is bad.
        """
        gone = self.inputs.renamed or self.inputs.lost
        if self.inputs.newest("commits") < 0 or self._is_left() or gone or self.releasing is not None:
            return
        self._heed_tables()
        begun, chosen = self.declared, DAYS[day]
        self._cut("backfill", Cut(match, nth, moment), lambda: self._replace(chosen))
        if edit:
            self.edit(**edit)
            self._heed_tables()
        transform = WIDE if "extra" in self.oracle.columns(begun.sink) else 1
        for declared in (self.declared, begun, replace(begun, policy="warn", transform=transform)):
            self.declared = declared
            if self._backfill(chosen, is_half_done=True):
                return
        raise AssertionError("a killed backfill can't be done again")

    def _backfill(self, day: date, *, is_half_done: bool = False) -> bool:
        """Whether it was done, and not refused."""
        self._declare()
        newest = self.oracle.newest_batch(self.declared.sink, self.inputs.query_id())
        must, may = self._refusals(day, newest)
        try:
            self._replace(day)
        except SluiceError as exc:
            code = exc.finding.code if isinstance(exc, RefusedError) else type(exc).__name__
            self.told.append(f"backfill {day} refused: {exc}")
            if code not in must | may:
                raise
            if not is_half_done:
                self._look(is_complete=False)
            return False
        assert not must, f"a backfill is done in spite of {must}"
        self.told.append(f"backfill {day}")
        self.oracle.replaced(self.declared, day, self.inputs.batches(), newest)
        return True

    def _refusals(self, day: date, newest: int) -> tuple[set[str], set[str]]:
        """For what a backfill must be refused, and for what it may be."""
        gone = self.inputs.renamed.keys() | self.inputs.lost
        rows = [n for batch, read in self.inputs.batches().items() if batch <= newest for n in read]
        bad = [self.declared.may_be_bad(n) for n in rows if self.inputs.days[n] == day]
        is_wide = "extra" in self.oracle.columns(self.declared.sink)
        must = {
            "QUARANTINE_LEFT": self._is_left(),
            # It needs nothing of a batch that is not committed.
            "BACKFILL_INPUT_GONE": bool(gone & self.inputs.committed_files()),
            "QualityFailedError": self.declared.is_stopping and {True} in bad,
            "DeclarationError": is_wide != self.declared.is_wide,
        }
        may = {
            "BACKFILL_INPUT_GONE": bool(gone),
            "RELEASE_UNFINISHED": self.releasing is not None,
            "QualityFailedError": self.declared.is_stopping and {True, False} in bad,
        }
        return {code for code, is_so in must.items() if is_so}, {code for code, is_so in may.items() if is_so}

    def release(self, *, is_corrected: bool = False) -> None:
        """Send the rows back that pass, or all of them, once the suite is corrected."""
        if is_corrected and self._is_released():
            self.edit(policy="warn")
        if not self._is_released() or not (self.releasing or self.oracle.rows(self.declared.quarantine, "n")):
            return
        self._declare()
        moved = self._to_release() if self.releasing is None else self.releasing
        self._release()
        self.told.append(f"release: {sorted(moved)}")
        self.releasing = None
        self.oracle.settle(moved)
        self._look(is_complete=False)

    def cut_release(self, then: str, *, is_corrected: bool, match: str, nth: int, moment: Moment) -> None:
        """It is asked for again, by whomever, before anything of the quarantine is declared otherwise."""
        if is_corrected and self._is_released():
            self.edit(policy="warn")
        if not self._is_released() or not self.oracle.rows(self.declared.quarantine, "n"):
            return
        self.releasing = self._to_release()
        self.oracle.loose = {n: {place, self._place(n)} for n, place in self.releasing.items()}
        self._cut("release", Cut(match, nth, moment), self._release)
        if then == "run":
            self.run()
        elif then == "backfill":
            self.backfill(0)
        self.release()

    def _is_released(self) -> bool:
        return self.declared.policy != "none" and self.inputs.newest("commits") >= 0

    def _to_release(self) -> dict[int, Place]:
        """The rows that a release sends, and where they are then: those that pass, as they are in the quarantine."""
        passing = self.declared.policy in {"warn", "hold"}
        rows = self.oracle.rows(self.declared.quarantine, "n", "bad")
        there = {
            n: place for row in rows if (place := self.oracle.known.get(n := row["n"])) and (passing or not row["bad"])
        }
        return {
            n: (self.declared.sink, mark) for n, (table, mark) in there.items() if table == self.declared.quarantine
        }

    def _place(self, number: int) -> Place:
        place = self.oracle.known[number]
        assert place is not None
        return place

    def _release(self) -> None:
        project = self.lab.project
        declared = project.resolve(self.declared.stream())
        release_rows(project, declared, where=None, released_by="somebody", session=self.lab.spark)

    def let_go(self) -> None:
        """A person lets a blocked batch through, or a held stream go on."""
        home = self.lab.project.stream_home(self.lab.project.resolve(self.declared.stream()))
        gate = release_gate(home, "somebody", system_clock())
        if gate is not None and gate.state == "blocked" and gate.batch_id is not None:
            self.let_through.add(gate.batch_id)
        self.told.append(f"let go: {gate and (gate.state, gate.batch_id)}")

    def maintain(self, pick: int, *, is_vacuum: bool) -> None:
        """Other writers compact a table, and delete what belongs to no version of it."""
        found = [path for path in (*TABLES, "more") if (self.lab.root / path / "_delta_log").exists()]
        if not found:
            return
        path = found[pick % len(found)]
        table = DeltaTable(str(self.lab.root / path))
        if is_vacuum and path != "more":
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        else:
            table.optimize.compact()
        self.told.append(f"maintain {path}")
        self._look(is_complete=False)

    def write_by_others(self, what: str, pick: int) -> None:
        """Other writers delete a row, change it by a MERGE, or mend it in the quarantine."""
        tables = QUARANTINES if what == "mend" else TABLES
        found = sorted(
            n for n, place in self.oracle.known.items() if place and place[0] in tables and n not in self.oracle.loose
        )
        if not found:
            return
        number = found[pick % len(found)]
        path, mark = self._place(number)
        table = DeltaTable(str(self.lab.root / path))
        if what == "delete":
            table.delete(f"n = {number}")
            self.oracle.known[number] = None
        elif what == "mend":
            table.update({"bad": "false"}, predicate=f"n = {number}")
        else:
            rows = pa.table({"n": pa.array([number], pa.int64())})
            merge = table.merge(rows, "t.n = o.n", source_alias="o", target_alias="t")
            merge.when_matched_update({"v": "t.v + 100"}).execute()
            self.oracle.known[number] = path, mark + 100
        self.told.append(f"{what} of row {number} in {path} by others")
        self._look(is_complete=False)

    def _finish(self) -> None:
        """Let everything be done, as a person does who looks after the stream."""
        for _ in range(3):
            if self.run() == "done":
                return
            self.let_go()
        self.edit(policy="warn")
        assert self.run() == "done", "a suite that lets everything pass stops the stream"

    def _check_readers(self) -> None:
        """Spark reads the table that delta-rs reads."""
        table = self.declared.sink
        by_spark = self.lab.spark_table(table).select("n", "v").collect()
        by_delta_rs = self.oracle.rows(table, "n", "v")
        assert sorted((row.n, row.v) for row in by_spark) == sorted((row["n"], row["v"]) for row in by_delta_rs)

    def _look(self, *, is_complete: bool) -> None:
        self._note()
        self.oracle.check(self.inputs.batches(), is_complete=is_complete)

    def _note(self) -> None:
        """Note what was decided, by what is declared."""
        inputs = self.inputs
        if self.followed is None and inputs.newest("offsets") >= 0:
            self.followed = self.declared
        staged = self.lab.root / "home" / "s" / "staged" / "0001"
        self.oracle.note_step(
            self.declared,
            inputs.batches(),
            committed=inputs.newest("commits"),
            staged={int(file.stem) for file in staged.glob("[0-9]*.json")},
            query_id=inputs.query_id(),
            let_through=self.let_through,
        )

    def _is_left(self) -> bool:
        """Whether a former quarantine has rows, so that no interval is recomputed."""
        own = self.declared.quarantine if self.declared.policy != "none" else ""
        return any(place != own and self.oracle.rows(place, "n") for place in QUARANTINES)

    def _bring_back(self) -> None:
        if brought := self.inputs.bring_back():
            self.told.append(f"bring back {brought}")

    def _heed_tables(self) -> None:
        """Let the sink be declared as it is: what is refused otherwise is for a run to say."""
        if self.followed is not None and self.followed.sink != self.declared.sink:
            self.edit(sink=self.followed.sink)
        if self._is_partitioned_otherwise():
            self.edit(is_partitioned=False)

    def _declare(self) -> None:
        if self.declared.policy != "none":
            self.declared.write_suite(self.lab.root / "suite.json")
        if self.declared.shape == "static":
            rows = pa.table(
                {"day": pa.array(DAYS, pa.date32()), "shift": pa.array([self.declared.shift] * 2, pa.int32())}
            )
            write_deltalake(str(self.lab.root / "static"), rows, mode="overwrite")

    def _run(self, limits: Limits) -> RunRecord:
        return self.lab.run(self.declared.stream(), limits)

    def _replace(self, day: date) -> None:
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        declared = self.lab.project.resolve(self.declared.stream())
        request = BackfillRequest(declared, Interval(start, start + timedelta(days=1)))
        backfill_stream(self.lab.project, request, session=self.lab.spark)

    def _cut(self, what: str, cut: Cut, work: Callable[[], object]) -> None:
        """Let the power go at some write, if the work gets that far; who had the lease is dead then."""
        self._declare()
        with power_cut(cut, self.lab.root) as writes:
            try:
                work()
            except (QualityFailedError, HeldError, DeclarationError) as exc:
                self.told.append(f"{what} refused: {exc}")
                if writes.at is None and what != "backfill":
                    self._check_stop(exc)
            except Exception:
                if writes.at is None:
                    raise
        self.told.append(f"{what} cut {cut.moment} {writes.at}" if writes.at else f"{what} not cut")
        for lease in (self.lab.root / "home" / "s" / "leases").rglob("*.json"):
            content = json.loads(lease.read_bytes())
            lease.write_text(json.dumps(content | {"expires_at": "2026-01-01T00:00:00Z"}))


def live(spark: SparkSession, root: Path, steps: Sequence[Step]) -> History:
    """One history."""
    history = History(Lab(spark, root), steps)
    history.live()
    return history
