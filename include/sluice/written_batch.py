"""What is noted of a table that batches are written into."""

from __future__ import annotations

import msgspec


class WrittenBatch(msgspec.Struct, frozen=True):
    """The newest batch that a table had when one was noted: a table without it is older than the checkpoint."""

    batch_id: int
    version: int
    """The table's: that which the batch made, or a later one."""
    identity: str | None = None
    """What tells the table from others, where it is not the sink."""
