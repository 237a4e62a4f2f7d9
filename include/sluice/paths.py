"""Paths as people write them in declarations and in `sluice.toml`, and the locations that they mean."""

from __future__ import annotations

import os
import re

from sluice.errors import DeclarationError
from sluice.storage import is_local, is_within

VARIABLE = re.compile(r"\$\{(\w+)\}")
"""How a path or a setting names a variable of the environment."""


def resolve_path(path: str, root: str, *, place: str) -> str:
    """Make a declared path a location: `${ENV}` expanded, relative ones below the project.

    A relative path may not leave the project, neither through `..` nor through a link; to point elsewhere, an
    absolute path or a URL says so openly.

    Raises:
        DeclarationError: It leaves the project, or names a variable that is not set.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise DeclarationError(f"{path!r} is not a path", where=place, remedy="give a path or a URL")
    expanded = expand(path, place=place)
    if not is_local(expanded):
        return expanded.rstrip("/")
    if expanded.startswith("file:"):
        # Spark takes what follows as it is: a `%20` in it is a `%20` in the folder's name.
        expanded = "/" + expanded.removeprefix("file:").lstrip("/")
    if expanded.startswith("/"):
        return expanded.rstrip("/") or "/"
    absolute = os.path.normpath(os.path.join(root, expanded))
    # What a glob matches is checked where it is listed; the fixed part in front of it is checked here.
    fixed = re.split(r"[*?\[{]", absolute, maxsplit=1)[0]
    if not is_within(fixed, root):
        raise DeclarationError(
            f"the path {path!r} leaves the project",
            where=place,
            remedy="write the absolute path if that is what you mean",
        )
    return absolute


def expand(text: str, *, place: str) -> str:
    """Replace every `${NAME}` by the environment's value.

    Raises:
        DeclarationError: A variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            raise DeclarationError(
                f"the environment variable {match[1]} is not set", where=place, remedy="set it, or write the value"
            )
        return found

    return VARIABLE.sub(value, text)
