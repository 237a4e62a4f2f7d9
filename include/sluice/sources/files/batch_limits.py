"""How the files that wait are cut into batches: as Spark cuts them, by the limits of the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sluice.amounts import known
from sluice.checkpoint.source_log import LogAddition, LogEntry
from sluice.sources.contract import Step
from sluice.sources.files.listing import ListedFile, file_name

_GLOB_IN_URI = re.compile(r"\*|%(?:3F|5B|5C|5D|7B|7D)")
"""`* ? [ \\ ] { }`, as a URI spells them."""


@dataclass(frozen=True)
class BatchLimits:
    """What a batch takes at most."""

    max_files: int | None
    max_bytes: int | None
    file_name_only: bool
    """Whether a file is recognised by its name alone, so that another one of that name is taken already."""

    def steps(self, files: Iterable[ListedFile], first_id: int, *, are_patterns: bool) -> Iterator[Step]:
        """The batches of some files.

        Args:
            files: What waits, in the order in which it is taken.
            first_id: The log id that takes the first batch.
            are_patterns: Whether Spark reads their names as patterns.
        """
        for log_id, taken in enumerate(self._batches(files, are_patterns=are_patterns), first_id):
            sizes = tuple(file.size_bytes for file in taken)
            entries = tuple(LogEntry(file.path, file.mtime_ms, log_id) for file in taken)
            amount = known(files=len(taken), bytes=sum(sizes))
            yield Step(log_offset(log_id), amount, LogAddition(entries, sizes))

    def _batches(self, files: Iterable[ListedFile], *, are_patterns: bool) -> Iterator[Sequence[ListedFile]]:
        batch: list[ListedFile] = []
        total = 0
        taken: set[str] = set()
        was_alone = False
        for file in files:
            if taken and file_name(file.path) in taken:
                continue
            # A path with a glob character shares no batch: Spark would expand it and read other files twice.
            path = file.path
            is_alone = are_patterns and ("%" in path or "*" in path) and is_pattern(path)
            if batch and (is_alone or was_alone or self._is_full(len(batch), total + file.size_bytes)):
                yield batch
                if self.file_name_only:
                    taken.update(file_name(earlier.path) for earlier in batch)
                batch, total = [], 0
                if taken and file_name(file.path) in taken:
                    continue
            batch.append(file)
            total += file.size_bytes
            was_alone = is_alone
        if batch:
            yield batch

    def _is_full(self, count: int, size_with_next: int) -> bool:
        if self.max_files is not None:
            return count >= self.max_files
        return self.max_bytes is not None and size_with_next > self.max_bytes


def is_pattern(path: str) -> bool:
    """Whether a file's name, as a URI spells it, is a pattern for Spark."""
    return _GLOB_IN_URI.search(path) is not None


def log_offset(log_id: int) -> str:
    """The offset of a log id, byte for byte as Spark writes it."""
    return f'{{"logOffset":{log_id}}}'
