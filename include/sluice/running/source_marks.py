"""What tells that which a run is about to read from something else that bears its offsets, noted before it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sluice.errors import StorageError
from sluice.plan import Plan
from sluice.planning.survey import Survey, positions
from sluice.sources.contract import ExpiringSource, MarkedSource
from sluice.storage import Storage


def source_marks(
    seen: Survey, plan: Plan, before: Mapping[str, str], now: datetime, *, storage: Storage
) -> Mapping[str, str]:
    """By source, what it tells of what is planned to be read, and of what was read before; with what is noted already.

    Of batches that Spark decides, `ReadInputs.note_decided` notes what they have read.

    Args:
        seen: What was seen when the run was planned.
        plan: What it reads.
        before: What is noted by now.
        now: When the run begins.
        storage: Where to look.

    Raises:
        StorageError: A source can't be read right now, and the plan did not leave that to Spark.
    """
    ranges = [item for batch in plan.batches for item in batch.sources.items()]
    sources = {name: source for name, source in seen.stream.sources.items() if isinstance(source, MarkedSource)}
    offsets = {name: [offset] for name, offset in _read_before(seen, sources).items()}
    # The run may end behind any of its batches, or before the first.
    for name, found in ranges:
        offsets.setdefault(name, []).extend((found.start, found.end))
    marks = {
        name: _mark(seen, sources[name], name, list(dict.fromkeys(filter(None, found))), storage)
        for name, found in offsets.items()
        # What was told when it was planned is of what was planned: since then, something else may have come.
        if name in sources and (name not in seen.available or seen.available[name].mark is None)
    }
    marks |= {name: found.mark for name, found in seen.available.items() if name in offsets and found.mark is not None}
    now_noted = {name: sources[name].mark_after(before.get(name), mark, now) for name, mark in marks.items() if mark}
    return {**before, **now_noted}


def _read_before(seen: Survey, sources: Mapping[str, MarkedSource]) -> dict[str, str | None]:
    """How far the checkpoint has read them: nothing may be noted of what Spark has read by itself.

    Not so what goes while it is read: that is noted batch by batch, and its marks have more than the newest offset.
    """
    found = positions(seen, seen.checkpoint.planned)
    return {name: found[name].offset for name, source in sources.items() if not isinstance(source, ExpiringSource)}


def _mark(seen: Survey, source: MarkedSource, name: str, offsets: Sequence[str], storage: Storage) -> str | None:
    try:
        return source.mark(*offsets, storage=storage) if offsets else None
    except StorageError:
        # A plan that goes on without having read the source leaves it to Spark.
        if name in seen.unreadable:
            return None
        raise
