"""What the gate has yet to say of a stream, or has failed: kept in the home, so that no kill loses a verdict.

A run opens the gate before its first batch and closes it once its rows are judged and did not fail. Whoever comes
later and finds it open judges those rows first. Rows that failed hold the stream, until they pass (the suite was
corrected) or a person releases them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import Problem, RefusedError
from sluice.gate.stopped_batch import StoppedBatch
from sluice.home import StreamHome
from sluice.plan import Plan
from sluice.runs.record import RunRecord, RunRecords

RECORD_GONE = "its record is gone, and what it wrote was never judged"
"""Why the rows of a run hold a stream that died, and whose record somebody has deleted before another run judged it."""


class GateState(Document, frozen=True, kw_only=True):
    """The gate of a stream that is not closed."""

    if_lost = (
        "look at the sink first (`sluice quality audit STREAM`), for it may have rows that nobody has judged or that"
        " have failed; then delete it, and the stream goes on"
    )
    state: Literal["open", "blocked", "failed", "closed"]
    """`open`: a run writes rows, or has died before they were judged. `blocked`: a batch was not published. `failed`:
    published rows have failed, and the stream is held. `closed`: a person has let it go on; as if it were not there."""
    run_id: str
    generation: int
    since: Annotated[datetime, msgspec.Meta(tz=True)]
    carried: tuple[str, ...] = ()
    """Runs that went before, each stopped by a batch that was not published: what they had published until then is
    judged together with what this one publishes."""
    batch_id: int | None = None
    """The batch that was not published, by this run or by one that it goes on with."""
    let_through: dict[int, str] = msgspec.field(default_factory=dict)
    """Batches that a person has let through before, and who: they are in the sink."""
    let_through_for: tuple[str, ...] = ()
    """What they failed then: they hold nothing up by it."""
    was_last: bool = False
    """Whether that batch was the last one that its run had planned."""
    failed: str = ""
    """What has failed, for people."""
    columns: dict[str, str] = msgspec.field(default_factory=dict)
    """The types of the result, by name: whoever finds the gate open judges by them what was measured."""
    released_by: str | None = None
    """Who lets the blocked batch through, as it was stopped."""
    stopped: StoppedBatch | None = None
    """What was known of it then."""
    records: tuple[RunRecord, ...] = ()
    """The records of that run and of those carried, as they ended, without Spark's plan: those of ended runs may be
    deleted, and nothing is let go by that."""

    @property
    def released(self) -> StoppedBatch | None:
        """What was known of the batch that a person lets through; None for none, or where it was not kept."""
        return None if self.batch_id is None or self.released_by is None else self.stopped


class BatchAudit(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a batch, and which rows it is split by: on disk before anything of it is published."""

    batch_id: int
    values: dict[str, Any]
    removed: str | None = None
    taken: dict[str, int] | None = None
    """How many rows each policy took out; None where nobody has counted."""


class _Audits(Document, frozen=True, kw_only=True):
    if_lost = "delete it: batches that are in no record yet are measured in the sink, or fail as not measured"
    batches: tuple[BatchAudit, ...]


def read_gate(home: StreamHome) -> GateState | None:
    """The gate's state; None when it is closed.

    Raises:
        RefusedError: Its file is damaged.
        StorageError: It can't be read.
    """
    found = read_document(home.storage, home.gate_file(), GateState)
    return None if found is None or found.state == "closed" else found


def keep_gate(home: StreamHome, state: GateState) -> None:
    """Write the gate's state, durably.

    Raises:
        StorageError: It could not be written.
    """
    home.storage.replace(home.gate_file(), encode_document(state))


def record_of(home: StreamHome, gate: GateState, run_id: str) -> RunRecord | None:
    """The record of a run that a gate is about, also when its own file is deleted; None where neither is there.

    Raises:
        RefusedError: Its file is damaged.
        StorageError: It can't be read.
    """
    kept = next((record for record in gate.records if record.run_id == run_id), None)
    return RunRecords(home).read(run_id) or kept


def with_record(gate: GateState, record: RunRecord) -> GateState:
    """A gate with the record of a run that has ended, if it is about that run."""
    run_ids = (*gate.carried, gate.run_id)
    if record.run_id not in run_ids:
        return gate
    kept = {found.run_id: found for found in (*gate.records, msgspec.structs.replace(record, explain=None))}
    return msgspec.structs.replace(gate, records=tuple(kept[run_id] for run_id in run_ids if run_id in kept))


def keep_record(home: StreamHome, record: RunRecord) -> None:
    """Let the gate have the record of a run that has ended, if it is about that run.

    Raises:
        RefusedError: The gate's file is damaged.
        StorageError: It could not be written.
    """
    gate = read_gate(home)
    if gate is not None and (changed := with_record(gate, record)) != gate:
        keep_gate(home, changed)


def close_gate(home: StreamHome) -> None:
    """Everything that was published is judged, and has not failed.

    Raises:
        StorageError: It could not be written.
    """
    home.storage.delete(home.gate_file())


