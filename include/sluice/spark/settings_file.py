"""Spark's settings on their way into a JVM: a file without a name, for they may hold secrets.

Every user of the machine can read a command line, and a file with a name stays behind when whoever was to remove it
dies. This file has no name: who inherits its descriptor can read it, and it is gone with the last of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def settings_file(settings: Mapping[str, str]) -> Iterator[int]:
    """The descriptor of a file with settings in Java's format of properties, for the process that inherits it.

    Args:
        settings: The settings by name.
    """
    with tempfile.TemporaryFile("w", encoding="latin-1") as file:
        file.write(_properties(settings))
        file.flush()
        yield file.fileno()


def settings_path(descriptor: int) -> str:
    """Where a process that has inherited the descriptor finds the settings."""
    return f"/proc/self/fd/{descriptor}"


def _properties(settings: Mapping[str, str]) -> str:
    escapes = {"\\": r"\\", "\n": r"\n", "\r": r"\r"}

    def escaped(value: str) -> str:
        characters = (escapes.get(c, c if c.isascii() else f"\\u{ord(c):04x}") for c in value)
        return "".join(characters)

    return "".join(f"{key}={escaped(value)}\n" for key, value in settings.items())
