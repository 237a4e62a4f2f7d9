"""What a stream had read by a time, told by what was written then: no setting of a source, which may be another by now.

Whatever lies before the end of a batch had arrived when the batch was planned, and so before its file was written. The
clock that the file bears tells less: a retry plans by that of the first try.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection
from datetime import datetime

import msgspec

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import read_offset_file
from sluice.checkpoint.places import offsets_folder
from sluice.errors import RefusedError
from sluice.home import StreamHome
from sluice.planning.survey import Survey, positions
from sluice.runs.record import RunRecord, RunRecords, new_run_id
from sluice.times import epoch_micros, parse_time

logger = logging.getLogger(__name__)


def read_before(seen: Survey, home: StreamHome, source: str, moment: datetime) -> Collection[str]:
    """Ends of batches that were planned before a time: offsets of one source, none where nobody knows.

    The checkpoint has its newest batches alone, the records have those of drained runs not at all.

    Raises:
        RefusedError: A file of the checkpoint is damaged.
        StorageError: One can't be read.
    """
    found = _logged(seen, home, source, moment), _recorded(seen, home, source, moment)
    return tuple(offset for offset in found if offset is not None)


def _logged(seen: Survey, home: StreamHome, source: str, moment: datetime) -> str | None:
    log, before_ms = list_log(offsets_folder(seen.checkpoint.location), storage=home.storage), _ms(moment)
    if log is None:
        return None

    def written_ms(batch_id: int) -> int:
        found = home.storage.stat(log.file(batch_id))
        return -1 if found is None else found.mtime_ms

    older = bisect_left(log.ids, before_ms, key=written_ms)
    if not older:
        return None
    batch_id = log.ids[older - 1]
    batch = read_offset_file(log.file(batch_id), batch_id, storage=home.storage)
    # It may have been cleaned up meanwhile, or written anew.
    if batch is None or not 0 <= written_ms(batch_id) < before_ms:
        return None
    return positions(seen, batch)[source].offset


def _recorded(seen: Survey, home: StreamHome, source: str, moment: datetime) -> str | None:
    records, newest = RunRecords(home), new_run_id(moment, "")
    for run_id in records.run_ids():
        if run_id >= newest:
            continue
        try:
            record = records.read(run_id)
        except RefusedError:
            logger.warning("what run %s had read is not known", run_id, exc_info=True)
            continue
        if record is not None and record.generation == seen.generation and _ended_before(record, moment):
            ends = [batch.sources[source].end for batch in record.plan.batches if source in batch.sources]
            if ends and ends[-1] is not None:
                return msgspec.json.encode(ends[-1]).decode()
    return None


def _ended_before(record: RunRecord, moment: datetime) -> bool:
    """Whether a run of the live stream had ended by a time; the plan of one that is at work may be older than it."""
    ended = parse_time(record.ended_at, where="ended_at")
    return record.interval is None and ended is not None and ended < moment


def _ms(moment: datetime) -> int:
    return epoch_micros(moment) // 1000
