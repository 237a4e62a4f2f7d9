"""What pages are made from, as it is on disk. What can't be read is said in place of what it would have told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import CommitFile, OffsetFile, read_commit_file, read_offset_file
from sluice.checkpoint.places import commit_file, commits_folder, offset_file, offsets_folder
from sluice.errors import SluiceError
from sluice.home import Checked, Generation, StreamHome
from sluice.runs.lease import LeaseFile, is_dead, newest_lease
from sluice.runs.record import RunRecord, RunRecords, new_run_id
from sluice.runs.stop import StopRequest, stop_request
from sluice.runs.summary import RUN_ID

_KEY_SUFFIX_LENGTH = 9


@dataclass(frozen=True)
class RunFile:
    """One run: its record, or why that can't be read."""

    run_id: str
    record: RunRecord | None = None
    error: str | None = None


@dataclass(frozen=True)
class LoggedBatch:
    """One batch as the checkpoint's two logs know it."""

    batch_id: int
    planned: OffsetFile | None
    committed: CommitFile | None
    error: str | None = None


@dataclass(frozen=True)
class LeaseOwner:
    """Who wrote the newest lease of a generation, and what is known of its owner."""

    lease: LeaseFile
    state: Literal["taken", "expired", "dead", "free"]


def read_runs(home: StreamHome, count: int) -> list[RunFile]:
    """The newest runs, newest first.

    Raises:
        StorageError: The folder can't be listed.
    """
    run_ids = [run_id for run_id in RunRecords(home).run_ids() if RUN_ID.fullmatch(run_id)]
    return [found for run_id in run_ids[:count] if (found := read_run(home, run_id)) is not None]


def read_run(home: StreamHome, run_id: str) -> RunFile | None:
    """One run; None when there is none."""
    if not RUN_ID.fullmatch(run_id):
        return None
    try:
        record = RunRecords(home).read(run_id)
    except SluiceError as exc:
        return RunFile(run_id, error=str(exc))
    return None if record is None else RunFile(run_id, record)


def find_runs(home: StreamHome, run_keys: Iterable[str]) -> Iterator[RunFile]:
    """The runs that bear one of these keys, however old, newest first.

    Raises:
        StorageError: The folder can't be listed.
    """
    wanted = set(run_keys)
    endings = {new_run_id(datetime.fromtimestamp(0, UTC), key)[-_KEY_SUFFIX_LENGTH:] for key in wanted}
    for run_id in RunRecords(home).run_ids():
        if run_id[-_KEY_SUFFIX_LENGTH:] in endings:
            found = read_run(home, run_id)
            if found is not None and found.record is not None and found.record.run_key in wanted:
                yield found


def read_batches(home: StreamHome, generation: int, count: int) -> list[LoggedBatch]:
    """The newest batches of a generation's checkpoint, newest first.

    Raises:
        StorageError: The checkpoint can't be read.
    """
    location = home.checkpoint_location(generation)
    logs = [list_log(folder(location), storage=home.storage) for folder in (offsets_folder, commits_folder)]
    newest = max((log.latest for log in logs if log is not None and log.latest is not None), default=-1)
    return [_logged_batch(home, location, batch_id) for batch_id in range(newest, max(-1, newest - count), -1)]


def _logged_batch(home: StreamHome, location: str, batch_id: int) -> LoggedBatch:
    planned, committed, error = None, None, None
    try:
        planned = read_offset_file(offset_file(location, batch_id), batch_id, storage=home.storage)
        committed = read_commit_file(commit_file(location, batch_id), batch_id, storage=home.storage)
    except SluiceError as exc:
        error = str(exc)
    return LoggedBatch(batch_id, planned, committed, error)


def read_generations(home: StreamHome) -> tuple[list[Generation], list[str]]:
    """What is known of every generation, newest first, and what is wrong with the files that tell of others.

    Raises:
        StorageError: The folder can't be listed.
    """
    found, errors = [], []
    for number in reversed(home.generation_numbers()):
        try:
            generation = home.generation(number)
        except SluiceError as exc:
            errors.append(str(exc))
        else:
            found += [generation] if generation is not None else []
    return found, errors


def read_lease(home: StreamHome, folder: str, now: datetime) -> LeaseOwner | None:
    """Who has taken the newest lease of a folder, or had it last; None when nobody ever did.

    Args:
        home: Where the folder is.
        folder: `home.lease_folder(...)` for a generation, `home.interval_lease_folder(...)` for a backfill's interval.
        now: The time.

    Raises:
        RefusedError: The file is damaged.
        StorageError: It can't be read.
    """
    lease = newest_lease(home.storage, folder)
    if lease is None:
        return None
    if lease.is_given_up:
        return LeaseOwner(lease, "free")
    if is_dead(lease):
        return LeaseOwner(lease, "dead")
    return LeaseOwner(lease, "taken" if lease.expires_at > now else "expired")


def read_skip(home: StreamHome) -> Checked | None:
    """The last skip; None when there was none, or when its file is damaged: a plan says that in its own words."""
    try:
        return home.checked()
    except SluiceError:
        return None


def read_stop(home: StreamHome, run_id: str) -> StopRequest | None:
    """The request to end a run; None when there is none, or it can't be read."""
    try:
        return stop_request(home, run_id)
    except SluiceError:
        return None
