"""Spark's settings on their way into a JVM: a file without a name, for they may hold secrets.

Every user of the machine can read a command line, and a file with a name stays behind when whoever was to remove it
dies. This file has no name: who inherits its descriptor can read it, and it is gone with the last of them.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sluice.spark.java import EXTRA_JAVA_OPTIONS


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


@contextmanager
def launch_settings(conf: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """The descriptors of Spark's settings, as above, and of Java's options among them, each for whoever inherits it.

    Java's options would stand on the command line of its JVM; that names their file instead, as Java allows.

    Args:
        conf: Spark's settings by name.
    """
    with tempfile.TemporaryFile("w", encoding="utf-8") as options:
        for option in shlex.split(conf.get(EXTRA_JAVA_OPTIONS, "")):
            quoted = option.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n").replace("\r", r"\r")
            options.write(f'"{quoted}"\n')
        options.flush()
        named = {EXTRA_JAVA_OPTIONS: options_argument(options.fileno())}
        with settings_file({**conf, **named}) as settings:
            yield settings, options.fileno()


def options_argument(descriptor: int) -> str:
    """How Java is told to read its options from an inherited file."""
    return f"@{settings_path(descriptor)}"


def settings_path(descriptor: int) -> str:
    """Where a process that has inherited the descriptor finds the settings."""
    return f"/proc/self/fd/{descriptor}"


def _properties(settings: Mapping[str, str]) -> str:
    escapes = {"\\": r"\\", "\n": r"\n", "\r": r"\r"}

    def escaped(value: str) -> str:
        characters = (escapes.get(c, c if c.isascii() else f"\\u{ord(c):04x}") for c in value)
        return "".join(characters)

    return "".join(f"{key}={escaped(value)}\n" for key, value in settings.items())
