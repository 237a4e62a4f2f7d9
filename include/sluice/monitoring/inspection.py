"""What `sluice inspect` and `sluice lag` tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from sluice.amounts import Amount, Waiting, amount_json
from sluice.checkpoint.offsets import decoded_offset
from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.errors import RefusedError, SluiceError
from sluice.home import StreamHome
from sluice.plan import watermarks_document
from sluice.planning.next_watermark import watermark_outlook
from sluice.planning.planner import find_refusal
from sluice.planning.survey import Survey, survey
from sluice.runs.lease import newest_lease
from sluice.runs.record import RunRecords, StateRecord
from sluice.sources.contract import Bound
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.times import iso_millis

_NEWEST_RUNS = 5
"""How many records are looked at for the newest batch."""


@dataclass(frozen=True)
class SourceLag:
    """What waits in one source."""

    amount: Amount
    oldest_ms: int | None = None
    """Arrival of the oldest thing that waits, in milliseconds since the epoch."""
    unreadable: str | None = None
    """Why nothing is known of this source, if so."""
    set_aside: Amount = field(default_factory=dict)
    """What no run takes, because it looks like something that was read, under another name."""
    pending_batch: int | None = None
    """The batch that is planned and not committed: what it takes is not counted, and may not be in the sink."""
    partitions: Mapping[str, Waiting] = field(default_factory=dict)
    """What waits in each partition, of a source that has them."""
    batches: int | None = None
    """In how many batches it would be taken; None where Spark decides them."""

    def as_json(self, now: datetime) -> dict[str, Any]:
        """The lag with its age in seconds."""
        age = None if self.oldest_ms is None else max(0.0, now.timestamp() - self.oldest_ms / 1000)
        return {
            **amount_json(self.amount),
            "batches": self.batches,
            "partitions": {
                name: {"read": one.read, "end": one.end, "offsets": one.offsets}
                for name, one in self.partitions.items()
            },
            "oldest": iso_millis(self.oldest_ms),
            "age_seconds": None if age is None else round(age, 3),
            "held_back": sum(self.set_aside.values()),
            "pending_batch": self.pending_batch,
            "unreadable": self.unreadable,
        }


def stream_lag(stream: Stream, home: StreamHome, now: datetime) -> dict[str, SourceLag]:
    """What waits in every source of a stream.

    Raises:
        RefusedError: The checkpoint is damaged, or contradicts what the sources say: what waits is not known.
        SluiceError: The checkpoint can't be read.
    """
    seen = survey(stream, home, Bound(), now)
    if not seen.available and not seen.unreadable:
        refusal = find_refusal(seen)
        if refusal is not None:
            raise RefusedError(refusal)
    lags = source_lags(seen)
    if seen.checkpoint.is_pending and _is_kept_at_work(home, seen.generation, now):
        # Such a run has a batch under way nearly always.
        return {name: replace(lag, pending_batch=None) for name, lag in lags.items()}
    return lags


def _is_kept_at_work(home: StreamHome, generation: int, now: datetime) -> bool:
    """Whether a run is at work whose trigger keeps its query at work for a time."""
    lease = newest_lease(home.storage, home.lease_folder(generation))
    if lease is None or lease.is_given_up or lease.expires_at <= now:
        return False
    record = RunRecords(home).read(lease.run_id)
    return record is not None and record.trigger is not None


def source_lags(seen: Survey) -> dict[str, SourceLag]:
    """What waits in every source, by what was seen of them."""
    pending = seen.checkpoint.planned_id if seen.checkpoint.is_pending else None
    lags = {
        name: SourceLag(
            seen.stream.sources[name].waiting(found),
            found.oldest_ms,
            set_aside=found.set_aside,
            pending_batch=pending,
            partitions=found.partitions,
            batches=len(found.steps) if found.unplannable is None else None,
        )
        for name, found in seen.available.items()
    }
    unreadable = seen.unreadable.items()
    return lags | {name: SourceLag({}, unreadable=error.problem, pending_batch=pending) for name, error in unreadable}


def inspect_stream(stream: Stream, home: StreamHome, now: datetime) -> dict[str, Any]:
    """Everything about a stream's live checkpoint, in the keys of `sluice inspect --json`.

    Raises:
        StorageError: It can't be read.
        RefusedError: A file of the home is damaged.
    """
    try:
        seen = survey(stream, home, Bound(), now)
    except SluiceError as exc:
        # A source that is not there hides nothing of the checkpoint.
        number = home.current_generation()
        checkpoint = read_checkpoint(home.checkpoint_location(number), storage=home.storage)
        return _document(checkpoint, stream.name, number, {}) | {"source_error": str(exc)}
    names = [line.source for line in seen.lines] if seen.lines else None
    document = _document(seen.checkpoint, stream.name, seen.generation, {}, names)
    outlook = watermark_outlook(seen.checkpoint, seen.watermarks)
    if outlook is not None:
        document["watermarks"] = msgspec.to_builtins(watermarks_document(outlook))
    document["state"] = [msgspec.to_builtins(kept) for kept in _newest_state(home)]
    document["lag"] = {name: lag.as_json(now) for name, lag in source_lags(seen).items()}
    refusal = find_refusal(seen)
    noticed = [problem for found in seen.available.values() for problem in found.problems]
    known = [*seen.checkpoint.problems, *noticed]
    if refusal is not None and refusal not in known:
        known.append(refusal)
    document["problems"] = [problem.as_json() for problem in known]
    return document


def _newest_state(home: StreamHome) -> tuple[StateRecord, ...]:
    """What the operators kept after the newest batch that a record has."""
    records, _ = RunRecords(home).newest_readable(_NEWEST_RUNS)
    batches = (record.batches[-1] for record in records if record.interval is None and record.batches)
    return next((batch.state for batch in batches), ())


def inspect_checkpoint(location: str, storage: Storage) -> dict[str, Any]:
    """Everything about any Spark checkpoint, whoever made it, in the keys of `sluice inspect --json`.

    Raises:
        StorageError: It can't be read.
    """
    return _document(read_checkpoint(location, storage=storage), None, None, {})


def _document(
    checkpoint: CheckpointState,
    stream: str | None,
    generation: int | None,
    lag: dict[str, Any],
    names: list[str] | None = None,
) -> dict[str, Any]:
    offsets = checkpoint.planned.offsets if checkpoint.planned else {}
    keys = names if names is not None and len(names) == len(offsets) else list(offsets)
    return {
        "stream": stream,
        "generation": generation,
        "checkpoint": checkpoint.location,
        "query_id": checkpoint.query_id,
        "planned": checkpoint.planned_id,
        "committed": checkpoint.committed_id,
        "watermark": iso_millis(checkpoint.watermark_ms) if checkpoint.watermark_ms else None,
        "sources": {key: decoded_offset(offset) for key, offset in zip(keys, offsets.values(), strict=True)},
        "operators": [
            {
                "operator_id": operator.operator_id,
                "name": operator.name,
                "partitions": operator.partitions,
                "stores": list(operator.stores),
                "latest_version": operator.latest_version,
            }
            for operator in checkpoint.operators
        ],
        "state": [],
        "watermarks": None,
        "lag": lag,
        "problems": [problem.as_json() for problem in checkpoint.problems],
    }
