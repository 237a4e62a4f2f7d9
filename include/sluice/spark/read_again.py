"""A batch whose rows count already, and that is not committed, is read again: for its state and its watermark.

What it is read by then must be what it was read by: other code, or another static table, makes other rows of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice.checkpoint.state_store import lacks_state_of
from sluice.errors import Problem, RefusedError
from sluice.locations import is_local
from sluice.planning.survey import Survey
from sluice.spark.fingerprints import read_by
from sluice.spark.query import Query
from sluice.spark.session import CHECKPOINT_FILES
from sluice.storage import Storage

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def check_read_again(
    query: Query, seen: Survey, then: Mapping[str, str], now: Mapping[str, str], *, storage: Storage
) -> None:
    """Make sure that a pending batch with state, whose rows count, is read as it was.

    The state of it that is there stays on this machine, whatever a static table has by now; its watermark does not.
    Where that state was taken back, for it may have been that of two drivers, it is computed anew.

    Args:
        query: The query that goes on with the batch.
        seen: What is there.
        then: What was declared when the batch was begun.
        now: What is declared.
        storage: Where the checkpoint is.

    Raises:
        RefusedError: It would be read otherwise.
        StorageError: The state's folder can't be listed.
    """
    if not seen.checkpoint.operators or not read_by(then, now, with_tables=True):
        return
    changed = read_by(then, now, with_tables=not _stays(query, seen, storage))
    if not changed:
        return
    raise RefusedError(
        Problem(
            code="READ_OTHERWISE",
            file=seen.stream.place,
            cause=f"the rows of batch {seen.checkpoint.planned_id} are written, or it is decided where they go; Spark"
            f" has yet to commit it, and it would be read by another {', '.join(changed)} than they were",
            consequence="its state and its watermark would be those of other rows",
            remedy="set it back, run the stream once, and change it then",
        )
    )


def _stays(query: Query, seen: Survey, storage: Storage) -> bool:
    """Whether the state of the batch is there, and is not written over."""
    conf = query.frame.sparkSession.conf
    is_of_each_try = conf.get(_FORMAT, "1") != "1"
    is_kept = all(conf.get(name, None) == value for name, value in CHECKPOINT_FILES.items())
    batch_id, location = seen.checkpoint.planned_id or 0, seen.checkpoint.location
    is_there = is_local(location) and not lacks_state_of(batch_id, location, storage=storage)
    return is_kept and not is_of_each_try and is_there
