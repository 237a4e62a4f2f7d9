"""Kills a driver where it hurts: in the middle of a batch."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from sluice.home import StreamHome
from sluice.runs.lease import LeaseFile
from sluice.typed_json import decode_as

_AT_REST = "TtZX"
"""How Linux calls a process that does nothing, for it is stopped or dead."""


def kill_in_mid_batch(home: StreamHome) -> int | None:
    """Kill a stream's driver with SIGKILL if it is in the middle of a batch: planned, and not committed.

    Returns:
        The batch; None where there was nothing to kill.
    """
    checkpoint = Path(home.checkpoint_location(1))
    if _pending(checkpoint) is None:
        return None
    leases = sorted(Path(home.lease_folder(1)).glob("*.json"), key=lambda file: int(file.stem))
    lease = decode_as(leases[-1].read_bytes(), LeaseFile)
    if lease.is_given_up or len(lease.processes) < 2:
        return None
    pids = [process.pid for process in lease.processes]
    # It may commit this very moment: it is stopped first, and then looked at once more.
    _send(pids, signal.SIGSTOP)
    while not all(map(_is_at_rest, pids)):
        time.sleep(0.001)
    planned = _pending(checkpoint)
    _send(pids, signal.SIGCONT if planned is None else signal.SIGKILL)
    return planned


def _pending(checkpoint: Path) -> int | None:
    """The batch that is planned and not committed; None where there is none."""
    planned, committed = (_newest(checkpoint / log) for log in ("offsets", "commits"))
    return planned if planned > committed else None


def _newest(log: Path) -> int:
    return max((int(file.name) for file in log.glob("[0-9]*") if file.name.isdigit()), default=-1)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def _is_at_rest(pid: int) -> bool:
    # Its name, in parentheses, may have any signs.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in _AT_REST
