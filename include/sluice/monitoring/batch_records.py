"""The batches of a generation, as its runs' records have them."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.errors import RefusedError
from sluice.home import StreamHome
from sluice.runs.record import BatchRecord, RunRecord, RunRecords


def recorded_batches(
    home: StreamHome, generation: int
) -> tuple[dict[int, tuple[RunRecord, BatchRecord]], Sequence[RefusedError]]:
    """By batch, the run that committed it, and what its record says; and what is wrong with damaged records.

    Raises:
        StorageError: The records can't be listed.
    """
    runs = RunRecords(home)
    readable, damaged = runs.newest_readable(len(runs.run_ids()))
    found: dict[int, tuple[RunRecord, BatchRecord]] = {}
    for record in reversed(readable):
        if record.interval is None and record.generation == generation:
            found |= {batch.batch_id: (record, batch) for batch in record.batches}
    return found, list(damaged.values())
