"""Paths as people write them in declarations and in `sluice.toml`, and the locations that they mean."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sluice.errors import DeclarationError
from sluice.locations import is_local, is_within, local_path
from sluice.redaction import is_secret_name, remember_secrets, secrets_of_url

VARIABLE = re.compile(r"\$\{(\w+)\}")
"""How a path or a setting names a variable of the environment."""
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
_BARE_VARIABLE = re.compile(r"\$(\w+)(?=/|\Z)")
_ONE_SLASH = re.compile(r"(s3[an]?|gs|gcs|az|adl|abfss?|hdfs):/(?!/)")


def resolve_path(path: str, root: str, *, place: str) -> str:
    """Make a declared path a location: `${ENV}` expanded, relative ones below the project.

    A relative path may not leave the project, neither through `..` nor through a link; to point elsewhere, an
    absolute path or a URL says so openly.

    Raises:
        DeclarationError: It leaves the project, or names a variable that is not set.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise DeclarationError(f"{path!r} is not a path", where=place, remedy="give a path or a URL")
    _check_spelling(path, place)
    expanded = expand(path, place=place)
    if not is_local(expanded):
        check_credentials(expanded, place=place)
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


def check_folder(location: str | None, what: str) -> None:
    """Refuse a place where no folder can be made, because a file is there or above it.

    Raises:
        DeclarationError: A file is in the way.
    """
    if location is None or not is_local(location):
        return
    place = Path(local_path(location))
    file = next((found for found in (place, *place.parents) if os.path.lexists(found)), place)
    if file.exists() and not file.is_dir():
        raise DeclarationError(
            "a file is where a folder should be", where=f"{what}: {file}", remedy="move the file, or correct the path"
        )


def _check_spelling(path: str, place: str) -> None:
    """Refuse what a shell or another system would understand, and would be a folder of that name here.

    Raises:
        DeclarationError: It is such a path.
    """
    if _WINDOWS.match(path):
        raise DeclarationError(f"{path!r} is a path of Windows", where=place, remedy="give one of this machine")
    if path == "~" or path.startswith("~/"):
        raise DeclarationError(
            f"the path {path!r} begins with `~`", where=place, remedy=f"write it as ${{HOME}}{path[1:]}"
        )
    if bare := _BARE_VARIABLE.match(path):
        raise DeclarationError(
            f"the path {path!r} names a variable without braces",
            where=place,
            remedy=f"write it as ${{{bare[1]}}}{path[bare.end() :]}",
        )
    if one := _ONE_SLASH.match(path):
        raise DeclarationError(
            f"the URL {path!r} has one slash", where=place, remedy=f"write it as {one[1]}://{path[one.end() :]}"
        )


def check_credentials(url: str, *, place: str) -> None:
    """Refuse a location with a secret in it: plans, pages, Airflow's assets, Spark's checkpoints and logs tell it.

    Raises:
        DeclarationError: It has one.
    """
    if not is_local(url) and any(secrets_of_url(url)):
        raise DeclarationError(
            "the URL has a password, a key or a token in it",
            where=place,
            remedy="put it into `[storage]` and `[spark.conf]`, as `${NAME}` of an environment variable: a path is"
            " shown to everybody",
        )


def expand_all(settings: Mapping[str, str], *, place: str) -> dict[str, str]:
    """Settings with the environment's values; those whose names are a secret's are masked from then on.

    Raises:
        DeclarationError: A variable is not set.
    """
    found = {name: expand(value, place=f"{place}, {name}") for name, value in settings.items()}
    remember_secrets(value for given in (settings, found) for name, value in given.items() if is_secret_name(name))
    return found


def expand(text: str, *, place: str) -> str:
    """Replace every `${NAME}` by the environment's value.

    Raises:
        DeclarationError: A variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            # A password may have such signs in it: only what is surely meant for a variable is told.
            is_told = match[1].isupper() or match[0] == text
            name = f"the environment variable {match[1]}" if is_told else "an environment variable in a value"
            raise DeclarationError(f"{name} is not set", where=place, remedy="set it, or write the value")
        return found

    return VARIABLE.sub(value, text)
