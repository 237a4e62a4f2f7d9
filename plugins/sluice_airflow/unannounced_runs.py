"""What no event has told of: batches of the runs before one that succeeded, which had not.

A run that fails emits no event, and what it had committed is in the table all the same. The next run goes on behind
it. So the event of a run that succeeded tells of those before it, too: back to the newest one that succeeded itself.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

from sluice.errors import SluiceError
from sluice.runs.record import RunRecord, RunRecords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.home import StreamHome
    from sluice.stream import Stream

logger = logging.getLogger(__name__)

_MOST_READ = 1000
"""How many records are looked at: backfills, and runs of other generations, may lie between."""


def untold_runs(home: StreamHome, record: RunRecord) -> list[RunRecord]:
    """The runs just before one that succeeded which no event told of, oldest first; none before a backfill.

    Args:
        home: The stream's folder in the home.
        record: The run that succeeded.

    Raises:
        StorageError: The home can't be read.
    """
    found: list[RunRecord] = []
    if record.interval is not None:
        return found
    records = RunRecords(home)
    older = (run_id for run_id in records.run_ids() if run_id < record.run_id)
    for run_id in islice(older, _MOST_READ):
        try:
            earlier = records.read(run_id)
        except SluiceError:
            logger.warning("the events of run %s can't tell what run %s wrote", record.run_id, run_id, exc_info=True)
            continue
        if earlier is None or earlier.interval is not None or earlier.generation != record.generation:
            continue
        if earlier.status == "succeeded" and not earlier.passed_later:
            break
        found.append(earlier)
    return found[::-1]


def written_versions(stream: Stream, home: StreamHome, runs: Sequence[RunRecord]) -> list[int]:
    """The versions of the sink that successive runs made.

    Args:
        stream: The stream, with absolute locations.
        home: Its folder in the home.
        runs: The runs, oldest first.

    Raises:
        RefusedError: The plan of a run is damaged.
        StorageError: The sink can't be read.
    """
    versions = {batch.batch_id: batch.sink_version for run in runs for batch in run.batches}
    untold = runs[:-1]
    ids = set(versions) | {batch.batch_id for run in untold for batch in run.plan.batches}
    # A driver that died may not have lived to record its last batch; the sink's own log has it.
    for batch_id in sorted(set(range(min(ids), max(ids) + 1)) - set(versions)) if untold and ids else ():
        outcome = stream.sink.outcome(runs[-1].query_id or "", batch_id, storage=home.storage)
        versions[batch_id] = outcome.version if outcome is not None else None
    return [version for version in versions.values() if version is not None]
