"""The user's cache, which all projects share."""

from __future__ import annotations

import os
from pathlib import Path

from sluice.errors import RunError


def user_cache(name: str, variable: str) -> Path:
    """A folder in the user's cache.

    Args:
        name: The folder's name.
        variable: The environment variable that may name another folder in its place.

    Raises:
        RunError: Nothing tells where the user's files are.
    """
    if given := os.environ.get(variable):
        return Path(given)
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as exc:
        raise RunError(
            "this user has no home folder", where="HOME", remedy=f"set HOME, or {variable} to a folder"
        ) from exc
    return Path(cache) / "sluice" / name
