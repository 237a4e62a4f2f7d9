"""Files by URL: list, read with a size cap, put if absent, replace atomically.

A location is an absolute local path (`/data/home`) or a URL (`s3://bucket/home`). Nothing above this module assumes
a local path. Local files are written to a temporary name, fsynced, then linked or renamed, and their folder is
fsynced; other schemes go through obstore, whose stores put an object atomically.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import posixpath
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import msgspec

from sluice.errors import SluiceError, StorageError, TooLargeError
from sluice.foreign_code import described, is_failure

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""Who may read local files and folders that are made here: their owner, whatever the umask would allow."""
DEFAULT_MAX_BYTES = 64 * 1024 * 1024
"""The largest file that is read unless the caller allows more."""
_MOST_COPIED = 2**40
"""The largest file that is copied from or to an object store; a snapshot of state may be large."""

_PIECE_BYTES = 1024 * 1024

_LOCK_PATIENCE_SECONDS = 2.0
_LOCK_POLL_SECONDS = 0.01

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


_REMEDY = "check that it exists, its permissions and free space"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAMES = re.compile(r"\s+0: .*\n\s+1: ")
"""Where a backtrace of Rust's begins."""
_MOST_WORDS = 500
_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https", "file", "memory")
"""Of URLs that obstore knows."""
_CLIENT_OPTIONS = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
"""What obstore wants to be told of its HTTP client apart from the store; delta-rs takes both together."""


class FileStat(msgspec.Struct, frozen=True, gc=False):
    """Size and time of one file. A msgspec struct: planning makes one per new file."""

    size_bytes: int
    mtime_ms: int
    """Last modification, in milliseconds since the epoch, cut as Java cuts it."""


class Folder(Protocol):
    """One listed folder. Names are listed at once; a stat is paid only for the names that are asked for."""

    @property
    def files(self) -> list[str]:
        """Names of the files."""

    @property
    def folders(self) -> list[str]:
        """Names of the folders."""

    def stat(self, name: str) -> FileStat | None:
        """Size and time of a listed file; None when it is gone by now."""