def read_audit(home: StreamHome, generation: int, batch_id: int) -> BatchAudit | None:
    """What was measured of a batch, if it is one of the newest ones.

    Raises:
        RefusedError: The file is damaged.
        StorageError: It can't be read.
    """
    found = read_document(home.storage, home.audit_file(generation), _Audits)
    return next((audit for audit in found.batches if audit.batch_id == batch_id), None) if found is not None else None


def keep_audits(home: StreamHome, generation: int, audits: Iterable[BatchAudit]) -> None:
    """Write what was measured of batches that no run record may have yet, durably, over what the file had.

    Raises:
        StorageError: It could not be written.
    """
    home.storage.replace(home.audit_file(generation), encode_document(_Audits(batches=tuple(audits))))


def gate_to_go_on_with(gate: GateState | None, run_id: str) -> GateState | None:
    """The gate when a run goes on with what was stopped there: a batch of another run, or this run's own try before."""
    is_stopped = gate is not None and (gate.state == "blocked" or gate.run_id == run_id)
    return gate if is_stopped else None


def carried_runs(found: GateState | None, run_id: str) -> tuple[str, ...]:
    """The runs whose published rows are judged together with those of a run, by the gate that it goes on with."""
    if found is None:
        return ()
    return tuple(carried for carried in dict.fromkeys((*found.carried, found.run_id)) if carried != run_id)


def let_through_by(gate: GateState | None) -> dict[int, str]:
    """The batches that a person has let through, and who: those before, and the one that is stopped."""
    if gate is None:
        return {}
    if gate.batch_id is None or gate.released_by is None:
        return gate.let_through
    return {**gate.let_through, gate.batch_id: gate.released_by}


def excused(gate: GateState | None) -> frozenset[str]:
    """What batches were let through for, those before and the one that is stopped; see `stopped_batch.key_of`."""
    if gate is None:
        return frozenset()
    return frozenset((*gate.let_through_for, *(gate.released.failing if gate.released is not None else ())))


def releasers(gate: GateState | None) -> str:
    """Who has let batches through, for people."""
    return ", ".join(sorted(set(let_through_by(gate).values())))


def with_stop(plan: Plan, gate: GateState | None) -> Plan:
    """A plan whose reason says why its first batch is run again, where the gate has stopped it."""
    if gate is None or not plan.batches or plan.verdict != "resume":
        return plan
    stopped = _why_stopped(gate, plan.batches[0].batch_id)
    return plan if stopped is None else replace(plan, reason="; ".join([stopped, *plan.reason.split("; ")[1:]]))


def _why_stopped(gate: GateState, batch_id: int) -> str | None:
    if gate.state != "blocked" or gate.batch_id != batch_id:
        return None
    if gate.released_by is not None:
        return f"batch {batch_id} was stopped by quality, and {gate.released_by} has released it"
    return f"batch {batch_id} was stopped by quality: {gate.failed}"


def release_gate(home: StreamHome, released_by: str, now: datetime) -> GateState | None:
    """Let a blocked batch through at the next run, or a held stream go on; gives what was released, None for nothing.

    Raises:
        RefusedError: A file of the home is damaged; or a run has changed the gate since it was read.
        StorageError: It could not be written.
    """
    gate = read_gate(home)
    if gate is None or (gate.state == "open" and record_of(home, gate, gate.run_id) is not None):
        return None
    is_blocked = gate.state == "blocked"
    before = None if is_blocked else _note_release(home, gate.run_id, released_by)
    released = msgspec.structs.replace(gate, state="blocked" if is_blocked else "closed", released_by=released_by)
    content = encode_document(msgspec.structs.replace(released, since=now))
    # It has no lease: a run may have opened another gate meanwhile, which this one must not close.
    if not home.storage.replace_if(home.gate_file(), content, lambda _: read_gate(home) == gate):
        if not is_blocked:
            _note_release(home, gate.run_id, before, instead_of=released_by)
        raise RefusedError(
            Problem(
                code="GATE_CHANGED",
                file=home.gate_file(),
                cause="a run has changed what quality says of the stream while it was released",
                consequence="what was to be released may be another thing by now, and nothing is",
                remedy="look at it again (`sluice quality STREAM`), and release that",
            )
        )
    return gate if gate.state != "open" else msgspec.structs.replace(gate, failed=RECORD_GONE)


def _note_release(
    home: StreamHome, run_id: str, released_by: str | None, *, instead_of: str | None = None
) -> str | None:
    """Say in the record of a run whose rows have failed who lets the stream go on; gives whom it said before.

    Args:
        home: The stream's folder in the home.
        run_id: The run.
        released_by: Who does.
        instead_of: Whom it must say by now, else it stays as it is; anybody when not given.
    """
    records = RunRecords(home)
    record = records.read(run_id)
    if record is None or record.quality is None:
        return None
    before = record.quality.released_by
    if instead_of is None or before == instead_of:
        quality = msgspec.structs.replace(record.quality, released_by=released_by)
        records.save(msgspec.structs.replace(record, quality=quality))
    return before
