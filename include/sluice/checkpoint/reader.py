"""Reads a whole checkpoint, of any Spark from 3.5 to 4.2, whoever made it. Never writes.

What is wrong is collected, not raised, so that `inspect` shows all of it; planning refuses on the first problem that
blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from sluice.checkpoint.log import MOST_BYTES, LogFolder, list_log
from sluice.checkpoint.offsets import CommitFile, OffsetFile, logged_offset, read_commit_file, read_offset_file
from sluice.checkpoint.places import (
    commit_file,
    commits_folder,
    metadata_file,
    offset_file,
    offsets_folder,
    source_log,
    sources_folder,
    state_folder,
)
from sluice.checkpoint.source_log import (
    SourceLog,
    log_file_name,
    read_source_entries,
    read_source_log,
    read_start,
)
from sluice.checkpoint.state_store import Operator, read_state_layout
from sluice.errors import Problem, RefusedError
from sluice.locations import join
from sluice.storage import Storage
from sluice.typed_json import decode_as

_METADATA_MAX_BYTES = 1024 * 1024
_SINCE_SPARK_4_0 = "spark.sql.streaming.stateStore.encodingFormat"
"""A pinned setting that tells the checkpoints of Spark 4 from those of Spark 3.5."""

T = TypeVar("T")


class _Metadata(msgspec.Struct):
    id: str


@dataclass(frozen=True)
class CheckpointState:
    """What the files of one checkpoint say."""

    location: str
    query_id: str | None = None
    planned: OffsetFile | None = None
    """The newest planned batch."""
    previous: OffsetFile | None = None
    """The batch planned before it."""
    committed: CommitFile | None = None
    """The newest committed batch."""
    source_logs: Mapping[str, SourceLog] = field(default_factory=dict)
    """The logs of file sources, and where others begin that log that, by folder name; other kinds are left out."""
    operators: tuple[Operator, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether nothing was planned yet."""
        return self.planned is None

    @property
    def is_pending(self) -> bool:
        """Whether the newest planned batch is not committed: Spark runs it again as logged."""
        return self.planned is not None and self.planned_id != self.committed_id

    @property
    def planned_id(self) -> int | None:
        """The newest planned batch's id."""
        return None if self.planned is None else self.planned.batch_id

    @property
    def committed_id(self) -> int | None:
        """The newest committed batch's id."""
        return None if self.committed is None else self.committed.batch_id

    @property
    def watermark_ms(self) -> int:
        """The newest committed watermark, in milliseconds since the epoch; 0 for none."""
        return self.committed.next_watermark_ms if self.committed else 0

    @property
    def next_watermark_ms(self) -> int:
        """The watermark of the next batch: never below the one that a batch ran with."""
        return max(self.watermark_ms, self.planned.watermark_ms if self.planned else 0)

    @property
    def blocking(self) -> Problem | None:
        """The first problem that does not allow going on."""
        return next((problem for problem in self.problems if problem.is_blocking), None)


def read_checkpoint(
    location: str, *, storage: Storage, log_keys: Mapping[str, str] | None = None, known_id: str | None = None
) -> CheckpointState:
    """Read the checkpoint under `location`; a folder that does not exist is a new checkpoint.

    Args:
        location: The root folder, as given to Spark as `checkpointLocation`.
        storage: Where to read.
        log_keys: Which folder below `sources/` belongs to which line of an offset file, where that is known.
        known_id: The query id that it should bear, where that is known.

    Raises:
        StorageError: A folder or file can't be read.
    """
    problems: list[Problem] = []
    offsets = list_log(offsets_folder(location), storage=storage)
    commits = list_log(commits_folder(location), storage=storage)
    planned_ids = offsets.ids if offsets else ()
    committed_ids = commits.ids if commits else ()
    needs_id = bool(planned_ids or committed_ids)
    query_id = _read_query_id(location, problems, storage, is_needed=needs_id, known_id=known_id)
    planned = _newest(offsets, read_offset_file, problems, storage)
    committed = _newest(commits, read_commit_file, problems, storage)
    previous = None
    if planned_ids and planned_ids[-1] > 0 and offsets is not None:
        previous = _read_previous(offsets, problems, storage)
    problems += _check_order(location, planned_ids, committed_ids)
    problems += [problem for log in (offsets, commits) if log for problem in _check_sidecars(log)]
    source_logs = _read_source_logs(location, problems, storage)
    damaged = {problem.file.rpartition("/")[0] for problem in problems}
    problems += _check_logged_offsets(location, planned, source_logs, log_keys, damaged, storage=storage)
    state = read_state_layout(
        state_folder(location),
        None if not committed_ids else committed_ids[-1] + 1,
        storage=storage,
        has_metadata=planned is None or _SINCE_SPARK_4_0 in planned.conf,
    )
    return CheckpointState(
        location=location,
        query_id=query_id,
        planned=planned,
        previous=previous,
        committed=committed,
        source_logs=source_logs,
        operators=state.operators,
        problems=(*problems, *state.problems),
    )


