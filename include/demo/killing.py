"""Kills a driver where it hurts: in the middle of a batch."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from sluice.home import StreamHome
from sluice.runs.lease import LeaseFile
from sluice.typed_json import decode_as


def kill_in_mid_batch(home: StreamHome) -> int | None:
    """Kill a stream's driver with SIGKILL if it is in the middle of a batch: planned, and not committed.

    Returns:
        The batch; None where there was nothing to kill.
    """
    checkpoint = Path(home.checkpoint_location(1))
    planned, committed = (_newest(checkpoint / log) for log in ("offsets", "commits"))
    if planned <= committed:
        return None
    leases = sorted(Path(home.lease_folder(1)).glob("*.json"), key=lambda file: int(file.stem))
    lease = decode_as(leases[-1].read_bytes(), LeaseFile)
    if lease.is_given_up or len(lease.processes) < 2:
        return None
    for process in lease.processes:
        os.kill(process.pid, signal.SIGKILL)
    return planned


def _newest(log: Path) -> int:
    return max((int(file.name) for file in log.glob("[0-9]*") if file.name.isdigit()), default=-1)
