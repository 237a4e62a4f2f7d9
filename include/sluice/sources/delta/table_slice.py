"""What a backfill reads of a Delta table."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.sources.contract import Slice


@dataclass(frozen=True)
class TableSlice(Slice):
    """The rows of one version of the table, as far as the live generation is done with them."""

    version: int | None = None
    left_out: tuple[str, ...] = ()
    """URIs of files of that version that are not read: the live generation has yet to read them, or passes over them
    for good."""

    @property
    def is_beyond_offsets(self) -> bool:
        return self.end is None and self.version is not None
