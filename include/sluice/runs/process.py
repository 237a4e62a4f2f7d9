"""Processes, told apart from others that get their number later: on this machine, since this boot."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec


class Process(msgspec.Struct, frozen=True):
    """A process. The start time tells it from another one that got its number later."""

    pid: int
    started: int | None
    """Start time in clock ticks since boot; None where the system does not tell."""


def process(pid: int) -> Process:
    """The process of this number as it is now."""
    return Process(pid, _start_ticks(pid))


def is_alive(found: Process) -> bool:
    """Whether a process of this machine and boot is still there; a zombie is not."""
    return found.started is not None and _start_ticks(found.pid) == found.started


def machine() -> str:
    """What tells apart machines, and containers with process numbers of their own; clones only by their `boot_id`."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {_content('/etc/machine-id')} {namespace}"


def boot_id() -> str:
    """What tells apart the boots of a machine: process numbers begin anew."""
    return _content("/proc/sys/kernel/random/boot_id")


def _start_ticks(pid: int) -> int | None:
    """The start time of a process in clock ticks since boot; None when there is no such process, or it is a zombie."""
    try:
        # The command's name, in parentheses, may hold spaces; the fields after it are fixed.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _content(file: str) -> str:
    try:
        return Path(file).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