def restored_id(query_id: str | None) -> str:
    """How to write the file with the query id anew: its checksum would not fit any more."""
    who = "the sink's log knows the id; " if query_id is None else ""
    content = f'{{"id":"{query_id or "<query id>"}"}}'
    return f"restore it as {content} ({who}delete `.metadata.crc` beside it, if it is there)"


def _read_query_id(
    location: str, problems: list[Problem], storage: Storage, *, is_needed: bool, known_id: str | None
) -> str | None:
    file = metadata_file(location)
    content = storage.read(file, max_bytes=_METADATA_MAX_BYTES)
    if content is None:
        if is_needed:
            problems.append(
                Problem(
                    code="METADATA_MISSING",
                    file=file,
                    cause="the checkpoint has batches, but its `metadata` file with the query id is gone",
                    consequence="Spark 4.2 refuses to start; an earlier Spark makes a new id, and sinks double rows",
                    remedy=restored_id(known_id),
                )
            )
        return None
    try:
        return decode_as(content, _Metadata).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        problems.append(
            Problem(
                code="METADATA_DAMAGED",
                file=file,
                cause=f"the query id does not parse: {exc}",
                consequence="Spark fails at the next start with an error of its JSON parser",
                remedy=restored_id(known_id),
            )
        )
        return None


def _newest(
    log: LogFolder | None, read: Callable[..., T | None], problems: list[Problem], storage: Storage
) -> T | None:
    if log is None or not log.ids:
        return None
    try:
        return read(log.file(log.ids[-1]), log.ids[-1], storage=storage)
    except RefusedError as refused:
        problems.append(refused.finding)
        return None


def _read_previous(offsets: LogFolder, problems: list[Problem], storage: Storage) -> OffsetFile | None:
    previous_id = offsets.ids[-1] - 1
    file = offsets.file(previous_id)
    try:
        previous = read_offset_file(file, previous_id, storage=storage)
    except RefusedError as refused:
        problems.append(refused.finding)
        return None
    if previous is None:
        problems.append(
            Problem(
                code="OFFSETS_GAP",
                file=file,
                cause=f"batch {previous_id} is missing in front of the newest planned batch {offsets.ids[-1]}",
                consequence=f"Spark fails at the next start: batch {previous_id} doesn't exist",
                remedy=f"restore offsets/{previous_id} from a backup; deleting the newest file would lose rows",
            )
        )
    return previous


def _check_order(location: str, planned: tuple[int, ...], committed: tuple[int, ...]) -> list[Problem]:
    newest_planned = planned[-1] if planned else -1
    newest_committed = committed[-1] if committed else -1
    if newest_committed > newest_planned:
        return [
            Problem(
                code="COMMIT_WITHOUT_OFFSETS",
                file=offset_file(location, newest_committed),
                cause=f"batch {newest_committed} is committed, but its offsets are gone",
                consequence="Spark runs an older batch again, then fails with CONCURRENT_STREAM_LOG_UPDATE",
                remedy=f"restore offsets/{newest_committed} from a backup, or declare a new stream with a sink of its"
                " own",
            )
        ]
    if newest_committed < newest_planned - 1:
        lost = f"{newest_committed + 1} to {newest_planned - 1}"
        return [
            Problem(
                code="COMMITS_MISSING",
                file=commit_file(location, newest_planned - 1),
                cause=f"batch {newest_planned} is planned, but batches {lost} are not committed",
                consequence=f"Spark runs batch {newest_planned} only; the rows of batches {lost} may be lost",
                remedy="restore the commits from a backup if the sink has those batches, or declare a new"
                " stream with a sink of its own",
            )
        ]
    return []


