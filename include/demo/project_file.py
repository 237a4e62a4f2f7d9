"""The file of a project whose streams are declared in this repository, and which lies elsewhere."""

from __future__ import annotations

from pathlib import Path

from demo.standalone import REPOSITORY


def write_project(folder: Path, name: str, streams: Path) -> None:
    """Write it.

    Args:
        folder: Where the project is; its home is below it.
        name: What it is called.
        streams: The folder of its declarations.
    """
    (folder / "sluice.toml").write_text(
        f"""\
[project]
name = "{name}"
home = "sluice"
streams = ["{streams}"]
path = ["{REPOSITORY}"]

[spark]
master = "local[2]"
""",
        "utf-8",
    )
