"""Files that arrive in a folder.

Spark recognises a file by its path, so a file that was taken costs the planner no stat. Arrival is the modification
time. The limits, the order and the hidden files are Spark's own; `maxFileAge`, which loses late files without a word,
is off unless it is declared.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.amounts import known
from sluice.checkpoint.manifest import read_manifest
from sluice.checkpoint.offsets import logged_offset
from sluice.checkpoint.source_log import LogAddition, LogEntry, SourceLog
from sluice.datasets import Dataset, dataset_at
from sluice.errors import DeclarationError, Problem, RefusedError
from sluice.interval import Interval
from sluice.locations import join, spark_location
from sluice.sources.contract import (
    SOURCE_TAG,
    Available,
    Bound,
    FolderTypedSource,
    LoggingSource,
    Position,
    Slice,
    Starting,
    Step,
    offset_of_another_kind,
)
from sluice.sources.files.batch_limits import BatchLimits, is_pattern, log_offset
from sluice.sources.files.changed_files import find_changed, find_renamed
from sluice.sources.files.feeding import FedFiles
from sluice.sources.files.folder_types import Load, found_types, load_as_begun, unread_folder
from sluice.sources.files.inputs import Inputs, find_left_out
from sluice.sources.files.listing import (
    ListedFile,
    Listing,
    SeenNames,
    Selection,
    file_name,
    file_uri,
    fixed_part,
    glob_pattern,
    is_glob,
    is_listed,
    list_files,
)
from sluice.sources.files.observed_reading import ObservedReading, passing_over
from sluice.sources.files.refusals import (
    check_no_table,
    folder_is_no_column,
    hidden_by_age,
    input_before_start,
    input_changed,
    input_read_before,
    path_changed,
    read_and_lost,
)
from sluice.sources.files.taken_files import TakenFiles, file_location
from sluice.sources.parquet_columns import parquet_columns
from sluice.spark_options import check_settings
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from sluice.times import epoch_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TEXT = "value string"
"""What a file of text has."""
_FOR_EVER = "36500d"
_GLOB_CHARACTER = re.compile(r"[*?\[\]{}\\]")


@dataclass(frozen=True)
class FilesSource(LoggingSource, FolderTypedSource, FedFiles):
    """Declared by `sources.files`."""

    kind: ClassVar[str] = "files"
    unit: ClassVar[str] = "files"

    path: str
    format: str
    schema: str | None
    starting: Starting
    max_files_per_batch: int | None
    max_bytes_per_batch: int | None
    max_file_age_ms: int | None
    latest_first: bool
    file_name_only: bool
    recursive_file_lookup: bool
    path_glob_filter: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    within: str | None = None
    """The project's folder, which a glob below it may not leave through a link."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """By column that is the names of folders, the type that a stream began with; see `with_folders`."""
    settings: Mapping[str, str] = field(default_factory=lambda: passing_over({}), compare=False, repr=False)
    """What the stream's settings say where an option does not; see `passing_over`."""

    @property
    def needs_jars(self) -> bool:
        return self.format == "avro"

    @property
    def location(self) -> str:
        return self.path

    def datasets(self, end: Any) -> tuple[Dataset, ...]:
        return (dataset_at(self.reads_below),)

    @property
    def reading(self) -> tuple[object, ...]:
        listed = self._place, self.recursive_file_lookup, self.path_glob_filter
        return *listed, self.format, self.schema, *sorted(self.options.items())

    def check_settings(self, conf: Mapping[str, str], *, place: str) -> None:
        check_settings(self.format, self.options, conf, schema=self.schema, place=place)

    @property
    def reads_below(self) -> str:
        return fixed_part(self.path)

    def reads_from(self, place: str) -> bool:
        return is_listed(self.path, place, recursive=self.recursive_file_lookup)

    @property
    def _limits(self) -> BatchLimits:
        return BatchLimits(self.max_files_per_batch, self.max_bytes_per_batch, self.file_name_only)

    @property
    def ignores_missing(self) -> bool:
        return self._as_read["ignoreMissingFiles"] == "true"

    @property
    def _as_read(self) -> dict[str, str]:
        """The options that Spark's reader is given."""
        return {**self.settings, **self.options}

    def under(self, conf: Mapping[str, str]) -> FilesSource:
        return replace(self, settings=passing_over(conf))

    def resolved(self, around: Surroundings) -> FilesSource:
        path = around.path(self.path, place=f"sources.files({self.path!r})")
        # An absolute path, or a variable that holds one, says openly where it leads.
        is_relative = self.path[0] not in "/$" and path.startswith(join(around.root, ""))
        return replace(
            self, path=_normal(path) if path.startswith("/") else path, within=around.root if is_relative else None
        )

    def available(self, position: Position, bound: Bound, *, storage: Storage, now: datetime) -> Available:
        log = position.log.taken
        self._check_origin(log)
        kept = position.kept_start(self._declared_start, self._place)
        started_at = self._start(now) if kept is None else kept
        if self.format == "parquet" and not log.entries:
            check_no_table(self.path, storage)
        listing = self._listing(log, storage)
        problems = listing.problems
        from_ms = started_at.get("from_ms", -math.inf)
        until_ms = -(-epoch_micros(bound.until) // 1000) if bound.until is not None else math.inf
        waiting = [file for file in listing.files if from_ms <= file.mtime_ms < until_ms]
        taken = TakenFiles(position.log, storage)
        # Before those that are too old are hidden: touched, as is said of these, they would be read again.
        renamed = find_renamed(waiting, taken)
        changed, hidden_before = find_changed(taken, renamed, self._yet_to_read(position)), self._age_horizon(log)
        problems += [*renamed.problems, *changed.problems]
        waiting = [file for file in renamed.kept if file.mtime_ms >= hidden_before]
        if hidden := len(renamed.kept) - len(waiting):
            problems.append(hidden_by_age(self.path, hidden, hidden_before))
        problems += self._unread_folder([*waiting[:1], *log.entries[-1:]])
        is_set_aside = any(file.mtime_ms >= hidden_before for file in renamed.set_aside)
        is_set_aside |= any(entry.timestamp_ms < hidden_before <= stamp[0] for entry, stamp in changed.places)
        steps = list(self._orphans(position, storage))
        first_id = log.latest_id + 1
        # Spark reads names as patterns, unless it takes the files of partitions or of every folder below.
        are_patterns = not (listing.has_partitions or self.recursive_file_lookup)
        # By path, then by time: sorting twice by one field costs half of sorting by both.
        for field_name in ("path", "mtime_ms"):
            waiting.sort(key=attrgetter(field_name), reverse=self.latest_first)
        steps += self._limits.steps(waiting, first_id, are_patterns=are_patterns)
        return Available(
            steps=steps,
            started_at=started_at,
            problems=tuple(problems),
            oldest_ms=min((file.mtime_ms for file in waiting), default=None),
            undrainable=self._undrainable(waiting, started_at, is_set_aside=is_set_aside, are_patterns=are_patterns),
            later=known(files=sum(file.mtime_ms >= until_ms for file in listing.files)),
            set_aside=known(files=len(renamed.set_aside)),
        )

    def _yet_to_read(self, position: Position) -> frozenset[str]:
        """The files of a batch that is planned, or begun, and was not read: whatever is there by then is read."""
        log, read_to = position.log.taken, self._log_offset((position.pending or position).offset)
        entries = log.taken(read_to + 1, log.latest_id) if log.latest_id > read_to else ()
        return frozenset(entry.path for entry in entries)

    def _orphans(self, position: Position, storage: Storage) -> Iterator[Step]:
        """A crash between the source's log and the offset log leaves entries that Spark counts as taken: adopt them.

        Raises:
            RefusedError: A file of theirs is gone, or another one; nobody can plan without it, for it counts as taken.
        """
        log, read_to = position.log.taken, self._log_offset(position.offset)
        if log.latest_id > read_to:
            entries = log.taken(read_to + 1, log.latest_id)
            if (problem := next(self._inputs(position, storage).problems(entries), None)) is not None:
                raise RefusedError(problem)
            added = LogAddition(entries, is_there=True)
            yield Step(log_offset(log.latest_id), known(files=len(entries)), added)

    def _undrainable(
        self,
        waiting: Sequence[ListedFile],
        started_at: Mapping[str, Any],
        *,
        is_set_aside: bool,
        are_patterns: bool,
    ) -> str | None:
        if "from_ms" in started_at:
            return "Spark takes every file, whatever `starting` says"
        if is_set_aside:
            return "Spark would read a file again that has another name or time (`FILE_RENAMED`, `FILE_CHANGED`)"
        pattern = next((file.path for file in waiting if are_patterns and is_pattern(file.path)), None)
        if pattern is not None and self.max_files_per_batch != 1:
            return f"Spark takes the name {pattern} for a pattern, and would read other files twice; rename it"
        if any(file.mtime_ms < 0 for file in waiting):
            return "Spark never reads files that were modified before 1970; touch them"
        return None

    def blind_obstacle(self, position: Position) -> str | None:
        kept = position.kept_start(self._declared_start, self._place)
        is_bounded = self.starting != "earliest" if kept is None else "from_ms" in kept
        return "Spark takes every file, whatever `starting` says" if is_bounded else None

    def read_twice(self, taken: Sequence[LogEntry]) -> str | None:
        base = file_uri(self.reads_below)
        if len(taken) < 2 or self.recursive_file_lookup:
            return None
        paths = (entry.path for entry in taken if "=" not in entry.path.removeprefix(base).rpartition("/")[0])
        return next(filter(is_pattern, paths), None)

    def check_inputs(
        self, position: Position, end: str, *, storage: Storage, is_read: bool = True
    ) -> tuple[Problem, ...]:
        inputs = self._inputs(position, storage)
        planned = inputs.taken.log.taken(self._log_offset(position.offset) + 1, self._log_offset(end))
        if not is_read:
            # Spark takes files that are gone for empty; what was read twice before is there twice.
            again = inputs.read_before(planned)
            return tuple(input_read_before(path, old, is_in_sink=True) for path, old in again.items())
        return (*inputs.problems(planned), *self._before_start(planned, position, inputs))

    @staticmethod
    def _before_start(planned: Iterable[LogEntry], position: Position, inputs: Inputs) -> Iterator[Problem]:
        """What Spark has planned itself that is from before `starting`; an empty file in its place does no harm."""
        from_ms = position.started_at.get("from_ms", -math.inf)
        older = [entry for entry in planned if entry.timestamp_ms < from_ms]
        taken = [entry.path for entry in older if (there := inputs.taken.there(entry)) is not None and there.size_bytes]
        if taken:
            yield input_before_start(taken[0], len(taken))

    def read_otherwise(self, position: Position, end: str, storage: Storage) -> tuple[Problem, ...]:
        taken = self._inputs(position, storage).taken
        changed = [
            entry
            for entry in taken.log.taken(self._log_offset(position.offset) + 1, self._log_offset(end))
            if (there := taken.there(entry)) is not None and taken.has_gone(entry, there)
        ]
        return (input_changed(changed[0].path, taken.time(changed[0]), len(changed)),) if changed else ()

    def read_again(self, entries: Sequence[LogEntry], position: Position, storage: Storage) -> dict[str, str]:
        return self._inputs(position, storage).read_before(entries)

    def _inputs(self, position: Position, storage: Storage) -> Inputs:
        taken = TakenFiles(position.log, storage)
        return Inputs(taken, lambda: self._listing(taken.log, storage).files, self.read_twice, self.path_glob_filter)

    def slice(self, position: Position, arrivals: Interval | None, *, storage: Storage) -> FilesSlice:
        log = position.log.taken
        self._check_origin(log)
        entries = list(log.taken(0, self._log_offset(position.offset)))
        if "from_ms" in position.started_at:
            before_ms = position.started_at["from_ms"]
            found = self._listing(log, storage).files
            entries += [LogEntry(file.path, file.mtime_ms, 0) for file in found if file.mtime_ms < before_ms]
        if arrivals is not None:
            start_ms, end_ms = epoch_micros(arrivals.start) // 1000, -(-epoch_micros(arrivals.end) // 1000)
            entries = [entry for entry in entries if start_ms <= entry.timestamp_ms < end_ms]
        inputs = self._inputs(position, storage)
        entries = inputs.really_read(entries)
        if (lost := inputs.lost(entries)) is not None:
            raise RefusedError(read_and_lost(lost[0].path, lost[1]))
        stats = [stat for entry in entries if (stat := inputs.taken.there(entry)) is not None]
        return FilesSlice(
            end=log_offset(0) if entries else None,
            amount=known(files=len(entries), bytes=sum(stat.size_bytes for stat in stats)),
            added=LogAddition(tuple(LogEntry(entry.path, entry.timestamp_ms, 0) for entry in entries)),
            times_ms=tuple(stat.mtime_ms for stat in stats),
        )

    def columns(self, newest: str | None, *, storage: Storage) -> str | Mapping[str, str] | None:
        if self.format != "parquet":
            # Nothing but the declaration says what is in the others.
            return self.schema if self.schema is not None else _TEXT
        return parquet_columns(newest, self.path, storage=storage) if newest is not None else None

    def read_batch(self, spark: SparkSession, *, name: str, taken: Slice) -> DataFrame:
        if not taken.added:
            return spark.createDataFrame([], self._reading(self.folders).columns)
        paths = [_literal(entry.path) for entry in taken.added.entries]
        return self._as_begun(spark, name, paths, lambda folders: self._load_batch(spark, name, paths, folders))

    def _load_batch(
        self, spark: SparkSession, name: str, paths: Sequence[str], folders: Mapping[str, str]
    ) -> DataFrame:
        reader = spark.read.format(self.format).options(**self._as_read)
        if self.schema is not None or folders:
            reader = reader.schema(self._reading(folders).columns)
        if self.recursive_file_lookup:
            reader = reader.option("recursiveFileLookup", value=True)
        elif not is_glob(self.path):
            # Else columns that are folders would be null.
            reader = reader.option("basePath", spark_location(self.path))
        return self._reading(folders).load(reader, spark, name, paths)

    def check_one_batch(self, taken: Slice) -> None:
        pattern = next((entry.path for entry in taken.added.entries if is_pattern(entry.path)), None)
        if pattern is not None and not self.recursive_file_lookup:
            raise DeclarationError(
                "Spark's stream takes this file's name for a pattern, and would read other files twice",
                where=pattern,
                remedy="rename the file for good, or write the transform with operators that Spark runs as a batch",
            )
        name_glob = self.path_glob_filter
        left_out = find_left_out(taken.added.entries, name_glob) if name_glob is not None else None
        if left_out is not None:
            raise DeclarationError(
                f"the stream has read this file, and `path_glob_filter` is {name_glob!r} now: Spark's"
                " stream would pass over it",
                where=left_out.path,
                remedy="declare `path_glob_filter` so that it takes the file, for the backfill",
            )

    def read_stream(self, spark: SparkSession, *, name: str, started_at: Mapping[str, Any]) -> DataFrame:
        paths = [spark_location(self.path)]
        return self._as_begun(spark, name, paths, lambda folders: self._load_stream(spark, name, folders))

    def _load_stream(self, spark: SparkSession, name: str, folders: Mapping[str, str]) -> DataFrame:
        reader = spark.readStream.format(self.format).option(SOURCE_TAG, name)
        if self.schema is not None or folders:
            reader = reader.schema(self._reading(folders).columns)
        age = f"{self.max_file_age_ms}ms" if self.max_file_age_ms is not None else _FOR_EVER
        reader = reader.option("maxFileAge", age).options(**self._as_read)
        for option, value in (
            ("maxFilesPerTrigger", self.max_files_per_batch),
            ("maxBytesPerTrigger", self.max_bytes_per_batch),
            ("latestFirst", self.latest_first or None),
            ("fileNameOnly", self.file_name_only or None),
            ("recursiveFileLookup", self.recursive_file_lookup or None),
            ("pathGlobFilter", self.path_glob_filter),
        ):
            if value is not None:
                reader = reader.option(option, value)
        return self._reading(folders).load(reader, spark, name, spark_location(self.path))

    def with_folders(self, types: Mapping[str, str]) -> FilesSource:
        return replace(self, folders=types)

    def folder_types(self, frame: DataFrame) -> Mapping[str, str]:
        # What is declared by now takes the place of what was found.
        declared = {name: kind for name, kind in frame.dtypes if name in self.folders}
        return found_types(frame, self.schema or _TEXT) | declared

    def _as_begun(self, spark: SparkSession, name: str, paths: Sequence[str], load: Load) -> DataFrame:
        def files() -> list[str]:
            return self._load_batch(spark, name, paths, {}).inputFiles()

        return load_as_begun(load, files, self.folders, self.schema or _TEXT, self.path)

    def _reading(self, folders: Mapping[str, str]) -> ObservedReading:
        return ObservedReading(self.format, self.schema or _TEXT, self._as_read, folders)

    def _check_origin(self, log: SourceLog) -> None:
        """Refuse a log that belongs to another path: Spark would silently read everything again."""
        if not log.entries:
            return
        # A glob may be widened; what it stands below is what a project that was moved changes.
        base, newest = file_uri(self.reads_below), log.entries[-1].path
        if newest == base or newest.startswith(base.rstrip("/") + "/"):
            return
        raise RefusedError(path_changed(self.path, newest))

    def _unread_folder(self, files: Iterable[ListedFile | LogEntry]) -> Iterator[Problem]:
        """A folder that names a column, and is none to Spark; nobody can tell that it is not meant so."""
        has_pattern = is_glob(self.path)
        base = self.options.get("basePath") if has_pattern else self.path
        base = None if self.recursive_file_lookup else base
        places = (file_location(file.path) for file in files)
        found = (unread_folder(place, base, self.folders, self.schema or _TEXT) for place in places)
        if (folder := next(filter(None, found), None)) is not None:
            remedy = "declare the folder above it as the path"
            remedy = "declare `base_path`, the folder above it" if has_pattern else remedy
            remedy = "take `recursive_file_lookup` out" if self.recursive_file_lookup else remedy
            yield folder_is_no_column(self.path, folder, remedy)

    def _log_offset(self, offset: str | None) -> int:
        """The log id of an offset; -1 for none."""
        if offset is None:
            return -1
        log_id = logged_offset(offset)
        if log_id is None:
            raise RefusedError(offset_of_another_kind(offset, "file source's", self.path))
        return log_id

    def _start(self, now: datetime) -> dict[str, Any]:
        if self.starting == "earliest":
            return {}
        start = now if self.starting == "latest" else self.starting
        return {"from_ms": epoch_micros(start) // 1000, "declared": self._declared_start}

    @property
    def _declared_start(self) -> str:
        """What a start is resolved from."""
        return f"{self.starting}, {self._place}"

    @property
    def _place(self) -> str:
        """The path; a project may be moved."""
        return self.path.removeprefix(self.within or "")

    def _listing(self, log: SourceLog, storage: Storage) -> Listing:
        seen: Container[str] = log.paths
        if self.file_name_only:
            seen = SeenNames(log.paths)
        pattern = glob_pattern(self.path_glob_filter) if self.path_glob_filter else None
        manifest = None if is_glob(self.path) else read_manifest(self.path, storage=storage)
        if manifest is not None:
            wanted = [
                m for m in manifest if m.path not in seen and (not pattern or pattern.fullmatch(file_name(m.path)))
            ]
            return Listing([ListedFile(file.path, file.mtime_ms, file.size_bytes) for file in wanted])
        base = self.options.get("basePath") if is_glob(self.path) else None
        selection = Selection(seen, self.recursive_file_lookup, pattern, base, self.within)
        return list_files(self.path, selection, storage=storage)

    def _age_horizon(self, log: SourceLog) -> float:
        # Spark measures the age from the newest file that it has taken, and not at all when the newest come first.
        ignores_age = self.latest_first and (self.max_files_per_batch or self.max_bytes_per_batch)
        if self.max_file_age_ms is None or ignores_age or not log.entries:
            return -math.inf
        return max(entry.timestamp_ms for entry in log.entries) - self.max_file_age_ms


@dataclass(frozen=True)
class FilesSlice(Slice):
    """Some of the files, as they look now: one that is mended in its place is read as it is then."""

    times_ms: tuple[int, ...] = ()
    """When each was modified, in the order of `added`."""


def _literal(uri: str) -> str:
    """A file of the log as Spark's batch reader takes exactly that one: it takes every path for a pattern."""
    return _GLOB_CHARACTER.sub(r"\\\g<0>", file_location(uri))


def _normal(path: str) -> str:
    """A local path as Hadoop has it, in which `//`, `.` and `..` do not occur."""
    return "/" + posixpath.normpath(path).lstrip("/")
