"""Runs in the life of a stream: to their end, cut, stopped by quality, refused, and short of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from sluice.errors import BatchFailedError, DeclarationError, HeldError, QualityFailedError, RefusedError, SluiceError
from sluice.gate.state import release_gate
from sluice.planning.planner import Limits
from sluice.running.query_starts import QueryStarts
from sluice.runs.record import RunRecord
from sluice.times import system_clock
from tests.spark.history_life import Life
from tests.spark.power_cuts import Cut, Moment

Ended = Literal["done", "stopped"]
"""Whether a run did all that there was, or quality has stopped it."""


@dataclass
class Runs(Life):
    """A life with runs."""

    def run(self, *, is_drained: bool = False) -> Ended:
        """Run the stream; what it is refused for is put right first."""
        self.declare()
        if is_drained:
            # Spark would read a renamed file again, which refuses the drain.
            self.bring_back()
        logged = self.inputs.logged()
        limits = Limits(strategy="drain" if is_drained else None)
        self._check_rotated()
        ended = self._run_to_an_end(limits)
        if ended == "done" and self.inputs.is_set_aside():
            self.bring_back()
            ended = self._run_to_an_end(Limits())
        if is_drained:
            self.inputs.drained |= self.inputs.logged() - logged
        self.look(is_complete=ended == "done")
        return ended

    def cut_run(
        self,
        *,
        days: Sequence[int],
        match: str,
        nth: int,
        moment: Moment,
        hours: Sequence[int] = (),
        max_batches: int | None = None,
        is_drained: bool = False,
    ) -> None:
        """Cut a run that has something to do: rows arrive, if nothing waits."""
        if self.inputs.files.keys() <= self.inputs.logged():
            self.inputs.write_file(self.inputs.make_rows(days), hours=hours)
        self.bring_back()
        limits = Limits(max_batches=max_batches, strategy="drain" if is_drained else None)
        logged = self.inputs.logged()
        self.heed_tables()
        self.cut("run", Cut(match, nth, moment), lambda: self._run(limits))
        if is_drained:
            self.inputs.drained |= self.inputs.logged() - logged
        self.look(is_complete=False)

    def run_short(self, pick: int, *, is_copied: bool = True) -> None:
        """A file vanishes between the last look and Spark's: that is loud, and its batch is not committed.

        But where Delta's own writer commits before anybody can look; then it comes back under another name, as the
        remedy says, or its rows in another file.
        """
        self.bring_back()
        self.heed_tables()
        self.declare()
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
            self.check_stop(failed)
        for name in gone:
            aside = inputs.file(f"_{name}")
            if isinstance(failed, BatchFailedError) and "is committed without their rows" in str(failed):
                assert self.declared.policy in {"none", "warn", "hold"}, failed
                recorded = self.lab.records(self.declared.stream())[-1]["batches"]
                assert [batch["batch_id"] for batch in recorded][-1] == inputs.newest("commits"), failed
                inputs.lose(name, aside, is_copied=is_copied)
            else:
                aside.rename(inputs.file(name))
        self.note()
        self.run()

    def mend(self, pick: int) -> None:
        """Mend a file of a batch that is planned, and in no table: it is read as it is by then, and known so."""
        inputs, query_id = self.inputs, self.inputs.query_id()
        in_tables = max(
            self.oracle.newest_batch(table, query_id) for table in (self.declared.sink, "out_quarantine", "elsewhere")
        )
        if inputs.newest("commits") < inputs.newest("offsets") > in_tables:
            self.bring_back()
            name = inputs.mend(pick)
            warnings = self.lab.plan(self.declared.stream()).warnings
            self.told.append(f"mend {name}: {[found.code for found in warnings]}")
            assert not [found for found in warnings if found.file.endswith(f"/{name}")]

    def let_go(self) -> None:
        """A person lets a blocked batch through, or a held stream go on."""
        home = self.lab.project.stream_home(self.lab.project.resolve(self.declared.stream()))
        gate = release_gate(home, "somebody", system_clock())
        if gate is not None and gate.state == "blocked" and gate.batch_id is not None:
            self.let_through.add(gate.batch_id)
        self.told.append(f"let go: {gate and (gate.state, gate.batch_id)}")

    def _run_to_an_end(self, limits: Limits) -> Ended:
        for _ in range(4):
            try:
                record = self._run(limits)
            except (RefusedError, DeclarationError) as exc:
                self.told.append(f"run refused: {exc}")
                if self.is_stopped_by(exc):
                    return "stopped"
                self._put_right(exc)
            except QualityFailedError as exc:
                self.check_stop(exc)
                self.told.append(f"run stopped: {exc}")
                return "stopped"
            else:
                self.told.append(f"run: {record.status} {[batch.batch_id for batch in record.batches]}")
                self._check_gate(record)
                return "done"
        raise AssertionError("what a run is refused for was put right, and it is refused again")

    def _check_rotated(self) -> None:
        """A plan tells of a file whose name another one has taken."""
        if self.inputs.rotated:
            plan = self.lab.plan(self.declared.stream())
            told = [problem.code for problem in (plan.problem, *plan.warnings) if problem is not None]
            self.told.append(f"rotated: {told}")
            assert told, f"{[*self.inputs.rotated]} have other contents, and nothing is said"

    def _put_right(self, exc: SluiceError) -> None:
        """Do as a refusal says, if there is a reason for it."""
        code = exc.finding.code if isinstance(exc, RefusedError) else ""
        if code in {"INPUT_GONE", "INPUT_CHANGED"} and self.inputs.renamed:
            self.bring_back()
        elif code in {"SINK_MOVED", "SINK_REPLACED"} and self.followed and self.followed.sink != self.declared.sink:
            self.edit(sink=self.followed.sink)
        elif isinstance(exc, DeclarationError) and self.is_partitioned_otherwise():
            self.edit(is_partitioned=not self.declared.is_partitioned)
        else:
            raise exc

    def _check_gate(self, record: RunRecord) -> None:
        """A run that is done has let no bad row through; what the sink would not have is the oracle's."""
        if self.declared.policy != "hold":
            return
        rows = self.inputs.batches()
        for batch in record.batches:
            if not batch.was_in_sink and batch.decided_by is None and batch.batch_id not in self.let_through:
                bad = [n for n in rows[batch.batch_id] if self.declared.may_be_bad(n) == {True}]
                assert not bad, f"batch {batch.batch_id} has bad rows {bad}, and holds nothing"

    def _run(self, limits: Limits) -> RunRecord:
        return self.lab.run(self.declared.stream(), limits)
