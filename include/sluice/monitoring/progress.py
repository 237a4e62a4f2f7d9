"""How far a stream has come, read so cheaply that a thousand streams can be watched all the time.

Asked again while nothing happened, a stream on a local disk costs three `stat` calls; a file is read only after a
commit. On object stores, whose prefixes have no time, the commits are listed each time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import read_commit_file, read_offset_file
from sluice.checkpoint.places import commits_folder, metadata_file, offset_file
from sluice.checkpoint.reader import CheckpointState
from sluice.checkpoint.state_store import has_state
from sluice.errors import StorageError
from sluice.home import StreamHome
from sluice.locations import is_local
from sluice.planning.next_watermark import is_no_data_due, next_watermark_ms, usable
from sluice.sinks.contract import OutputMode
from sluice.storage import Storage
from sluice.typed_json import decode_as
from sluice.watermarks import Watermarks

_QUIET_SECONDS = 3.0
"""A folder's time may stand still over two commits (file systems count in steps of up to 2 s): the folder is listed
again, although its time is the same, until it was listed once this long after that time was first seen."""
_ATTEMPTS = 3
_METADATA_MAX_BYTES = 1024 * 1024


class _Metadata(msgspec.Struct):
    id: str


@dataclass(frozen=True)
class Progress:
    """What the live generation has committed."""

    generation: int
    query_id: str | None = None
    """Tells this checkpoint from another one that counts its batches anew; None before the first batch."""
    batch_id: int | None = None
    """The newest committed batch; None before there is one."""
    watermark_ms: int | None = None
    """How far the committed batches have taken the watermark, in milliseconds since the epoch; None before there is
    one."""
    due_from_ms: int | None = None
    """Rows that the watermark has made due from here on are yet to be committed, as by a batch without data that has
    not run; None where none are, or where rows do not wait for the watermark."""

    def has_passed(self, moment_ms: float) -> bool:
        """Whether the watermark has reached a moment, and the rows that were due by then are committed."""
        if self.watermark_ms is None or self.watermark_ms < moment_ms:
            return False
        return self.due_from_ms is None or self.due_from_ms >= moment_ms


def read_progress(home: StreamHome, output_mode: OutputMode = "append") -> Progress:
    """Look at a stream; a home that does not exist is a stream that has not begun.

    Args:
        home: The stream's.
        output_mode: That of its query: whether rows wait for the watermark depends on it.

    Raises:
        RefusedError: A file is damaged, or was written by a newer Sluice or Spark.
        StorageError: A file can't be read.
    """
    number = home.current_generation()
    checkpoint = home.checkpoint_location(number)
    # A commit may vanish between the listing and the reading, when somebody starts over: then look again.
    for _ in range(_ATTEMPTS):
        commits = list_log(commits_folder(checkpoint), storage=home.storage)
        if commits is None or not commits.ids:
            return Progress(number)
        batch_id = commits.ids[-1]
        committed = read_commit_file(commits.file(batch_id), batch_id, storage=home.storage)
        if committed is not None:
            query_id = _read_query_id(checkpoint, home.storage)
            planned = read_offset_file(offset_file(checkpoint, batch_id), batch_id, storage=home.storage)
            state = CheckpointState(checkpoint, query_id, planned=planned, committed=committed)
            known = _measured(home, number, state)
            watermark_ms = committed.next_watermark_ms if known is None else next_watermark_ms(state, known)
            due_from_ms = _due_from_ms(state, known, output_mode, home.storage)
            return Progress(number, query_id, batch_id, watermark_ms or None, due_from_ms)
    raise StorageError(
        "commits are listed, but can't be read", where=commits_folder(checkpoint), remedy="check its permissions"
    )


class ProgressReader:
    """Reads one stream's progress again and again."""

    def __init__(self, home: StreamHome, output_mode: OutputMode = "append") -> None:
        self._home = home
        self._output_mode = output_mode
        self._progress: Progress | None = None
        self._times: tuple[int | None, ...] | None = None
        self._seen_at = 0.0
        self._is_quiet = False

    def read(self) -> Progress:
        """The progress as it is now.

        Raises:
            RefusedError: A file is damaged, or was written by a newer Sluice or Spark.
            StorageError: A file can't be read.
        """
        # The times are taken first: a commit that comes while the folder is read changes them once more.
        times, now = self._folder_times(), time.monotonic()
        is_same = times is not None and times == self._times
        if self._progress is not None and is_same and self._is_quiet:
            return self._progress
        self._progress = read_progress(self._home, self._output_mode)
        if not is_same:
            self._seen_at = now
        self._is_quiet = is_same and now - self._seen_at >= _QUIET_SECONDS
        self._times = times
        return self._progress

    def _folder_times(self) -> tuple[int | None, ...] | None:
        """When the folders changed last; None where folders have no time."""
        number = 1 if self._progress is None else self._progress.generation
        commits = commits_folder(self._home.checkpoint_location(number))
        if not is_local(self._home.location) or not is_local(commits):
            return None
        watched = (self._home.current_file(), self._home.watermarks_file(number), commits)
        stats = [self._home.storage.stat(file) for file in watched]
        return tuple(None if stat is None else stat.mtime_ms for stat in stats)


def _measured(home: StreamHome, number: int, state: CheckpointState) -> Watermarks | None:
    """What was measured: Spark's log is of other rows where it has read a batch again as another one."""
    known = usable(home.watermarks(number), state)
    batch_id = state.committed_id
    if known is None or batch_id is None or known.measured >= batch_id:
        return known
    published = known.times_of(batch_id)
    return known if published is None else known.after_published(published)


def _due_from_ms(
    state: CheckpointState, known: Watermarks | None, output_mode: OutputMode, storage: Storage
) -> int | None:
    """The watermark that the newest committed batch ran with, where a later one makes state due."""
    is_due = is_no_data_due(state, known, output_mode, has_state=True) and has_state(state.location, storage=storage)
    return state.planned.watermark_ms if is_due and state.planned is not None else None


def _read_query_id(checkpoint: str, storage: Storage) -> str | None:
    content = storage.read(metadata_file(checkpoint), max_bytes=_METADATA_MAX_BYTES)
    try:
        return None if content is None else decode_as(content, _Metadata).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Planning refuses such a checkpoint, with a remedy; how far it came is known nevertheless.
        return None
