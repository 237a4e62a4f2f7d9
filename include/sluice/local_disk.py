"""Files on a local disk: written to a temporary name, fsynced, then linked or renamed, and their folder fsynced."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from sluice.locations import local_path
from sluice.storage_failures import failed, too_large

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""Who may read local files and folders that are made here: their owner, whatever the umask would allow."""
_PIECE_BYTES = 1024 * 1024
_LOCK_PATIENCE_SECONDS = 2.0
_LOCK_POLL_SECONDS = 0.01


class FileStat(msgspec.Struct, frozen=True, gc=False):
    """Size and time of one file. A msgspec struct: planning makes one per new file."""

    size_bytes: int
    mtime_ms: int
    """Last modification, in milliseconds since the epoch, cut as Java cuts it."""
    changed_ns: int | None = None
    """When the file or a name of it was changed last; None where the storage does not tell."""


_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""The file is gone, or is a link to nothing, through a file, or in a circle."""


@dataclass(frozen=True)
class _LocalFolder:
    """A local folder as one `os.scandir` pass saw it."""

    path: str
    files: list[str]
    folders: list[str]

    def stat(self, name: str) -> FileStat | None:
        path = f"{self.path}/{name}"
        try:
            # Not by the scanned entry, which would keep what it found: half of the time of a large folder.
            return file_stat(os.stat(path))
        except OSError as exc:
            if exc.errno in _LEADS_NOWHERE:
                return None
            raise failed("look at", path, exc) from exc


def list_local(path: str) -> _LocalFolder | None:
    """What a folder has; None when there is none.

    Raises:
        StorageError: It can't be done.
    """
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(path) as listing:
            for entry in listing:
                try:
                    is_folder = entry.is_dir()
                except OSError as exc:
                    if exc.errno not in _LEADS_NOWHERE:
                        raise
                    is_folder = False
                (folders if is_folder else files).append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:
        raise failed("list", path, exc) from exc
    return _LocalFolder(path, files, folders)


def read_local(path: str, max_bytes: int) -> bytes | None:
    """A file's content; None when there is none.

    Raises:
        StorageError: It can't be read, or is larger than what may be read.
    """
    try:
        with open(path, "rb") as file:
            # By its size: a buffer as large as the limit would be asked for at once.
            content = file.read(min(max_bytes, os.fstat(file.fileno()).st_size) + 1)
            while len(content) <= max_bytes and (grown := file.read(min(_PIECE_BYTES, max_bytes + 1 - len(content)))):
                content += grown
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:
        raise failed("read", path, exc) from exc
    if len(content) > max_bytes:
        raise too_large(path, os.stat(path).st_size, max_bytes)
    return content


def write_local(path: str, content: bytes, *, overwrite: bool, is_durable: bool = True) -> bool:
    """Write a file so that it is there whole or not at all; gives whether it was written.

    Raises:
        StorageError: It can't be done.
    """
    folder, name = os.path.split(path)
    # A dot-file: Spark, and our own readers, ignore those in every folder that we write to.
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        _make_folders(folder)
    except (OSError, ValueError) as exc:
        raise failed("make the folder of", path, exc) from exc
    try:
        try:
            with open(temporary, "xb", opener=open_private) as file:
                file.write(content)
                if is_durable:
                    file.flush()
                    os.fsync(file.fileno())
            if overwrite:
                os.rename(temporary, path)
            else:
                os.link(temporary, path)
        finally:
            if os.path.lexists(temporary):
                os.unlink(temporary)
        if is_durable:
            _fsync_folder(folder)
    except FileExistsError:
        return False
    except (OSError, ValueError) as exc:
        raise failed("write", path, exc) from exc
    return True


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """While this lasts, nobody else has this folder locked; as far as its file system has locks.

    Whoever was stopped with the lock in hand is not waited for: what it is about to write, it has looked at.
    """
    try:
        _make_folders(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ValueError) as exc:
        raise failed("make", folder, exc) from exc
    try:
        deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)


def open_private(path: str, flags: int) -> int:
    """An opener for `open`: a file that is made is its owner's only."""
    return os.open(path, flags, PRIVATE_FILE)


def make_folder(path: str) -> None:
    """Create a local folder that is its owner's only, and what is missing above it; one that is there is left as it is.

    Raises:
        StorageError: It can't be made.
    """
    try:
        _make_folders(path)
    except (OSError, ValueError) as exc:
        raise failed("make", path, exc) from exc


def _make_folders(folder: str) -> None:
    """Create a folder and what is missing above it, durably: a file is not safe in a folder that may vanish."""
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        try:
            os.mkdir(path, PRIVATE_FOLDER)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        _fsync_folder(os.path.dirname(path) or ".")


def fsync_files(folder: str) -> None:
    """Make every file of a folder durable, and the folder.

    Raises:
        StorageError: It can't be done.
    """
    try:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as written:
                    os.fsync(written.fileno())
        _fsync_folder(folder)
        _fsync_folder(os.path.dirname(folder) or ".")
    except (OSError, ValueError) as exc:
        raise failed("make durable", folder, exc) from exc


def _fsync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_stat(found: os.stat_result) -> FileStat:
    """What a stat of the system says of a file."""
    return FileStat(found.st_size, found.st_mtime_ns // 1_000_000, found.st_ctime_ns)


def delete_local(location: str, delete: Callable[[str], None]) -> None:
    """Delete what a local path names, if it is there."""
    try:
        delete(local_path(location))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as exc:
        raise failed("delete", location, exc) from exc