class Storage:
    """Reads and writes files by location.

    Args:
        options: obstore's configuration for object stores and their client, such as `{"endpoint": ...}`; credentials
            come from the environment when they are not given.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.options = dict(options or {})
        self._stores: dict[str, ObjectStore] = {}

    def list_folder(self, location: str) -> Folder | None:
        """List the direct children of a folder; None when there is no such folder.

        Raises:
            StorageError: The folder exists but can't be listed.
        """
        if is_local(location):
            return _list_local(local_path(location))
        return self._list_objects(location)

    def read(self, location: str, *, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes | None:
        """The whole content of a file; None when there is none.

        Raises:
            StorageError: The file can't be read, or is larger than `max_bytes`.
        """
        if is_local(location):
            return _read_local(local_path(location), max_bytes)
        store, key = self._object(location)
        try:
            with library_call("could not read it", location):
                found = store.get(key)
                if found.meta["size"] > max_bytes:
                    raise _too_large(location, found.meta["size"], max_bytes)
                return bytes(found.bytes())
        except FileNotFoundError:
            return None

    def stat(self, location: str) -> FileStat | None:
        """Size and time of a file; None when there is none.

        Args:
            location: A location, or a file's URI as Spark's logs spell it (percent-encoded).

        Raises:
            StorageError: The file can't be looked at.
        """
        if is_local(location):
            try:
                return _file_stat(os.stat(local_path(location)))
            except (FileNotFoundError, NotADirectoryError):
                return None
            except (OSError, ValueError) as exc:
                raise _failed("look at", location, exc) from exc
        store, key = self._object(location)
        try:
            with library_call("could not look at it", location):
                meta = store.head(key)
        except FileNotFoundError:
            return self.stat(unquote(location)) if unquote(location) != location else None
        return FileStat(meta["size"], int(meta["last_modified"].timestamp() * 1000))

    def put_if_absent(self, location: str, content: bytes) -> bool:
        """Create a file with this content, durably; False when it exists already, which is then left alone.

        Raises:
            StorageError: Nothing was created, and the file does not exist.
        """
        if is_local(location):
            return _write_local(local_path(location), content, overwrite=False)
        store, key = self._object(location)
        from obstore.exceptions import AlreadyExistsError

        try:
            with library_call("could not create it", location, passing=AlreadyExistsError):
                store.put(key, content, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def replace(self, location: str, content: bytes) -> None:
        """Give a file this content, durably and atomically: a reader sees the old or the new content, never a mix.

        Raises:
            StorageError: The file is as it was.
        """
        if is_local(location):
            _write_local(local_path(location), content, overwrite=True)
            return
        store, key = self._object(location)
        with library_call("could not write it", location, passing=()):
            store.put(key, content)

    def make_durable(self, location: str) -> None:
        """Let the files of a folder, written by somebody else, survive a loss of power; an object store's do anyway.

        Raises:
            StorageError: They can't be read.
        """
        if is_local(location):
            _fsync_files(local_path(location))

    def replace_aid(self, location: str, content: bytes) -> None:
        """Give a file this content atomically, and not durably: for what is made anew when a power loss takes it.

        Raises:
            StorageError: The file is as it was.
        """
        if is_local(location):
            _write_local(local_path(location), content, overwrite=True, is_durable=False)
        else:
            self.replace(location, content)

    def replace_if(self, location: str, content: bytes, may_replace: Callable[[bytes | None], bool]) -> bool:
        """Give a file this content, as `replace` does, if what it has now may go; says whether it did.

        Nobody else's `replace_if` comes in between: an object is put on the condition that it is still the one that
        was looked at, a local folder is locked. Where neither is to be had, the two are only as near as can be.

        Args:
            location: The file.
            content: What it is to have.
            may_replace: Gets what it has now, None when there is no file; may be asked again.

        Raises:
            StorageError: The file is as it was.
        """
        if is_local(location):
            with _locked(os.path.dirname(local_path(location))):
                if not may_replace(self.read(location)):
                    return False
                self.replace(location, content)
                return True
        return self._replace_object_if(location, content, may_replace)

    def delete(self, location: str) -> None:
        """Delete one file; a file that is not there is fine.

        Raises:
            StorageError: The file is still there.
        """
        if is_local(location):
            _delete_local(location, os.unlink)
            return
        store, key = self._object(location)
        with contextlib.suppress(FileNotFoundError), library_call("could not delete it", location):
            store.delete(key)

    def delete_folder(self, location: str) -> None:
        """Delete a folder and all that is in it; one that is not there is fine.

        Raises:
            StorageError: Something is still there.
        """
        if is_local(location):
            _delete_local(location, shutil.rmtree)
            return
        listed = self.list_folder(location)
        for name in listed.files if listed is not None else ():
            self.delete(join(location, name))
        for name in listed.folders if listed is not None else ():
            self.delete_folder(join(location, name))

    def copy_folder(self, location: str, target: str) -> None:
        """Copy a folder and all that is in it, not durably; one that is not there is fine.

        Raises:
            StorageError: Something could not be read or written.
        """
        if is_local(location) and is_local(target):
            if os.path.isdir(local_path(location)):
                try:
                    shutil.copytree(local_path(location), local_path(target), dirs_exist_ok=True)
                except (OSError, shutil.Error) as exc:
                    raise _failed("copy", location, exc) from exc
            return
        listed = self.list_folder(location)
        for name in listed.files if listed is not None else ():
            content = self.read(join(location, name), max_bytes=_MOST_COPIED)
            if content is not None:
                self.replace(join(target, name), content)
        for name in listed.folders if listed is not None else ():
            self.copy_folder(join(location, name), join(target, name))

    def _object(self, location: str) -> tuple[ObjectStore, str]:
        # Not parsed as a URL: a key may hold `#`, `?` and `%3A` as they are, and Hadoop takes them so, too.
        scheme, _, rest = location.partition("://")
        bucket, _, key = rest.partition("/")
        root = f"{scheme}://{bucket}"
        if root not in self._stores:
            from obstore.store import from_url

            if scheme.lower() not in _SCHEMES:
                raise StorageError(
                    f"`{scheme.partition(':')[0]}:` can be read by Spark only",
                    where=location,
                    remedy=f"without Spark, these can: {', '.join(f'{known}://' for known in _SCHEMES)}",
                )
            client = {key: value for key, value in self.options.items() if key in _CLIENT_OPTIONS}
            ours = {key: value for key, value in self.options.items() if key not in _CLIENT_OPTIONS}
            with library_call("could not open it", location, passing=()):
                self._stores[root] = from_url(root, client_options=client or None, **ours)  # type: ignore[call-overload]
        return self._stores[root], key.strip("/")

    def _replace_object_if(self, location: str, content: bytes, may_replace: Callable[[bytes | None], bool]) -> bool:
        store, key = self._object(location)
        from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

        while True:
            found: bytes | None = None
            mode: Any = "create"
            try:
                got = store.get(key)
                mode = {name: got.meta[name] for name in ("e_tag", "version") if got.meta.get(name) is not None}
                found = bytes(got.bytes())
            except FileNotFoundError:
                pass
            except Exception as exc:
                raise _failed("read", location, exc) from exc
            if not may_replace(found):
                return False
            try:
                store.put(key, content, mode=mode)
            except (AlreadyExistsError, PreconditionError):
                # Somebody else was faster: look again.
                continue
            except (NotImplementedError, NotSupportedError):
                self.replace(location, content)
            except Exception as exc:
                raise _failed("write", location, exc) from exc
            return True

    def _list_objects(self, location: str) -> Folder | None:
        store, key = self._object(location)
        with library_call("could not list it", location, passing=()):
            found = store.list_with_delimiter(key or None)
        stats = {
            posixpath.basename(meta["path"]): FileStat(meta["size"], int(meta["last_modified"].timestamp() * 1000))
            for meta in found["objects"]
        }
        folders = [posixpath.basename(prefix.rstrip("/")) for prefix in found["common_prefixes"]]
        return _ObjectFolder(stats, folders) if stats or folders else None


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
            return _file_stat(os.stat(path))
        except OSError as exc:
            if exc.errno in _LEADS_NOWHERE:
                return None
            raise _failed("look at", path, exc) from exc


@dataclass(frozen=True)
class _ObjectFolder:
    """A prefix of an object store; its listing brought the stats along."""

    stats: dict[str, FileStat]
    folders: list[str] = field(default_factory=list)

    @cached_property
    def files(self) -> list[str]:
        return list(self.stats)

    def stat(self, name: str) -> FileStat | None:
        return self.stats.get(name)


def is_local(location: str) -> bool:
    """Whether a location is on a local (or mounted) file system."""
    scheme = _SCHEME.match(location)
    return scheme is None or scheme[1] == "file"


def local_path(location: str) -> str:
    """The path of a local location, without its `file:` scheme."""
    if not location.startswith("file:"):
        return location
    path = location.removeprefix("file:")
    return unquote("/" + path[2:].partition("/")[2] if path.startswith("//") else path)


def is_within(path: str, folder: str) -> bool:
    """Whether a local path lies in a local folder (or is it), links followed."""
    real_folder = os.path.realpath(folder)
    return os.path.commonpath([os.path.realpath(path), real_folder]) == real_folder


def real_location(location: str) -> str:
    """A location with links followed, where it is local: the same for every name of a file or folder."""
    return os.path.realpath(local_path(location)) if is_local(location) else location


def same_for_every_name(location: str) -> object:
    """What is equal for all names of one file or folder, and for those of one that is yet to be made.

    Links are followed. It costs one call of the system, and a few where there is nothing yet: see `real_location` for a
    name to show.
    """
    if not is_local(location):
        return location.rstrip("/")
    path, rest = os.path.normpath(local_path(location)), ""
    while True:
        try:
            found = os.stat(path)
        except OSError:
            above, name = os.path.split(path)
            if above == path:
                return location
            path, rest = above, f"{name}/{rest}"
        else:
            return found.st_dev, found.st_ino, rest


def join(location: str, *parts: str) -> str:
    """A location below another one."""
    return "/".join((location.rstrip("/"), *parts))


def spark_location(location: str) -> str:
    """A location as Spark's Hadoop file systems name it (`s3` is `s3a` there)."""
    return "s3a" + location[2:] if location.startswith("s3://") else location


