"""The project that `sluice init` makes: a sample stream with data, in which `sluice run` works at once."""

from __future__ import annotations

import importlib.resources
import shutil
from pathlib import Path

from sluice.errors import DeclarationError


def create_project(folder: Path) -> None:
    """Copy the sample project into a folder that is empty, or new.

    Raises:
        DeclarationError: The folder has something in it, or can't be written.
    """
    in_the_way = next((place for place in (folder, *folder.parents) if place.exists() and not place.is_dir()), None)
    if in_the_way is not None:
        raise DeclarationError("a file is where the folder should be", where=str(in_the_way), remedy="name another one")
    shown = str(folder)
    # Made on the way, `new/../shop` would be a folder that is there.
    folder = folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        raise DeclarationError("the folder is not empty", where=shown, remedy="name a new one")
    try:
        with importlib.resources.as_file(importlib.resources.files("sluice.template") / "project") as template:
            shutil.copytree(
                template,
                folder,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__"),
                copy_function=shutil.copy,
            )
        # Under its own name, git and the builder of the wheel would heed it here.
        (folder / "gitignore").rename(folder / ".gitignore")
    except OSError as exc:
        raise DeclarationError(
            f"the project can't be written: {exc}", where=shown, remedy="check the folder's permissions"
        ) from exc
