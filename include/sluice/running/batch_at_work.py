"""A batch that a run is about to let Spark run, with what is known of the tries before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.checkpoint.offsets import OffsetFile
from sluice.local_disk import FileStat
from sluice.plan import PlannedBatch


@dataclass(frozen=True)
class BatchAtWork:
    """A batch that is logged, just before Spark runs it."""

    batch: PlannedBatch
    planned: OffsetFile
    was_in_sink: bool
    was_decided: bool
    is_read: bool
    """Whether anything needs its rows."""
    is_logged: bool
    """Whether files of it were in a log before this run wrote any."""
    taken: Sequence[str]
    """The files that it must read."""
    looks: Mapping[str, FileStat]
    """How the files were that another try has logged."""

    @property
    def is_counted(self) -> bool:
        """Whether the rows that count are those of another try: the sink has them, or where they go is decided."""
        return self.was_in_sink or self.was_decided