def _list_local(path: str) -> _LocalFolder | None:
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
        raise _failed("list", path, exc) from exc
    return _LocalFolder(path, files, folders)


def _read_local(path: str, max_bytes: int) -> bytes | None:
    try:
        with open(path, "rb") as file:
            # By its size: a buffer as large as the limit would be asked for at once.
            content = file.read(min(max_bytes, os.fstat(file.fileno()).st_size) + 1)
            while len(content) <= max_bytes and (grown := file.read(min(_PIECE_BYTES, max_bytes + 1 - len(content)))):
                content += grown
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:
        raise _failed("read", path, exc) from exc
    if len(content) > max_bytes:
        raise _too_large(path, os.stat(path).st_size, max_bytes)
    return content


def _write_local(path: str, content: bytes, *, overwrite: bool, is_durable: bool = True) -> bool:
    folder, name = os.path.split(path)
    # A dot-file: Spark, and our own readers, ignore those in every folder that we write to.
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        _make_folders(folder)
    except (OSError, ValueError) as exc:
        raise _failed("make the folder of", path, exc) from exc
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
        raise _failed("write", path, exc) from exc
    return True


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """While this lasts, nobody else has this folder locked; as far as its file system has locks.

    Whoever was stopped with the lock in hand is not waited for: what it is about to write, it has looked at.
    """
    try:
        _make_folders(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ValueError) as exc:
        raise _failed("make", folder, exc) from exc
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
        raise _failed("make", path, exc) from exc


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


