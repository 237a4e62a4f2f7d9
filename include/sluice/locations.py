"""Locations as text: a local path, or a URL; what is equal for all names of a file."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SPELLINGS = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}
"""Schemes that mean the same store; the names have one of them."""


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


def below_folder(location: str, folder: str) -> str | None:
    """Where in a folder a location lies, links followed where it is local; None where it is not below it."""
    above = f"{canonical_location(folder).rstrip('/')}/"
    found = canonical_location(location)
    return found.removeprefix(above) if found.startswith(above) else None


def real_location(location: str) -> str:
    """A location with links followed, where it is local: the same for every name of a file or folder."""
    return os.path.realpath(local_path(location)) if is_local(location) else location


def canonical_location(location: str) -> str:
    """A location as it is compared with others: links followed, and a store under one of its names."""
    if is_local(location):
        return real_location(location)
    scheme, colon, rest = location.partition(":")
    return f"{_SPELLINGS.get(scheme.lower(), scheme.lower())}{colon}{rest}"


def same_for_every_name(location: str) -> object:
    """What is equal for all names of one file or folder, and for those of one that is yet to be made.

    Links are followed. It costs one call of the system, and a few where there is nothing yet: see `real_location` for a
    name to show.
    """
    if not is_local(location):
        return canonical_location(location).rstrip("/")
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
