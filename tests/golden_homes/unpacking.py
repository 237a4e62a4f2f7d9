"""Golden homes, unpacked: each is a project whose paths are those of the folder that it lies in now."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.home import StreamHome
from sluice.project import Project, find_project
from sluice.stream import Stream

ARCHIVES = sorted(Path(__file__).parent.glob("*/*.zip"))
NAMES = [f"{archive.parent.name}-{archive.stem}" for archive in ARCHIVES]
_MADE_IN = "/tmp/golden-homes"
_BINARY = {".parquet", ".delta", ".snapshot", ".crc"}


@dataclass(frozen=True)
class GoldenHome:
    """A project, and what the version that made it said of it."""

    version: str
    name: str
    root: Path
    expected: dict[str, Any]

    @property
    def project(self) -> Project:
        return find_project(str(self.root))

    @property
    def stream(self) -> Stream:
        return self.project.stream("numbers")

    @property
    def home(self) -> StreamHome:
        return self.project.stream_home(self.stream)


def unpack(archive: Path, folder: Path) -> GoldenHome:
    """Unpack one; its files have the times, and its texts the paths, that a home's logs speak of."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    root, expected = folder / "project", json.loads((folder / "expected.json").read_text("utf-8"))
    (root / "in").mkdir(exist_ok=True)  # an archive has files only
    made_in = f"{_MADE_IN}/{archive.stem}".encode()
    for file in root.rglob("*"):
        if file.is_file() and file.suffix not in _BINARY and made_in in (content := file.read_bytes()):
            file.write_bytes(content.replace(made_in, str(root).encode()))
            # Hadoop's own checksum, which is of what was there before.
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    for name, mtime in expected["mtimes"].items():
        os.utime(root / name, (mtime, mtime))
    return GoldenHome(archive.parent.name, archive.stem, root, expected)
