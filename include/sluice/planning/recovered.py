"""What the tries of a run have done, also what their drivers did not live to record: by the logs and the sink."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import OffsetFile, read_commit_file, read_offset_file
from sluice.checkpoint.places import commit_file, offsets_folder
from sluice.gate.audit_record import QUALITY_METRICS
from sluice.gate.state import read_audit, read_gate
from sluice.gate.unjudged_runs import earlier_batches
from sluice.home import StreamHome
from sluice.locations import join
from sluice.plan import BatchKind
from sluice.planning.survey import Survey
from sluice.runs.record import BatchRecord, RunRecord
from sluice.times import iso_millis, iso_time


def done_batches(run: RunRecord, seen: Survey, home: StreamHome) -> tuple[BatchRecord, ...]:
    """The batches that the tries of a run have committed, with those that no driver lived to record."""
    committed_id = -1 if seen.checkpoint.committed_id is None else seen.checkpoint.committed_id
    recorded = {batch.batch_id for batch in run.batches}
    planned = {batch.batch_id: batch.kind for batch in run.plan.batches}
    resumed = {batch_id: kind for batch_id, kind in planned.items() if kind == "uncommitted"}
    own = _own(run, seen, home, _written_by(run, seen))
    lost = [
        _recovered(batch_id, kind, run, seen, home)
        for batch_id, kind in (own | resumed).items()
        if batch_id <= committed_id and batch_id not in recorded
    ]
    return tuple(sorted((*run.batches, *lost), key=lambda batch: batch.batch_id))


def done_by(run_ids: Iterable[str], seen: Survey, home: StreamHome) -> tuple[BatchRecord, ...]:
    """The batches that runs have committed which the gate is about, also those that no driver lived to record."""
    gate = read_gate(home)
    if gate is None:
        return ()
    return earlier_batches(home, gate, run_ids, lambda run: done_batches(run, seen, home))


def planned_for_good(run: RunRecord, seen: Survey, home: StreamHome) -> int:
    """How many data batches the tries of a run have planned for good: those that are in the offset log."""
    recorded = {batch.batch_id for batch in run.batches if batch.kind == "data"}
    logged = {batch_id for batch_id, kind in _own(run, seen, home).items() if kind == "data"}
    return len(recorded | logged)


def _written_by(run: RunRecord, seen: Survey) -> tuple[range, ...]:
    """The ids of the batches that were a run's to write; none where it has not begun, or that was not noted."""
    known = seen.known is not None and seen.known.generation == run.generation
    return seen.known.batches_of(run.run_id) if known and seen.known is not None else ()


def _own(run: RunRecord, seen: Survey, home: StreamHome, written: tuple[range, ...] = ()) -> dict[int, BatchKind]:
    """The batches in the offset log that the tries of a run planned, by id.

    They bear the run's clock, or the one that the plan gave them because it was ahead of the run's. What Spark has
    planned by itself bears its own, and a batch without data that of the batch before it, whoever planned that.

    Args:
        run: The run.
        seen: What is there.
        home: The stream's folder in the home.
        written: Ids of batches that are its own, whatever clock they bear.
    """
    clocks = {batch.batch_id: batch.timestamp for batch in run.plan.batches if batch.kind == "data"}
    location = offsets_folder(seen.checkpoint.location)
    offsets = list_log(location, storage=home.storage)
    own: dict[int, BatchKind] = {}
    before: OffsetFile | None = None
    for batch_id in offsets.ids if offsets is not None else ():
        logged = read_offset_file(join(location, str(batch_id)), batch_id, storage=home.storage)
        times = {iso_time(run.planned_at), clocks.get(batch_id)}
        is_own = any(batch_id in ids for ids in written)
        if logged is not None and (is_own or iso_millis(logged.timestamp_ms) in times):
            is_empty = before is not None and before.offsets == logged.offsets
            # A continuous query commits an epoch with every interval, also where it took nothing.
            if not (is_empty and logged.is_epoch):
                own[batch_id] = "no_data" if is_empty else "data"
        before = logged
    return own


def _recovered(batch_id: int, kind: str, run: RunRecord, seen: Survey, home: StreamHome) -> BatchRecord:
    """What the commit log and the sink know of a batch; its measures died with the driver."""
    checkpoint = home.checkpoint_location(run.generation)
    committed = read_commit_file(commit_file(checkpoint, batch_id), batch_id, storage=home.storage)
    outcome = seen.stream.sink.outcome(run.query_id or "", batch_id, storage=home.storage)
    audit = read_audit(home, run.generation, batch_id)
    return BatchRecord(
        batch_id=batch_id,
        kind=kind,
        input_rows=None,
        output_rows=outcome.output_rows if outcome else None,
        watermark=iso_millis(committed.next_watermark_ms) if committed and committed.next_watermark_ms else None,
        observed={} if audit is None else {QUALITY_METRICS: audit.values},
        sink_version=outcome.version if outcome else None,
    )
