"""Finds the suite that a stream declares: a JSON file, or Python that builds one."""

from __future__ import annotations

import re
from typing import Any

from sluice.declarations import import_file
from sluice.errors import DeclarationError, StorageError
from sluice.paths import resolve_path
from sluice.project import Project
from sluice.quality.suite import Suite, build_suite, read_suite
from sluice.storage import Storage
from sluice.stream import Stream

DEFAULT_FUNCTION = "suite"
"""What a Python file builds its suite with, when the declaration names no function."""

_PYTHON_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<function>[A-Za-z_]\w*))?")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def declared_suite(project: Project, stream: Stream, *, storage: Storage) -> Suite | None:
    """The suite of a stream; None when it declares none. Great Expectations is imported only by a suite in Python.

    `quality` is the path or URL of a JSON file, `module:function`, or a Python file (`suites/x.py`, with a function
    `suite`, or `suites/x.py:function`).

    Raises:
        DeclarationError: There is no such file or function, or something in the suite is wrong.
        StorageError: The file can't be read.
    """
    declared = stream.quality
    if declared is None:
        return None
    in_file = _PYTHON_FILE.fullmatch(declared)
    if in_file:
        file = resolve_path(in_file["file"], project.root, place=f"{stream.place}, quality")
        return build_suite(_function(file, in_file["function"] or DEFAULT_FUNCTION), source=declared)
    if _FUNCTION.fullmatch(declared):
        return build_suite(project.load_function(declared), source=declared)
    location = resolve_path(declared, project.root, place=f"{stream.place}, quality")
    try:
        suite = read_suite(location, storage=storage)
    except StorageError:
        if storage.list_folder(location) is None:
            raise
        raise DeclarationError(
            "the suite is a folder", where=f"{stream.place}, {location}", remedy="name a file of it: `quality=`"
        ) from None
    if suite is None:
        raise DeclarationError(
            "there is no suite", where=f"{stream.place}, {location}", remedy="check `quality` of the stream"
        )
    return suite


def _function(file: str, name: str) -> Any:
    """A function of a Python file."""
    module = import_file(file, "suite")
    function = getattr(module, name, None)
    if not callable(function):
        raise DeclarationError(
            f"the file has no function `{name}`", where=file, remedy="define it; it returns an `ExpectationSuite`"
        )
    return function