def _check_sidecars(log: LogFolder) -> list[Problem]:
    newest = log.latest if log.latest is not None else -1
    return [
        Problem(
            code="SIDECAR_WITHOUT_FILE",
            file=join(log.location, name),
            cause=f"a checksum file is there for {log_id}, which is not",
            consequence="Spark's next write of that id fails, blaming a concurrent query that does not exist",
            remedy=f"if the file of {log_id} was deleted by hand, restore it; else delete the checksum file",
        )
        for log_id, name in sorted(log.sidecars.items())
        if log_id > newest
    ]


def _read_source_logs(location: str, problems: list[Problem], storage: Storage) -> dict[str, SourceLog]:
    root = storage.list_folder(sources_folder(location))
    logs: dict[str, SourceLog] = {}
    for name in sorted(root.folders) if root else []:
        folder = list_log(source_log(location, name), storage=storage)
        if folder is None:
            continue
        content = _only_file(folder, storage)
        start = None if content is None else read_start(content)
        if start is not None:
            logs[name] = SourceLog(start=start)
        if start is not None or not _is_file_log(folder, content):
            continue
        problems += _check_sidecars(folder)
        try:
            logs[name] = read_source_log(folder, storage=storage)
        except RefusedError as refused:
            problems.append(refused.finding)
    return logs


def _only_file(folder: LogFolder, storage: Storage) -> bytes | None:
    """What the file `0` of a log says that has no other; None where it has others."""
    if folder.compact_ids or folder.ids != (0,):
        return None
    return storage.read(folder.file(0), max_bytes=MOST_BYTES) or b""


def _is_file_log(folder: LogFolder, content: bytes | None) -> bool:
    """Other kinds keep one file, `0`, of another shape: a start time (rate), or something after a NUL."""
    if content is None:
        return folder.latest is not None
    lines = content.split(b"\n", 2)
    return content[:1] != b"\0" and (len(lines) < 2 or not lines[1].strip().isdigit())


def _check_logged_offsets(
    location: str,
    planned: OffsetFile | None,
    logs: Mapping[str, SourceLog],
    log_keys: Mapping[str, str] | None,
    damaged: set[str],
    *,
    storage: Storage,
) -> list[Problem]:
    problems = []
    for line, offset in (planned.offsets if planned else {}).items():
        log_offset = logged_offset(offset)
        key = line if log_keys is None else log_keys.get(line, line)
        folder = source_log(location, key)
        if log_offset is None or log_offset < 0 or folder in damaged:
            continue
        # A source that is used twice has two lines and one log: without `log_keys`, a line may have no log.
        is_known = key in logs or log_keys is not None or len(planned.offsets if planned else ()) == 1
        latest = logs[key].latest_id if key in logs else -1
        if key in logs and log_offset < latest in logs[key].compact_ids:
            problems += _check_repeated(join(folder, str(log_offset)), storage)
        if is_known and latest < log_offset:
            compact_ids = logs[key].compact_ids if key in logs else ()
            problems.append(
                Problem(
                    code="SOURCE_LOG_BEHIND",
                    file=join(folder, log_file_name(log_offset, compact_ids)),
                    cause=f"the newest planned batch reads up to entry {log_offset} of the file source's log,"
                    f" which ends at {latest}",
                    consequence=f"Spark fails at the next start: batch {log_offset} doesn't exist",
                    remedy="restore the file from a backup, or declare a new stream with a sink of its own",
                )
            )
    return problems


def _check_repeated(file: str, storage: Storage) -> list[Problem]:
    """Check the entry that the newest batch ends at: Spark reads it again though a compaction repeats it."""
    try:
        if storage.stat(file) is not None:
            read_source_entries(file, storage=storage)
    except RefusedError as refused:
        return [refused.finding]
    return []
