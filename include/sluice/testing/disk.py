"""What is on the disk of a bench at one moment, and the way back to it: what a kill leaves."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DiskImage:
    """Every file and folder below a folder, with content and time."""

    root: Path
    files: dict[str, tuple[bytes, int]]
    folders: frozenset[str]

    @classmethod
    def of(cls, root: Path) -> DiskImage:
        """Look at a folder; what goes away meanwhile is not in it."""
        files: dict[str, tuple[bytes, int]] = {}
        folders: set[str] = set()
        for place, below, names in os.walk(root):
            folders.update(os.path.relpath(os.path.join(place, name), root) for name in below)
            for name in names:
                file = os.path.join(place, name)
                try:
                    with open(file, "rb") as opened:
                        files[os.path.relpath(file, root)] = opened.read(), os.fstat(opened.fileno()).st_mtime_ns
                except FileNotFoundError:
                    continue
        return cls(root, files, frozenset(folders))

    def without_new(self, before: DiskImage, folder: str) -> DiskImage:
        """The same, but below one folder as it was before: a log in which an entry is not yet.

        Args:
            before: How it was then.
            folder: The folder, from the root.
        """
        inside = f"{folder}/"
        kept = {name: found for name, found in self.files.items() if not name.startswith(inside)}
        return DiskImage(
            self.root,
            kept | {name: found for name, found in before.files.items() if name.startswith(inside)},
            frozenset(name for name in self.folders if not f"{name}/".startswith(inside) or name in before.folders),
        )

    def bring_back(self) -> None:
        """Let the folder have these files again, and no others; what did not change is not touched."""
        now = DiskImage.of(self.root)
        for name in now.files.keys() - self.files.keys():
            (self.root / name).unlink()
        for name in sorted(now.folders - self.folders, reverse=True):
            (self.root / name).rmdir()
        for name in sorted(self.folders - now.folders):
            (self.root / name).mkdir()
        for name, (content, mtime_ns) in self.files.items():
            if now.files.get(name) != (content, mtime_ns):
                file = self.root / name
                file.write_bytes(content)
                os.utime(file, ns=(mtime_ns, mtime_ns))
