"""What a Python reads while it runs the files of a pipeline: as long as that is the same, they define the same.

Noticed are files that it opens, folders that it lists (as every import does), and variables of the environment that it
asks for. What it learns of a network, a database or another process can't be compared: it is said that it asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Mapping
from importlib.util import source_from_cache
from pathlib import Path
from types import FrameType
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
    packages: dict[str, str | None] = {}
    """The same of what can be imported from a folder, where imports alone have looked."""
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
            and all(_modules_digest(path) == known for path, known in self.packages.items())
            and _values_digest(self.variables, os.environ) == self.values
        )


class Witness:
    """Notices what this process reads, from the time on that it is made; it can't be taken away."""

    def __init__(self) -> None:
        self._files: dict[str, str | None] = {}
        # What is installed is in one folder, whose names have the versions; in others, a module may be added.
        self._folders = {path: _names_digest(path) for path in _installed()}
        self._packages = {path: _modules_digest(path) for path in sys.path if not path.startswith(_python_folders())}
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
        asked = sorted(self._variables.difference(SET_BY_US))
        variables = tuple(filter(_is_text, asked))
        values = _values_digest(variables, self._environment)
        is_all = self._is_all and len(variables) == len(asked)
        return Inputs(self._files, self._folders, self._packages, variables, values, is_all)

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
                # Which stands for the text of the module, as long as that is no newer.
                with contextlib.suppress(ValueError):
                    whole = source_from_cache(whole)
            if whole.startswith((*_python_folders(), *_IGNORED)):
                return
            if not _is_text(whole):
                self._is_all = False
                return
            if event != "open" and _is_import(inspect.currentframe()):
                self._packages.setdefault(whole, _modules_digest(whole))
            elif event != "open":
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


def _is_text(name: str) -> bool:
    """Whether a document can hold it: names of files and variables are bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


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


def _modules_digest(path: str) -> str | None:
    """Of the names of modules and packages: data, and what runs leave, are none."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if _can_be_imported(entry)]
    except OSError:
        return None
    return hashlib.sha256("\0".join(sorted(names)).encode()).hexdigest()


def _can_be_imported(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith((".py", ".so")) or os.path.isfile(os.path.join(entry.path, "__init__.py"))


def _is_import(hook: FrameType | None) -> bool:
    """Whether Python's import system does what a hook of audits is told of."""
    caller = hook.f_back if hook is not None else None
    return caller is not None and caller.f_code.co_filename.startswith("<frozen importlib")


def _values_digest(variables: Iterable[str], environment: Mapping[str, str]) -> str:
    text = repr([(name, environment.get(name)) for name in variables])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _installed() -> list[str]:
    return sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def _python_folders() -> tuple[str, ...]:
    """Where Python and what is installed are, which have versions."""
    places = {*_installed(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return tuple(f"{place}/" for place in [*places, f"{sys.base_prefix}/lib"])