def _fsync_files(folder: str) -> None:
    try:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as written:
                    os.fsync(written.fileno())
        _fsync_folder(folder)
        _fsync_folder(os.path.dirname(folder) or ".")
    except (OSError, ValueError) as exc:
        raise _failed("make durable", folder, exc) from exc


def _fsync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file_stat(found: os.stat_result) -> FileStat:
    return FileStat(found.st_size, found.st_mtime_ns // 1_000_000)


def _delete_local(location: str, delete: Callable[[str], None]) -> None:
    """Delete what a local path names, if it is there."""
    try:
        delete(local_path(location))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as exc:
        raise _failed("delete", location, exc) from exc


@contextlib.contextmanager
def library_call(
    fails: str,
    location: str,
    *,
    passing: type[Exception] | tuple[type[Exception], ...] = FileNotFoundError,
    remedy: str = _REMEDY,
) -> Iterator[None]:
    """While obstore or delta-rs is called: whatever goes wrong in there becomes our error, also a panic of Rust's.

    Args:
        fails: What is wrong then, such as "could not read it"; the library's words follow.
        location: What it is about.
        passing: What the caller wants to see as it is.
        remedy: What to do about it.

    Raises:
        StorageError: It did not work.
    """
    try:
        yield
    except SluiceError:
        raise
    except BaseException as exc:
        if isinstance(exc, passing) or not is_failure(exc):
            raise
        raise StorageError(f"{fails}: {_library_words(exc)}", where=location, remedy=remedy) from exc


def _library_words(exc: BaseException) -> str:
    """What a library says, in one line: colours, a dump of what it holds, or a backtrace may be in its words."""
    words = _COLOUR.sub("", described(exc)).replace("\u21b3", "")
    for end in ("\n\nDebug source:", "\n\nstack backtrace", "\nBacktrace:"):
        words = words.partition(end)[0]
    words = _FRAMES.split(words)[0]
    return " ".join(words.split())[:_MOST_WORDS]


def _failed(verb: str, location: str, exc: Exception) -> StorageError:
    if isinstance(exc, StorageError):
        return exc
    reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else _library_words(exc)
    return StorageError(f"could not {verb} it: {reason}", where=location, remedy=_REMEDY)


def _too_large(location: str, size: int, max_bytes: int) -> TooLargeError:
    return TooLargeError(
        f"the file has {size:,} bytes, more than the {max_bytes:,} that are read",
        where=location,
        remedy="such files are far smaller; look at what it is before anything is done with it",
        size_bytes=size,
    )
