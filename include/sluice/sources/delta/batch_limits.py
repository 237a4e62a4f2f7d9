"""How the files of versions are cut into batches: as Delta cuts them, by the limits of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sluice.amounts import known, known_sum
from sluice.delta_log.table import AddedFile, TableMetadata
from sluice.sources.contract import Step
from sluice.sources.delta.offset import Offset, write_offset
from sluice.times import epoch_micros

_MOST_FILES_BY_DEFAULT = 1000
"""Delta's own default."""
_MOST_EMPTY = 100
_EMPTY_MS = 24 * 60 * 60 * 1000
"""How many versions without rows are left for the next run that has some, and for how long: Delta keeps its log for 30
days, unless a table says otherwise."""


@dataclass(frozen=True)
class Chunk:
    """The files of one version that are yet to be read."""

    version: int
    files: tuple[AddedFile, ...]
    first_index: int
    is_snapshot: bool = False
    timestamp_ms: int | None = None
    """When the version was committed; None for a snapshot, which gathers many versions."""
    metadata: TableMetadata | None = None
    """What the table is from it on; None where it says nothing of that, and for a snapshot."""
    is_empty: bool = False
    """Whether it neither added nor removed rows, for whatever reader, nor changed what the table is."""
    is_whole: bool = False
    """Whether a batch reads all of it or nothing, as of a change feed."""
    begins: bool = True
    """Whether a batch may begin with it."""

    def pieces(self, excludes: Callable[[str], bool]) -> Iterator[tuple[int, tuple[AddedFile, ...]]]:
        """What a batch can end behind: the last index of each, and its files.

        Args:
            excludes: Whether the source leaves out a file, by its path.
        """
        read = [(index, file) for index, file in enumerate(self.files, self.first_index) if not excludes(file.path)]
        if self.is_whole:
            yield from [(read[-1][0], tuple(file for _, file in read))] if read else []
        else:
            yield from ((index, (file,)) for index, file in read)


@dataclass(frozen=True)
class BatchLimits:
    """What a batch takes at most: files, bytes and versions."""

    max_files: int | None
    max_bytes: int | None
    max_versions: int | None

    def steps(self, table_id: str, chunks: Iterable[Chunk], excludes: Callable[[str], bool]) -> Iterator[Step]:
        """The batches of some versions: as much as the limits allow, at least one file.

        Args:
            table_id: The table's.
            chunks: The versions, oldest first.
            excludes: Whether the source leaves out a file, by its path.
        """
        files: list[AddedFile] = []
        size_bytes = versions = 0
        position: Offset | None = None
        for chunk in chunks:
            has_most = self.max_versions is not None and versions >= self.max_versions
            if position is not None and has_most and chunk.begins:
                yield _step(position, files)
                files, size_bytes, versions = [], 0, 0
            for index, piece in chunk.pieces(excludes):
                if position is not None and files and self._is_full(len(files), size_bytes, len(piece)):
                    yield _step(position, files)
                    files, size_bytes, versions = [], 0, 0
                files += piece
                size_bytes += sum(file.size_bytes for file in piece)
                position = Offset(table_id, chunk.version, index, chunk.is_snapshot)
            position = Offset(table_id, chunk.version + 1, -1)
            versions += 1
        if position is not None and (files or versions):
            yield _step(position, files)

    def _is_full(self, files: int, size_bytes: int, more: int) -> bool:
        most_files = self.max_files
        if most_files is None and self.max_bytes is None and self.max_versions is None:
            most_files = _MOST_FILES_BY_DEFAULT
        if most_files is not None and files + more > most_files:
            return True
        # Delta's limit of bytes is soft, unlike that of Spark's file source: the file that reaches it still counts in,
        # and so does all that a change feed reads of a version.
        return self.max_bytes is not None and size_bytes >= self.max_bytes


def _step(position: Offset, files: list[AddedFile]) -> Step:
    return Step(
        end=write_offset(position),
        amount=known(
            files=len(files),
            bytes=sum(file.size_bytes for file in files),
            rows=known_sum(file.rows for file in files),
        ),
    )


def are_left(chunks: Sequence[Chunk], now: datetime) -> bool:
    """Whether versions have no rows, so that no run need begin for them: compactions, batches without rows.

    They are passed over with the next rows; or by themselves, before the table's log lets go of the first of them,
    or there are so many that reading them is dear. Not so what changes the table: Spark has to follow it.
    """
    oldest_ms = chunks[0].timestamp_ms if chunks and all(chunk.is_empty for chunk in chunks) else None
    if oldest_ms is None or len(chunks) > _MOST_EMPTY:
        return False
    return epoch_micros(now) // 1000 - oldest_ms < _EMPTY_MS
