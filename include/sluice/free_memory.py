"""How much memory this process may still take, by what the machine and its container say."""

from __future__ import annotations

import re
from pathlib import Path

_MACHINE = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """The memory that is free, or would be freed for this process; None where nobody tells."""
    machine = _kilobytes(_MACHINE, "MemAvailable:")
    known = [found for found in (machine, _container_bytes()) if found is not None]
    return min(known, default=None)


def _container_bytes() -> int | None:
    """What is left below the limit of the container; None without a limit. Cached files count as free."""
    most, used = (_number(_CONTAINER / name) for name in ("memory.max", "memory.current"))
    if most is None or used is None:
        return None
    return max(0, most - used + (_field(_CONTAINER / "memory.stat", "inactive_file") or 0))


def _kilobytes(file: Path, name: str) -> int | None:
    found = _field(file, name)
    return None if found is None else found * 1024


def _field(file: Path, name: str) -> int | None:
    """The number after a name in a file of names and numbers."""
    try:
        found = re.search(rf"^{re.escape(name)}\s+(\d+)", file.read_text("ascii"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    return None if found is None else int(found[1])


def _number(file: Path) -> int | None:
    try:
        text = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None
