"""The gate of one run: judges what was measured, batch by batch and in the end, and keeps on disk where that stands.

A run that goes on with a batch in which another one was stopped is judged together with what that one had published;
a batch that a person has let through counts for the figures and not for the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import msgspec

from sluice.errors import QualityFailedError
from sluice.gate.audit_record import (
    QUALITY_METRICS,
    counted,
    is_measured,
    quality_record,
    runs_before,
    together,
)
from sluice.gate.state import GateState, carried_runs, close_gate, excused, keep_gate, let_through_by, releasers
from sluice.gate.stopped_batch import StoppedBatch, key_of, not_let_through
from sluice.home import StreamHome
from sluice.quality.compile import QualityPlan
from sluice.quality.judgement import (
    Judgement,
    describe_failed,
    failing_columns,
    failing_results,
    judge_run,
    quality_failed,
)
from sluice.quality.results import CheckResult
from sluice.runs.record import BatchRecord, QualityRecord, RunRecord
from sluice.spark.fingerprints import read_by
from sluice.stream import Stream


@dataclass
class RunGate:
    """The gate of one run."""

    stream: Stream
    home: StreamHome
    plan: QualityPlan
    columns: Mapping[str, str]
    """The types of the result, by name."""
    record: RunRecord
    """As the run began."""
    clock: Callable[[], datetime]
    last_batch: int | None
    """The id of the last batch that is planned; None when Spark decides, or when more may follow."""
    declared: Mapping[str, str]
    """What its batches are read and judged by, by fingerprints."""
    has_other_inputs: bool = False
    """Whether files of the batch that it goes on with have changed."""
    is_published: bool = False
    """Whether the rows of that batch count already: it is as it was judged, whatever is read by now."""
    found: GateState | None = None
    """The gate as the run found it, where it goes on with what another run, or a try before, was stopped in."""
    earlier: tuple[BatchRecord, ...] = ()
    """What the runs had published that it goes on with."""
    judged: Judgement | None = None
    """The newest judgement."""
    values: dict[int, Mapping[str, Any] | None] = field(default_factory=dict)
    """What was measured, by the ids of the batches; None where nothing was."""
    _removed: dict[int, Mapping[str, int]] = field(default_factory=dict)
    """How many rows each policy took out, by the ids of the batches whose records tell it."""
    _is_excused: bool = False
    _revoked: str = ""
    """Why a batch goes through no more that somebody has let through: it is another one."""
    _varies: bool = False
    """Whether that is known by its measures alone."""
    _runs_before: list[dict[str, float]] | None = None

    def __post_init__(self) -> None:
        for batch in together(self.earlier, self.record.batches):
            self.values[batch.batch_id] = batch.observed.get(QUALITY_METRICS)
            self.note(batch)

    @property
    def let_through(self) -> Mapping[int, str]:
        """The batches that a person has let through, and who."""
        return let_through_by(self.found)

    def excused_of(self, batch_id: int | None) -> frozenset[str]:
        """What a batch was let through for that is not published yet; see `stopped_batch.key_of`."""
        stopped = self._released(batch_id)
        return frozenset() if stopped is None else frozenset(stopped.failing)

    def begin(self) -> None:
        """Fail what the columns alone decide, before anything runs; else open the gate.

        From then on there may be rows that nobody has judged.

        Raises:
            QualityFailedError: An expectation about the columns fails, and has the policy `fail`.
        """
        self.judged = failing_columns(self.plan)
        if self.judged is not None:
            raise self._failed(self.judged, "nothing was run; correct the transform or the suite")
        self._reconsider()
        self._open()

    def _open(self) -> None:
        opened = self._state("open", pending=self.found.batch_id if self.found is not None else None)
        if (found := self.found) is not None:
            names = ("batch_id", "was_last", "failed", "released_by", "stopped")
            kept = {name: getattr(found, name) for name in names}
            opened = msgspec.structs.replace(opened, **kept)
        keep_gate(self.home, opened)

    def note(self, batch: BatchRecord) -> None:
        """Note where the rows of a batch went, as far as its record tells."""
        if batch.result_rows is not None:
            self._removed[batch.batch_id] = {"quarantine": batch.quarantined_rows, "drop": batch.dropped_rows}

    def judge_batch(self, batch_id: int, values: Mapping[str, Any] | None) -> None:
        """Judge the run with a batch, of which nothing is published yet.

        Raises:
            QualityFailedError: It fails, and nobody has let it through.
        """
        self.values[batch_id] = values
        is_last = self._is_last(batch_id)
        self.judged = self._judge(is_last=is_last)
        if (stopped := self._released(batch_id)) is not None:
            other = stopped.other_checks(self.judged.stopping)
            if other is None and (other := stopped.other_rows(self.plan, values)) is not None:
                self._varies = True
            if other is None:
                # What was stopped, as it was: nothing else has come to the batches before it.
                return
            self._revoke(other)
            # A kill must not bring the release back.
            self._open()
        if self._not_let_through():
            raise self._stopped(self.judged, batch_id)

    def _not_let_through(
        self, reread: Callable[[Collection[int]], Sequence[CheckResult]] = lambda _: ()
    ) -> tuple[CheckResult, ...]:
        """What lets the run fail, beside what somebody has let through."""
        judged, without = self.judged, self.let_through
        if judged is None or not without:
            return judged.stopping if judged is not None else ()
        # What more rows may mend, those of the batches have mended that were let through.
        others = self._judge(is_last=False, rereads=reread(without), without=without)
        return not_let_through(judged, excused(self.found), others)

    def stop_for(self, batch_id: int, result: CheckResult) -> QualityFailedError:
        """Stop a batch for one check that nothing could be measured of; gives what to raise."""
        self.judged = Judgement("fail", (result,), None, {})
        return self._stopped(self.judged, batch_id)

    def finish(self, reread: Callable[[Collection[int]], Sequence[CheckResult]], *, is_last: bool) -> None:
        """Judge the run. The gate is still open: its record must have the verdict before `close`.

        Args:
            reread: Gives what Great Expectations says of all batches but some, by their ids.
            is_last: Whether all is done that was planned.

        Raises:
            QualityFailedError: It failed, with its rows in the sink: the stream is held.
        """
        self.judged = self._judge(is_last=is_last, rereads=reread(()))
        if self.judged.verdict != "fail":
            return
        if not self._not_let_through(reread):
            self._is_excused = True
            return
        failed = describe_failed(failing_results(self.judged))
        keep_gate(self.home, msgspec.structs.replace(self._state("failed"), failed=failed))
        name = self.stream.name
        raise self._failed(
            self.judged,
            f"its rows are in the sink, and the stream `{name}` is held: correct the suite, or let it go on with"
            f" `sluice quality release {name}`",
        )

    def close(self) -> None:
        """Close the gate: the verdict on what was published is on disk."""
        close_gate(self.home)

    def leave(self) -> None:
        """Leave the gate as it was found: nothing was published."""
        if self.found is None or self.found.batch_id is None:
            close_gate(self.home)
        else:
            keep_gate(self.home, msgspec.structs.replace(self.found, state="blocked"))

    def recorded(self, where: str) -> QualityRecord:
        """The newest judgement as the run record has it."""
        judged = self.judged or Judgement("pass", (), None, {})
        by = releasers(self.found) if self._is_excused else None
        return quality_record(judged, self.plan.suite.name, where, self.columns, released_by=by)

    def _stopped(self, judged: Judgement, batch_id: int) -> QualityFailedError:
        """Note that a batch was not published; gives what to raise."""
        failed, was_last = describe_failed(failing_results(judged)), self._is_last(batch_id)
        values = self.values.get(batch_id)
        results = [key_of(found) for found in judged.results if not found.success]
        before = self._released(batch_id)
        revoked = self._revoked if self.found is not None and self.found.batch_id == batch_id else ""
        stopped = StoppedBatch(
            declared=dict(self.declared),
            # What it was let through for, stays so: here, rows end a batch by one check after the other.
            failing=tuple(dict.fromkeys((*(before.failing if before is not None else ()), *results))),
            values=None if values is None else dict(values),
            varies=self._varies,
        )
        blocked = msgspec.structs.replace(
            self._state("blocked", pending=batch_id),
            batch_id=batch_id,
            was_last=was_last,
            failed=failed,
            stopped=stopped,
        )
        keep_gate(self.home, blocked)
        return self._failed(
            judged,
            f"{revoked}batch {batch_id} was not published; correct the data or the suite, and run it again; or"
            f" let it through with `sluice quality release {self.stream.name}`",
        )

    def _released(self, batch_id: int | None) -> StoppedBatch | None:
        """What was known of a batch that somebody has let through since; None where nobody has, or it was not kept."""
        return self.found.released if self.found is not None and self.found.batch_id == batch_id else None

    def _reconsider(self) -> None:
        """Let a released batch through no more that is read by something else than what was stopped."""
        stopped = self.found.released if self.found is not None else None
        if stopped is None or self.is_published:
            return
        # A static table may get a version every hour: where the batch was measured, that tells whether it matters.
        edited = read_by(stopped.declared, self.declared, with_tables=stopped.values is None)
        if edited or self.has_other_inputs:
            self._revoke(f"it was read by another {edited[0]}" if edited else "its files have changed")

    def _revoke(self, why: str) -> None:
        if self.found is not None:
            self._revoked = f"it is not the one that {self.found.released_by} has let through: {why}; "
            self.found = msgspec.structs.replace(self.found, released_by=None)

    def _is_last(self, batch_id: int) -> bool:
        """Whether nothing more is planned: in this run, or in the one that was stopped in this batch."""
        if self.found is not None and self.found.batch_id == batch_id and self.found.was_last:
            return True
        return self.last_batch is not None and batch_id >= self.last_batch

    def _judge(self, *, is_last: bool, rereads: Sequence[CheckResult] = (), without: Collection[int] = ()) -> Judgement:
        ids = counted([found for found in sorted(self.values) if found not in without], self.stream.output_mode)
        by_other = {batch_id: found for batch_id in ids if (found := self._by_suite_before(batch_id)) is not None}
        judged = judge_run(
            self.plan,
            [self.values[batch_id] for batch_id in ids if batch_id not in by_other],
            self._history(),
            now=self.clock(),
            is_last=is_last,
            rereads=rereads,
            by_suite_before=list(by_other.values()),
        )
        if not self._removed.keys() >= set(ids):
            return judged
        # A batch that was split before the suite was edited was split by the suite of then.
        removed: Counter[str] = Counter()
        for batch_id in ids:
            removed.update(self._removed[batch_id])
        return replace(judged, removed=removed)

    def _by_suite_before(self, batch_id: int) -> Mapping[str, Any] | None:
        """What was measured of a batch that a run had published which was stopped, where the suite asks for more now.

        It can't be measured any more where rows have left it, or where the sink does not tell what a batch wrote.
        """
        values = self.values[batch_id]
        is_earlier = any(batch.batch_id == batch_id for batch in self.earlier)
        return values if is_earlier and not is_measured(self.plan, values) else None

    def _history(self) -> list[dict[str, float]]:
        """The numbers of the runs before, oldest first; read once, and only when a rule needs them."""
        if self._runs_before is None:
            self._runs_before = runs_before(self.home, self.record.run_id, self.plan)
        return self._runs_before

    def _state(self, state: Literal["open", "blocked", "failed"], *, pending: int | None = None) -> GateState:
        """Where the gate stands; a batch that is not published yet is not among those that were let through."""
        record, found = self.record, self.found
        if found is not None and found.batch_id == pending:
            found = msgspec.structs.replace(found, released_by=None)
        return GateState(
            state=state,
            run_id=record.run_id,
            generation=record.generation,
            since=self.clock(),
            carried=carried_runs(self.found, record.run_id),
            let_through=let_through_by(found),
            let_through_for=tuple(sorted(excused(found))),
            columns=dict(self.columns),
            records=found.records if found is not None else (),
        )

    def _failed(self, judged: Judgement, remedy: str) -> QualityFailedError:
        return quality_failed(judged, self.plan.suite, remedy)
