"""Files by URL: list, read with a size cap, put if absent, replace atomically.

A location is an absolute local path (`/data/home`) or a URL (`s3://bucket/home`). Nothing above this module assumes
a local path. Local files are written to a temporary name, fsynced, then linked or renamed, and their folder is
fsynced; other schemes go through obstore, whose stores put an object atomically.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast
from urllib.parse import unquote

from sluice.errors import StorageError

if TYPE_CHECKING:
    from obstore import ReadableFile
    from obstore.store import ObjectStore
from sluice.local_disk import (
    FileStat,
    delete_local,
    file_stat,
    fsync_files,
    list_local,
    locked,
    read_local,
    write_local,
)
from sluice.locations import is_local, join, local_path
from sluice.storage_failures import failed, library_call, too_large
from sluice.storage_options import CLIENT_OPTIONS

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
"""The largest file that is read unless the caller allows more."""
_MOST_COPIED = 2**40
"""The largest file that is copied from or to an object store; a snapshot of state may be large."""
_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https", "file", "memory")
"""Of URLs that obstore knows."""


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
            return list_local(local_path(location))
        return self._list_objects(location)

    def read(self, location: str, *, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes | None:
        """The whole content of a file; None when there is none.

        Raises:
            StorageError: The file can't be read, or is larger than `max_bytes`.
        """
        if is_local(location):
            return read_local(local_path(location), max_bytes)
        store, key = self._object(location)
        try:
            with library_call("could not read it", location):
                found = store.get(key)
                if found.meta["size"] > max_bytes:
                    raise too_large(location, found.meta["size"], max_bytes)
                return bytes(found.bytes())
        except FileNotFoundError:
            return None

    def open_file(self, location: str) -> BinaryIO:
        """Open a file to read pieces of it: of an object, no more is fetched than what is asked for.

        Raises:
            FileNotFoundError: There is none.
            StorageError: The file can't be opened.
        """
        if is_local(location):
            try:
                return open(local_path(location), "rb")
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as exc:
                raise failed("open", location, exc) from exc
        store, key = self._object(location)
        from obstore import open_reader

        with library_call("could not open it", location):
            return cast("BinaryIO", _ObjectFile(open_reader(store, key)))

    def stat(self, location: str) -> FileStat | None:
        """Size and time of a file; None when there is none.

        Args:
            location: A location, or a file's URI as Spark's logs spell it (percent-encoded).

        Raises:
            StorageError: The file can't be looked at.
        """
        if is_local(location):
            try:
                return file_stat(os.stat(local_path(location)))
            except (FileNotFoundError, NotADirectoryError):
                return None
            except (OSError, ValueError) as exc:
                raise failed("look at", location, exc) from exc
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
            return write_local(local_path(location), content, overwrite=False)
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
            write_local(local_path(location), content, overwrite=True)
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
            fsync_files(local_path(location))

    def replace_aid(self, location: str, content: bytes) -> None:
        """Give a file this content atomically, and not durably: for what is made anew when a power loss takes it.

        Raises:
            StorageError: The file is as it was.
        """
        if is_local(location):
            write_local(local_path(location), content, overwrite=True, is_durable=False)
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
            with locked(os.path.dirname(local_path(location))):
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
            delete_local(location, os.unlink)
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
            delete_local(location, shutil.rmtree)
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
                    raise failed("copy", location, exc) from exc
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
            client = {key: value for key, value in self.options.items() if key in CLIENT_OPTIONS}
            ours = {key: value for key, value in self.options.items() if key not in CLIENT_OPTIONS}
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
                raise failed("read", location, exc) from exc
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
                raise failed("write", location, exc) from exc
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


class _ObjectFile(io.RawIOBase):
    """An object as a file of Python's; obstore's own lacks what pyarrow asks a file for."""

    def __init__(self, reader: ReadableFile) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.readall() if size < 0 else self._reader.read(size))


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
