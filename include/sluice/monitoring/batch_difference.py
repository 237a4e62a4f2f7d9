"""What `sluice diff` tells: what happened between two batches, by the checkpoint's logs and the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sluice.amounts import known_sum
from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import OffsetFile, decoded_offset, read_commit_file, read_offset_file
from sluice.checkpoint.places import commit_file, commits_folder, offset_file
from sluice.errors import DeclarationError
from sluice.home import Generation, StreamHome
from sluice.monitoring.batch_records import recorded_batches
from sluice.runs.record import BatchRecord, RunRecord
from sluice.times import iso_millis

_COUNTS = ("input_rows", "output_rows", "late_rows", "quarantined_rows", "dropped_rows")


def batch_difference(stream: str, home: StreamHome, first: int, last: int) -> dict[str, Any]:
    """Everything that is known of the batches behind one, up to another, in the keys of `sluice diff --json`.

    Args:
        stream: The stream's name.
        home: Its folder in the home.
        first: The batch before them; -1 for the beginning.
        last: The last of them.

    Raises:
        DeclarationError: There are no such batches.
        StorageError: The checkpoint can't be read.
        RefusedError: A file of it is damaged.
    """
    number = home.current_generation()
    place, known = home.checkpoint_location(number), home.generation(number)
    commits = list_log(commits_folder(place), storage=home.storage)
    newest = -1 if commits is None or commits.latest is None else commits.latest
    if not first < last <= newest:
        raise DeclarationError(
            f"there are no batches behind {first}, up to {last}",
            where=f"sluice diff {stream}",
            remedy=f"name two batches in order; the newest that is committed is {newest}"
            if newest >= 0
            else "none is committed yet",
        )
    every, damaged = recorded_batches(home, number)
    records = {batch_id: every[batch_id] for batch_id in range(first + 1, last + 1) if batch_id in every}
    before, after = _planned(place, first, home), _planned(place, last, home)
    missing = [batch_id for batch_id in range(first + 1, last + 1) if batch_id not in records]
    return {
        "stream": stream,
        "generation": number,
        "from": first,
        "to": last,
        "sources": _sources(known, before, after, is_from_start=first < 0),
        "watermark": {"from": _watermark(place, first, home), "to": _watermark(place, last, home)},
        "conf": {} if before is None or after is None else _differing(before.conf, after.conf),
        "declared": {} if known is None else _differing(known.declared_at(first), known.declared_at(last)),
        "state": _state(every.get(first), every.get(last)),
        "batches": [_batch(batch_id, *records[batch_id]) for batch_id in sorted(records)],
        "totals": {name: known_sum(getattr(batch, name) for _, batch in records.values()) for name in _COUNTS},
        "not_known": [*_gone(first, before), *_gone(last, after), *_unrecorded(missing), *map(str, damaged)],
    }


def _planned(place: str, batch_id: int, home: StreamHome) -> OffsetFile | None:
    """What the offset log says of a batch; None where Spark has deleted it, and before the first."""
    if batch_id < 0:
        return None
    return read_offset_file(offset_file(place, batch_id), batch_id, storage=home.storage)


def _watermark(place: str, batch_id: int, home: StreamHome) -> str | None:
    """The watermark that a batch has left."""
    if batch_id < 0:
        return None
    committed = read_commit_file(commit_file(place, batch_id), batch_id, storage=home.storage)
    return None if committed is None or not committed.next_watermark_ms else iso_millis(committed.next_watermark_ms)


def _sources(
    known: Generation | None, before: OffsetFile | None, after: OffsetFile | None, *, is_from_start: bool
) -> dict[str, dict[str, Any]]:
    if after is None or (before is None and not is_from_start):
        return {}
    lines = [line.source for line in known.lines] if known is not None else []
    names = lines if len(lines) == len(after.offsets) else list(after.offsets)
    starts = list(before.offsets.values()) if before is not None else [None] * len(names)
    ends = list(after.offsets.values())
    return {name: {"from": decoded_offset(starts[at]), "to": decoded_offset(ends[at])} for at, name in enumerate(names)}


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, dict[str, str | None]]:
    names = sorted({*before, *after})
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names
        if before and before.get(name) != after.get(name)
    }


def _state(
    first: tuple[RunRecord, BatchRecord] | None, last: tuple[RunRecord, BatchRecord] | None
) -> dict[str, dict[str, int | None]]:
    """How many rows each operator kept; of several of a name, all of them."""
    before, after = (_rows_kept(None if found is None else found[1]) for found in (first, last))
    return {name: {"from": before.get(name), "to": rows} for name, rows in after.items()}


def _rows_kept(batch: BatchRecord | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for kept in batch.state if batch is not None else ():
        found[kept.operator] = found.get(kept.operator, 0) + kept.rows
    return found


def _batch(batch_id: int, run: RunRecord, batch: BatchRecord) -> dict[str, Any]:
    rows = sum(kept.rows for kept in batch.state) if batch.state else None
    return {"run_id": run.run_id, **msgspec.to_builtins(batch), "batch_id": batch_id, "state_rows": rows}


def _gone(batch_id: int, planned: OffsetFile | None) -> Iterator[str]:
    if planned is None and batch_id >= 0:
        yield f"the offset log has no batch {batch_id} any more: Spark keeps the newest hundred"


def _unrecorded(missing: list[int]) -> Iterator[str]:
    if missing:
        yield f"no record has the batches {', '.join(map(str, missing))}: Spark alone has run them, or it was deleted"
