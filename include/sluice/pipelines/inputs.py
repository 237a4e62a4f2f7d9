"""What a Python reads while it runs the files of a pipeline: as long as that is the same, they define the same.

Noticed are files that it opens, folders that it lists (as every import does), and variables of the environment that it
asks for. What it learns of a network, a database or another process can't be compared: it is said that it asked.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Mapping
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

import msgspec

SET_BY_US = ("PYTHONPATH", "SPARK_CONNECT_MODE_ENABLED")
"""Variables that a Python is given which runs the files of a pipeline."""
_OUTSIDE = (
    "socket.connect",
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.system",
    "os.posix_spawn",
    "sqlite3.connect",
)
_MOST_BYTES = 16 * 1024 * 1024
"""Of a file that is compared: more takes longer than to run the pipeline's files."""
_IGNORED = ("/proc/", "/sys/", "/dev/")


class Inputs(msgspec.Struct, frozen=True):
    """What was read; None for what was not there, or can't be read."""

    files: dict[str, str | None] = {}
    """Digests of contents, by path."""
    folders: dict[str, str | None] = {}
    """Digests of the names in them, by path."""
    variables: tuple[str, ...] = ()
    values: str = ""
    """A digest of the variables' values, all in one: of a short secret alone, one could be guessed."""
    is_all: bool = True
    """Whether nothing else was asked."""

    def is_same(self) -> bool:
        """Whether all of it is as it was, and it was all."""
        return (
            self.is_all
            and all(_file_digest(path) == known for path, known in self.files.items())
            and all(_names_digest(path) == known for path, known in self.folders.items())
            and _values_digest(self.variables, os.environ) == self.values
        )


class Witness:
    """Notices what this process reads, from the time on that it is made; it can't be taken away."""

    def __init__(self) -> None:
        self._files: dict[str, str | None] = {}
        # What is installed is in one folder whose names have the versions; in others, a module may be added.
        places = {*_installed(), *(path for path in sys.path if not path.startswith(_python_folders()))}
        self._folders: dict[str, str | None] = {path: _names_digest(path) for path in sorted(places)}
        self._environment = dict(os.environ)
        self._variables: set[str] = set()
        self._is_all = True
        self._looking = threading.local()
        sys.addaudithook(self._notice)
        ask = type(os.environ).__getitem__

        def noticed(environment: Any, name: Any) -> Any:
            self._variables.add(os.fsdecode(name))
            return ask(environment, name)

        type(os.environ).__getitem__ = noticed  # type: ignore[method-assign]

    def inputs(self) -> Inputs:
        """What was read so far."""
        variables = tuple(sorted(self._variables.difference(SET_BY_US)))
        values = _values_digest(variables, self._environment)
        return Inputs(self._files, self._folders, variables, values, self._is_all)

    def _notice(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _OUTSIDE:
            self._is_all = False
        if event not in {"open", "os.listdir", "os.scandir"} or getattr(self._looking, "now", False):
            return
        path = "." if arguments[0] is None else arguments[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        self._looking.now = True
        try:
            whole = os.path.abspath(os.fsdecode(path))
            if whole.endswith(".pyc"):
                # What Python runs in its place, as long as it is the older one.
                whole = source_from_cache(whole)
            if whole.startswith((*_python_folders(), *_IGNORED)):
                return
            if event != "open":
                self._folders.setdefault(whole, _names_digest(whole))
            elif not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                self.note_file(whole)
        finally:
            self._looking.now = False

    def note_file(self, path: str) -> None:
        """A file is read, as it is now."""
        if path not in self._files:
            self._files[path] = _file_digest(path)
            self._is_all &= not _is_large(path)


def _is_large(path: str) -> bool:
    try:
        return os.stat(path).st_size > _MOST_BYTES
    except OSError:
        return False


def _file_digest(path: str) -> str | None:
    if not os.path.isfile(path) or _is_large(path):
        return None
    try:
        with Path(path).open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return None


def _names_digest(path: str) -> str | None:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return None
    # Python's own come with the first import.
    return hashlib.sha256("\0".join(name for name in names if name != "__pycache__").encode()).hexdigest()


def _values_digest(variables: Iterable[str], environment: Mapping[str, str]) -> str:
    text = repr([(name, environment.get(name)) for name in variables])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _installed() -> list[str]:
    return sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def _python_folders() -> tuple[str, ...]:
    """Where Python and what is installed are, which have versions."""
    places = {*_installed(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return tuple(f"{place}/" for place in [*places, f"{sys.base_prefix}/lib"])
