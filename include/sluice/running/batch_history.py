"""What a batch has behind it that another run has begun: who has decided it, and what was declared otherwise then."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sluice.auditing.conservation import as_decided, rows_in_quarantine
from sluice.gate.decided_batch import Decision
from sluice.home import Generation
from sluice.running.preparation import Preparation
from sluice.runs.record import BatchRecord
from sluice.spark.fingerprints import TRANSFORM_NAME, tells_columns


def with_history(
    batch: BatchRecord,
    decided: Decision | None,
    planned_with: Mapping[int, Mapping[str, str]],
    generation: Generation,
    preparation: Preparation,
) -> BatchRecord:
    """The record of a batch that was done, with that.

    Args:
        batch: As committed.
        decided: What another run has decided, of this batch or of another one.
        planned_with: By the batch that was pending, what was declared when it was planned.
        generation: What is known, with what is declared now.
        preparation: That of the run.

    Raises:
        RefusedError: The quarantine's log is damaged.
        StorageError: It can't be read.
    """
    then, now = planned_with.get(batch.batch_id, {}), generation.newest_declared
    edited = (name for name, value in then.items() if now.get(name, value) != value)
    changed = tuple(name for name in edited if name != TRANSFORM_NAME and not tells_columns(name))
    if decided is None or decided.batch_id != batch.batch_id:
        return msgspec.structs.replace(batch, changed=changed)
    taken = rows_in_quarantine(decided, preparation.project, storage=preparation.home.storage)
    batch = as_decided(batch, decided, taken)
    return msgspec.structs.replace(batch, decided_by=decided.run_id, changed=changed)
