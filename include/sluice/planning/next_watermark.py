"""The watermark that the next batch runs with, and whether it makes state due: the planner and the runner ask here."""

from __future__ import annotations

from sluice.checkpoint.offsets import OffsetFile
from sluice.checkpoint.reader import CheckpointState
from sluice.sinks.contract import OutputMode
from sluice.watermarks import Policy, WatermarkOutlook, Watermarks

_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def pinned_policy(planned: OffsetFile | None) -> Policy:
    """How a checkpoint makes one watermark of several."""
    return "max" if planned is not None and planned.conf.get(_POLICY, "").lower() == "max" else "min"


def usable(known: Watermarks | None, checkpoint: CheckpointState) -> Watermarks | None:
    """What was measured, if it was measured on this checkpoint, and not on a newer state of it."""
    if known is None or known.query_id != checkpoint.query_id:
        return None
    planned_id = -1 if checkpoint.planned_id is None else checkpoint.planned_id
    return known if known.measured <= planned_id else None


def is_measured(checkpoint: CheckpointState, known: Watermarks | None) -> bool:
    """Whether every committed batch is counted in; also when nothing is known: then there is nothing to wait for."""
    return known is None or checkpoint.committed_id is None or known.measured >= checkpoint.committed_id


def next_watermark_ms(checkpoint: CheckpointState, known: Watermarks | None) -> int:
    """The watermark of the next batch, in milliseconds since the epoch; 0 for none.

    Never below the one that a batch ran with, and never below the one that the newest commit left: but for a batch that
    was measured before its rows counted, which Spark may have read again, as others, before it committed it.
    """
    if known is None:
        return checkpoint.next_watermark_ms
    reached = known.reached_ms(pinned_policy(checkpoint.planned))
    if known.times_of(checkpoint.committed_id) is not None and known.measured == checkpoint.committed_id:
        return max(reached, checkpoint.planned.watermark_ms if checkpoint.planned else 0)
    return max(checkpoint.next_watermark_ms, reached)


def is_no_data_due(
    checkpoint: CheckpointState, known: Watermarks | None, output_mode: OutputMode, *, has_state: bool
) -> bool:
    """Spark's rule: the watermark has passed the one that the newest batch ran with, so that state is due."""
    if checkpoint.planned is None or not has_state or output_mode == "complete":
        return False
    return next_watermark_ms(checkpoint, known) > checkpoint.planned.watermark_ms


def watermark_outlook(checkpoint: CheckpointState, known: Watermarks | None) -> WatermarkOutlook | None:
    """Every input's watermark; None when nothing was measured, or the query has no watermark."""
    if known is None or not known.inputs:
        return None
    committed_id = -1 if checkpoint.committed_id is None else checkpoint.committed_id
    unmeasured = max(0, committed_id - known.measured)
    next_ms = next_watermark_ms(checkpoint, known)
    return WatermarkOutlook(next_ms, pinned_policy(checkpoint.planned), known, unmeasured)
