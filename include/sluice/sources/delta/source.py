"""A Delta table as a source: its versions are what arrives.

Spark's offset `{reservoirVersion: V, index: I}` means: everything before version V, and of V the files up to index I
(-1 for none). While `isStartingVersion` is true, V is the snapshot that a first run without a starting version reads,
and the index counts the snapshot's files by modification time and path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.amounts import known
from sluice.datasets import Dataset, dataset_at
from sluice.declared_table import DeclaredTable
from sluice.delta_log.table import (
    AddedFile,
    Commit,
    DeltaLog,
    TableMetadata,
    file_location,
    is_version_gone,
    load_table,
    open_log,
    read_commit,
    running_times,
    snapshot_files,
    spark_columns,
)
from sluice.errors import DeclarationError, NotThereError, Problem, RefusedError, StorageError
from sluice.interval import Interval
from sluice.locations import same_for_every_name, spark_location
from sluice.sources.contract import (
    SOURCE_TAG,
    Available,
    Bound,
    MarkedSource,
    Position,
    Slice,
    Starting,
    TellingSource,
    VersionedSource,
)
from sluice.sources.delta.batch_limits import BatchLimits, Chunk, are_left
from sluice.sources.delta.change_feed import OPTION, after_changes, fed_files, kept
from sluice.sources.delta.drained import why_drained
from sluice.sources.delta.feeding import TRACKED, FedDeltaTable
from sluice.sources.delta.first_version import checked_version, version_at
from sluice.sources.delta.identity import check_identity, is_noted, mark_of
from sluice.sources.delta.offset import Offset, before_all, last_version, read_offset, write_offset
from sluice.sources.delta.refusals import (
    behind,
    check_reads_all,
    excluded_rewritten,
    files_gone,
    not_append,
    restored,
    snapshot_gone,
    table_gone,
    version_gone,
    version_vacuumed,
)
from sluice.sources.delta.schema_changes import ReadSettings, changed_columns, told_metadata
from sluice.sources.delta.table_slice import TableSlice
from sluice.sources.files.listing import file_uri
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from sluice.times import epoch_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG_KEPT = "delta.logRetentionDuration"
"""Where a table says how long its log is kept, its versions are not left for later."""
_RESTORE = "RESTORE"
"""The operation of a commit that takes a table back to an earlier version."""


@dataclass(frozen=True)
class DeltaSource(DeclaredTable, MarkedSource, VersionedSource, TellingSource, FedDeltaTable):
    """Declared by `sources.delta`."""

    kind: ClassVar[str] = "delta"
    unit: ClassVar[str] = "files"
    needs_delta: ClassVar[bool] = True
    counts_more_rows: ClassVar[bool] = True
    declared_by: ClassVar[str] = "sources.delta"

    starting: Starting
    starting_version: int | None
    max_files_per_batch: int | None
    max_bytes_per_batch: int | None
    max_offsets_per_batch: int | None
    skip_change_commits: bool
    ignore_deletes: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    settings: ReadSettings = field(default=ReadSettings(), compare=False, repr=False)

    @property
    def location(self) -> str:
        return self.path

    def datasets(self, end: Any) -> tuple[Dataset, ...]:
        return (replace(dataset_at(self.path), version=last_version(end)),)

    @property
    def reading(self) -> tuple[object, ...]:
        return self.path, self.skip_change_commits, self.ignore_deletes, *sorted(self.options.items())

    @property
    def leaves_out(self) -> str:
        return self.options.get("excludeRegex", "")

    def resolved(self, around: Surroundings) -> DeltaSource:
        options = dict(self.options)
        if (tracked := options.get(TRACKED)) is not None:
            # Spark would take it from the driver's folder.
            options[TRACKED] = spark_location(around.path(tracked, place=f"sources.delta({self.path!r})"))
        return replace(self.located(around), options=options)

    def check_settings(self, conf: Mapping[str, str], *, place: str) -> None:
        check_reads_all(conf, place=place)

    def under(self, conf: Mapping[str, str]) -> DeltaSource:
        return replace(self, settings=ReadSettings.of(conf))

    def reads_from(self, place: str) -> bool:
        return same_for_every_name(place) == same_for_every_name(self.path)

    def available(self, position: Position, bound: Bound, *, storage: Storage, now: datetime) -> Available:
        log = open_log(self.path, storage=storage)
        if log is None:
            raise NotThereError(
                "there is no Delta table", where=self.path, remedy="run what writes it first, or correct the path"
            )
        if position.offset is None:
            return self._first(log, position, bound, storage)
        start = read_offset(position.offset, self.path)
        check_identity(log, start, position.mark, storage=storage)
        if self._reads_changes:
            start = after_changes(log, start, storage=storage)
        end = self._last_version(log, bound, storage, start.reservoir_version)
        chunks = self._chunks(log, start, end, storage)
        return self._cut(log, [] if self._is_nothing(log, chunks, now) else chunks, position.started_at, storage)

    def is_idle(self, found: Available, position: Position) -> bool:
        # Where Spark decides the batches, each version beyond the offset is in a step, also one without rows.
        if found.steps or position.offset is None:
            return not found.steps
        # A driver may have died before it had noted what Spark has read: a run does so.
        return is_noted(read_offset(position.offset, self.path), position.mark)

    def _is_nothing(self, log: DeltaLog, chunks: Sequence[Chunk], now: datetime) -> bool:
        """Whether versions have no rows, and are left for the next run that has some."""
        is_asked_for = _LOG_KEPT in log.configuration or why_drained(self.options) is not None
        return not is_asked_for and are_left(chunks, now)

    def check_inputs(
        self, position: Position, end: str, *, storage: Storage, is_read: bool = True
    ) -> tuple[Problem, ...]:
        log = open_log(self.path, storage=storage)
        if log is None:
            return (table_gone(self.path),)
        last = read_offset(end, self.path)
        check_identity(log, last, position.mark, storage=storage)
        start = read_offset(position.offset, self.path) if position.offset else None
        if start is not None:
            needed = range(start.reservoir_version, last.reservoir_version + (1 if last.index >= 0 else 0))
            there = set(log.versions)
            if gone := [version for version in needed if version not in there]:
                return tuple(version_gone(log, version) for version in gone)
        end_version = last.reservoir_version if last.index >= 0 else last.reservoir_version - 1
        begun = start or before_all(log.table_id, position.started_at, max(end_version, 0))
        is_whole = not (begun.is_starting_version and is_version_gone(log, begun.reservoir_version, storage=storage))
        try:
            if not is_read or not is_whole:
                versions = range(begun.reservoir_version, end_version + 1)
                self._check_columns(log, told_metadata(log, versions, storage=storage), storage)
                return ()
            chunks = self._chunks(log, begun, end_version, storage) if end_version >= 0 else []
            self._checked(log, chunks, storage)
        except RefusedError as exc:
            return (exc.finding,)
        places = [
            file_location(self.path, file.path)
            for chunk in chunks
            for index, file in enumerate(chunk.files, chunk.first_index)
            if (chunk.version, index) <= (last.reservoir_version, last.index) and not self._excludes(file.path)
        ]
        gone_files = [place for place in places if storage.stat(place) is None]
        return (files_gone(gone_files[0], len(gone_files), len(places)),) if gone_files else ()

    def _check_columns(self, log: DeltaLog, read: Mapping[int, TableMetadata | None], storage: Storage) -> None:
        """Make sure that Spark reads some versions with the columns of now; see `changed_columns`."""
        settings = None if TRACKED in self.options else self.settings
        if (problem := changed_columns(log, read, settings, storage=storage)) is not None:
            raise RefusedError(problem)

    def _checked(self, log: DeltaLog, chunks: Sequence[Chunk], storage: Storage) -> Sequence[Chunk]:
        found = kept(log, chunks, storage=storage) if self._reads_changes else chunks
        self._check_columns(log, {chunk.version: chunk.metadata for chunk in chunks}, storage)
        return found

    def mark(self, *ends: str, storage: Storage) -> str | None:
        return mark_of(self.path, [read_offset(end, self.path) for end in ends], storage=storage)

    def slice(self, position: Position, arrivals: Interval | None, *, storage: Storage) -> TableSlice:
        # Not cut by arrival: what replaced rows upstream came later than the rows, and Delta skips files by itself.
        return self._slice(position, None, storage)

    def slice_again(
        self, position: Position, arrivals: Interval | None, taken: Slice, *, storage: Storage
    ) -> TableSlice:
        # A later version may show the same rows, or mended ones: the one that was read holds as well.
        return self._slice(position, taken.version, storage)

    def _slice(self, position: Position, newest: int | None, storage: Storage) -> TableSlice:
        """What is read, as the newest version up to this one shows it; None for the newest that there is."""
        if position.offset is None:
            return TableSlice(end=None)
        log = open_log(self.path, storage=storage)
        if log is None:
            raise RefusedError(table_gone(self.path))
        at = read_offset(position.offset, self.path)
        check_identity(log, at, position.mark, storage=storage)
        version = at.reservoir_version if at.index >= 0 else at.reservoir_version - 1
        if version < 0:
            return TableSlice(end=None)
        rest = self._rest(log, at, storage)
        shown, unread = self._read_over(log, version, rest, storage, log.latest if newest is None else newest)
        self._check_excluded(log, shown, storage)
        end = position.offset if shown == version else None
        if not unread:
            end = write_offset(Offset(log.table_id, shown + 1, -1))
        files = {self._uri(file.path): file for file in self._snapshot(log, shown, storage)}
        left_out = unread | {uri for uri, file in files.items() if self._excludes(file.path)}
        read = [file for uri, file in files.items() if uri not in left_out]
        for file in read:
            place = file_location(self.path, file.path)
            if storage.stat(place) is None:
                raise RefusedError(version_vacuumed(self.path, shown, f"{place} is gone"))
        return TableSlice(
            end=end,
            amount=known(files=len(read), bytes=sum(file.size_bytes for file in read)),
            version=shown,
            left_out=tuple(sorted(left_out & files.keys())),
        )

    def _rest(self, log: DeltaLog, at: Offset, storage: Storage) -> set[str]:
        """The files of a version that a stream, which has begun to read it, has yet to read."""
        if at.index < 0:
            return set()
        version = at.reservoir_version
        if at.is_starting_version:
            return {self._uri(file.path) for file in self._snapshot(log, version, storage)[at.index + 1 :]}
        commit = read_commit(log, version, storage=storage)
        if commit is None:
            raise RefusedError(version_gone(log, version))
        return {self._uri(file.path) for file in commit.files[at.index + 1 :]}

    def _uri(self, path: str) -> str:
        """A data file as Spark names it: those that one writer makes in several partitions share their last name."""
        return file_uri(file_location(self.path, path))

    def _excludes(self, path: str) -> bool:
        """Whether the stream passes over a file: Delta looks in the path as the table's log spells it."""
        pattern = self.options.get("excludeRegex")
        return pattern is not None and re.search(pattern, path, re.ASCII) is not None

    def _check_excluded(self, log: DeltaLog, version: int, storage: Storage) -> None:
        """Make sure that the rows which the stream passes over are told from others up to a version.

        Raises:
            RefusedError: A compaction has put them into files of other names, or may have.
        """
        if "excludeRegex" not in self.options:
            return
        if log.first_kept > 0:
            told = f"its log no longer tells what was rewritten before version {log.first_kept}"
            raise RefusedError(excluded_rewritten(log, told))
        for number in range(version + 1):
            commit = read_commit(log, number, storage=storage)
            if commit is not None and not commit.removes_data and any(map(self._excludes, commit.removed)):
                told = f"version {number} ({commit.operation}) has rewritten some into files of other names"
                raise RefusedError(excluded_rewritten(log, told))

    def _snapshot(self, log: DeltaLog, version: int, storage: Storage, *, is_live: bool = False) -> list[AddedFile]:
        try:
            return snapshot_files(log, version, storage=storage)
        except StorageError as exc:
            # What is only out of reach right now may be there at the next try.
            if not is_version_gone(log, version, storage=storage):
                raise
            gone = snapshot_gone(log, version) if is_live else version_vacuumed(self.path, version, str(exc))
            raise RefusedError(gone) from exc

    def _read_over(
        self, log: DeltaLog, version: int, unread: set[str], storage: Storage, newest: int
    ) -> tuple[int, set[str]]:
        """The version that shows what the stream has read as it is now, and the files of it that it has yet to read.

        Versions that replace rows are passed over by the stream, and nobody will read them later: their rows count.
        What was appended meanwhile is left to the stream, so it must be told apart, file by file.
        """
        for number in range(version + 1, newest + 1):
            commit = read_commit(log, number, storage=storage)
            if commit is None or self._refuses(commit):
                break
            # The rows are those of a version that the stream has passed, and would count as unread ones.
            self._check_not_restored(log, commit)
            if unread & set(map(self._uri, commit.removed)):
                self._check_nothing_replaced(log, number, storage)
                break
            if not commit.removes_data:
                unread = unread | {self._uri(file.path) for file in commit.files}
            version = number
        return version, unread

    def _check_nothing_replaced(self, log: DeltaLog, first: int, storage: Storage) -> None:
        for number in range(first, log.latest + 1):
            commit = read_commit(log, number, storage=storage)
            if commit is not None and commit.removes_data and not self._refuses(commit):
                raise RefusedError(behind(log, commit))

    def columns(self, newest: str | None, *, storage: Storage) -> Mapping[str, str]:
        return spark_columns(load_table(self.path, storage=storage))

    def read_batch(self, spark: SparkSession, *, name: str, taken: Slice) -> DataFrame:
        from pyspark.sql import functions

        frame = spark.read.format("delta").option("versionAsOf", max(taken.version or 0, 0))
        rows = frame.load(spark_location(self.path))
        if taken.version is None:
            return rows.limit(0)
        if isinstance(taken, TableSlice) and taken.left_out:
            # Spark spells a local file with one slash here, and with three in the logs of file sources.
            uri = functions.regexp_replace("_metadata.file_path", "^file:/+", "file:///")
            return rows.where(~uri.isin(*taken.left_out))
        return rows

    def read_stream(self, spark: SparkSession, *, name: str, started_at: Mapping[str, Any]) -> DataFrame:
        reader = spark.readStream.format("delta").option(SOURCE_TAG, name).options(**self.options)
        for option, value in (
            ("startingVersion", started_at.get("version")),
            ("maxFilesPerTrigger", self.max_files_per_batch),
            ("maxBytesPerTrigger", self.max_bytes_per_batch),
            ("skipChangeCommits", self.skip_change_commits or None),
            ("ignoreDeletes", self.ignore_deletes or None),
        ):
            if value is not None:
                reader = reader.option(option, value)
        return reader.load(spark_location(self.path))

    def _first(self, log: DeltaLog, position: Position, bound: Bound, storage: Storage) -> Available:
        end = self._last_version(log, bound, storage, 0)
        kept = position.kept_start(self._declared_start(log), log.table_id)
        started_at, missed = self._start(log, storage) if kept is None else (kept, None)
        problems = () if missed is None else (missed,)
        start = before_all(log.table_id, started_at, end)
        if start.reservoir_version < 0:
            why = why_drained(self.options)
            found = Available(steps=(), started_at=started_at, unplannable=why, is_counted=why is None)
        else:
            found = self._cut(log, self._chunks(log, start, end, storage), started_at, storage)
        return replace(found, problems=(*problems, *found.problems))

    def _start(self, log: DeltaLog, storage: Storage) -> tuple[dict[str, Any], Problem | None]:
        """What a first run begins at, and what it misses for it."""
        if self.starting_version is None and self.starting == "earliest":
            return {}, None
        if self.starting_version is not None:
            version, missed = checked_version(log, self.starting_version), None
        else:
            version, missed = version_at(log, self.starting, storage=storage)
        return {"version": version, "declared": self._declared_start(log)}, missed

    def _declared_start(self, log: DeltaLog) -> str:
        """What a start is resolved from."""
        start = self.starting if self.starting_version is None else f"version {self.starting_version}"
        return f"{start}, {log.table_id}"

    def blind_obstacle(self, position: Position) -> str | None:
        is_known = position.offset is not None or position.started_at or position.has_begun
        if is_known or (self.starting_version is None and self.starting == "earliest"):
            return None
        return "it is not known yet at which version `starting` lets it begin"

    def added_again(self, start: str, end: str, storage: Storage) -> Problem | None:
        log = open_log(self.path, storage=storage)
        if log is None:
            return None
        begun, ended = read_offset(start, self.path), read_offset(end, self.path)
        # Of the version of an offset below 0, nothing is read yet.
        last = min(ended.reservoir_version - (ended.index < 0), log.latest)
        commits = (read_commit(log, version, storage=storage) for version in range(begun.reservoir_version, last + 1))
        problems = (self._restored(log, commit) for commit in commits if commit is not None)
        return next((problem for problem in problems if problem is not None), None)

    def _last_version(self, log: DeltaLog, bound: Bound, storage: Storage, first: int) -> int:
        """The newest version below the bound; -1 for none."""
        last = log.latest
        if bound.to_version is not None:
            if bound.to_version > last:
                raise DeclarationError(
                    f"version {bound.to_version} does not exist; the newest is {last}",
                    where=self.path,
                    remedy="give an existing version, or leave the bound out",
                )
            last = bound.to_version
        if bound.until is None:
            return last
        until = epoch_micros(bound.until)
        within = first - 1
        for version, latest_ms in running_times(log, storage, first):
            if version > last or latest_ms * 1000 >= until:
                break
            within = version
        return within

    def _chunks(self, log: DeltaLog, start: Offset, end: int, storage: Storage) -> list[Chunk]:
        """What is to be read from an offset on, up to a version."""
        first, taken = start.reservoir_version, max(start.index + 1, 0)
        if not start.is_starting_version:
            return self._changes(log, first, end, storage, skip_files=taken)
        if end < first:
            # The rest of the snapshot lies beyond the bound, as all of it would.
            return []
        rest = self._snapshot(log, first, storage, is_live=True)[taken:]
        return [Chunk(first, tuple(rest), taken, is_snapshot=True), *self._changes(log, first + 1, end, storage)]

    def _changes(self, log: DeltaLog, first: int, last: int, storage: Storage, skip_files: int = 0) -> list[Chunk]:
        chunks = []
        for version in range(first, last + 1):
            commit = read_commit(log, version, storage=storage)
            if commit is None:
                raise RefusedError(version_gone(log, version))
            if self._refuses(commit):
                raise RefusedError(not_append(log, commit))
            self._check_not_restored(log, commit)
            skipped = skip_files if version == first else 0
            files = self._read_of(log, commit, storage)[skipped:]
            is_empty = not (commit.files or commit.removes_data or commit.changes_table)
            chunk = Chunk(version, files, skipped, timestamp_ms=commit.timestamp_ms, metadata=commit.metadata)
            chunks.append(replace(chunk, is_empty=is_empty, is_whole=self._reads_changes))
        return chunks

    def _read_of(self, log: DeltaLog, commit: Commit, storage: Storage) -> tuple[AddedFile, ...]:
        if self._reads_changes:
            return fed_files(log, commit, storage=storage)
        return () if commit.removes_data and self.skip_change_commits else commit.files

    def _refuses(self, commit: Commit) -> bool:
        is_told = self.skip_change_commits or self._reads_changes
        return commit.removes_data and not is_told and (bool(commit.files) or not self.ignore_deletes)

    def _check_not_restored(self, log: DeltaLog, commit: Commit) -> None:
        """Make sure that a commit adds no files again; whether this stream has read them can't be told.

        Raises:
            RefusedError: It does.
        """
        if (problem := self._restored(log, commit)) is not None:
            raise RefusedError(problem)

    def _restored(self, log: DeltaLog, commit: Commit) -> Problem | None:
        """What is wrong with a commit that adds files again which were there before, as far as Spark would read them.

        One that takes rows out as well is passed over whole, or refused as any other change. At which version a stream
        began is in no offset.
        """
        if commit.operation != _RESTORE or commit.removes_data or self._reads_changes:
            return None
        again = [file.path for file in commit.files if not self._excludes(file.path)]
        return restored(log, commit, again) if again else None

    def _cut(self, log: DeltaLog, chunks: list[Chunk], started_at: Mapping[str, Any], storage: Storage) -> Available:
        read = self._checked(log, chunks, storage)
        limits = BatchLimits(self.max_files_per_batch, self.max_bytes_per_batch, self.max_offsets_per_batch)
        return Available(
            steps=list(limits.steps(log.table_id, read, self._excludes)),
            started_at=started_at,
            oldest_ms=chunks[0].timestamp_ms if chunks else None,
            unplannable=why_drained(self.options),
        )

    @property
    def bears_changes(self) -> bool:
        return self.skip_change_commits

    @property
    def _reads_changes(self) -> bool:
        """Whether the rows are the changes themselves, so that versions may rewrite what was read."""
        return self.options.get(OPTION) == "true"

    @property
    def backfill_obstacle(self) -> str | None:
        return "a change feed can't be read again as the stream has read it" if self._reads_changes else None
