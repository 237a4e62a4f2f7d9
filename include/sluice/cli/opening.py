"""The stream that a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.home import StreamHome
    from sluice.stream import Stream


def opened(project: str | None, stream: str, checkpoint: str | None) -> tuple[Stream, StreamHome]:
    """A declared stream and its home; with a checkpoint of somebody's in place of its own, where one is given."""
    from dataclasses import replace

    from sluice.project import find_project

    loaded = find_project(project)
    declared = loaded.stream(stream)
    if checkpoint is not None:
        declared = replace(declared, checkpoint=absolute(checkpoint))
    return declared, loaded.stream_home(declared)


def absolute(path: str) -> str:
    """A path from where the command was called; locations as they are."""
    from sluice.locations import is_local

    return str(Path(path).absolute()) if is_local(path) and not path.startswith("file:") else path
