"""A project's own Python code: imported anew once it has changed, and packed for Pythons on other machines."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import io
import os
import sys
import threading
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from sluice.errors import DeclarationError
from sluice.foreign_code import error_line, foreign_code

_ENVIRONMENT_MARK = "pyvenv.cfg"
"""What lies in every virtual environment: code of others, which is installed and not sent."""
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)

_Version = tuple[int, int, int]
"""Of a file: its time, size and number on the disk."""


@dataclass
class _Imported:
    """What this process has imported from the project that it imported from last."""

    roots: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """Those of the roots that Python did not look in before."""
    others: frozenset[str] = frozenset()
    """The modules that were there before: no concern of the project."""
    versions: dict[str, _Version] = field(default_factory=dict)
    """Its modules, with the version of each one's file."""


_lock = threading.RLock()
_imported = _Imported()


@dataclass(frozen=True)
class ProjectCode:
    """Every Python file below the import roots of a project, as it was at one time."""

    files: tuple[tuple[str, bytes], ...]
    """By name below its root, sorted; of two that are called alike, the one of the first root."""
    version: str = field(init=False)
    """Differs as soon as a file does."""

    def __post_init__(self) -> None:
        digest = hashlib.sha256()
        for name, content in self.files:
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        object.__setattr__(self, "version", digest.hexdigest()[:16])

    def archive(self) -> bytes:
        """A zip file that Python imports from; equal code makes equal bytes."""
        packed = io.BytesIO()
        # Python finds packages without an `__init__.py` only if their folders have entries of their own.
        folders = {f"{folder}/" for name, _ in self.files for folder in _folders_above(name)}
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted([*dict.fromkeys(folders, b"").items(), *self.files]):
                archive.writestr(zipfile.ZipInfo(name, _FIXED_TIME), content, zipfile.ZIP_DEFLATED)
        return packed.getvalue()


def read_code(import_roots: Sequence[str], data_folders: Collection[str]) -> ProjectCode:
    """Read every Python file that can be imported from the roots.

    Args:
        import_roots: Folders that modules are imported from, the first one first.
        data_folders: Folders that hold data and no code, however many files are there.
    """
    avoided = {os.path.realpath(folder) for folder in data_folders}
    found: dict[str, bytes] = {}
    for root in import_roots:
        for file in _python_files(root, avoided):
            name = os.path.relpath(file, root).replace(os.sep, "/")
            if name not in found:
                found[name] = Path(file).read_bytes()
    return ProjectCode(tuple(sorted(found.items())))


def import_module(name: str, import_roots: Sequence[str]) -> ModuleType:
    """Import a module from the roots; see `importing_from`.

    Raises:
        Exception: Whatever the module raises.
    """
    with importing_from(import_roots):
        return importlib.import_module(name)


def load_named(reference: str, import_roots: Sequence[str], *, what: str = "function") -> Any:
    """Import what `module:name` names from the roots, as it is now.

    Args:
        reference: `module:name`.
        import_roots: See `importing_from`.
        what: What it is to be: a `function`, which is whatever can be called, or a `class`.

    Raises:
        DeclarationError: The module does not import, or has no such thing.
    """
    module_name, _, name = reference.partition(":")

    def place(exc: BaseException) -> str | None:
        is_missing = isinstance(exc, ModuleNotFoundError) and f"{module_name}.".startswith(f"{exc.name}.")
        return f"import roots {', '.join(import_roots)}" if is_missing else error_line(exc)

    remedy = "correct the module, or `path` in sluice.toml"
    with foreign_code(f"`{module_name}` does not import", where=place, remedy=remedy):
        module = import_module(module_name, import_roots)
        found = getattr(module, name, None)
    if _is_a(what, found):
        return found
    names = [known for known, value in vars(module).items() if _is_a(what, value) and not known.startswith("_")]
    near = difflib.get_close_matches(name, names, n=1)
    raise DeclarationError(
        f"`{module_name}` has no {what} `{name}`",
        where=module.__file__,
        remedy=f"did you mean `{near[0]}`?" if near else "define it, or correct the reference",
    )


def _is_a(what: str, found: object) -> bool:
    return isinstance(found, type) if what == "class" else callable(found)


@contextmanager
def importing_from(import_roots: Sequence[str]) -> Iterator[None]:
    """Let modules be imported from the roots, before they are looked for elsewhere: as their files are now.

    What was imported from the roots before is imported anew if any of it has changed, and so is everything if it was
    imported for another project: two projects may both have a `jobs.visits`.
    """
    roots = tuple(import_roots)
    with _lock:
        if roots != _imported.roots:
            forget_modules()
            _look_in(roots)
        elif any(_version(_file_of(found)) != seen for found, seen in _imported.versions.items()):
            forget_modules()
        try:
            yield
        finally:
            for found in _forgettable():
                _imported.versions.setdefault(found, _version(_file_of(found)))


def forget_modules() -> None:
    """Let the project's modules be imported anew when they are asked for next."""
    with _lock:
        for name in {*_imported.versions, *_forgettable()}:
            sys.modules.pop(name, None)
        _imported.versions.clear()
        importlib.invalidate_caches()


def _look_in(roots: tuple[str, ...]) -> None:
    for root in _imported.added:
        if root in sys.path:
            sys.path.remove(root)
    _imported.added = tuple(root for root in roots if root not in sys.path)
    for root in reversed(roots):
        if root in sys.path:
            sys.path.remove(root)
        sys.path.insert(0, root)
    _imported.roots, _imported.others = roots, frozenset(sys.modules)


def own_modules(import_roots: Sequence[str]) -> list[str]:
    """The imported modules that were found through the roots; one of a package that lies in there by chance was not."""
    return [name for name in list(sys.modules) if any(_is_at(root, name) for root in import_roots)]


def _forgettable() -> set[str]:
    return set(own_modules(_imported.roots)) - _imported.others


def _is_at(root: str, name: str) -> bool:
    module, place = sys.modules.get(name), os.path.join(root, *name.split("."))
    file = getattr(module, "__file__", None)
    if file is None:
        # A package without an `__init__.py` is its folders.
        return place in getattr(module, "__path__", ())
    return file in {f"{place}.py", os.path.join(place, "__init__.py")}


def _file_of(name: str) -> str | None:
    return getattr(sys.modules.get(name), "__file__", None)


def _version(file: str | None) -> _Version:
    try:
        found = os.stat(file or "")
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _python_files(root: str, avoided: set[str]) -> Iterator[str]:
    """Every file that can be imported from a root; folders without a name that Python can import are left out."""
    seen: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        place = os.path.realpath(folder)
        if place in seen or (place in avoided and folder != root) or _ENVIRONMENT_MARK in files:
            folders.clear()
            continue
        seen.add(place)
        folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__")
        for name in sorted(files):
            file = os.path.join(folder, name)
            if name.endswith(".py") and os.path.isfile(file):
                yield file


def _folders_above(name: str) -> Iterator[str]:
    parts = name.split("/")[:-1]
    for length in range(1, len(parts) + 1):
        yield "/".join(parts[:length])
