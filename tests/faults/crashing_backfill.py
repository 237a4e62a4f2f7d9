"""A backfill that kills its whole process group with SIGKILL at one chosen step: crashes as data.

    crashing_backfill.py PROJECT STREAM START END before|after|at WHAT

`before 3` dies just before the third file that Sluice writes; `after 3` just after it; `at publishing` when it says so.
Leases do not count, nor do records that only tell people more than before.
"""

import json
import os
import signal
import sys
from collections.abc import Callable

from sluice.interval import Interval
from sluice.project import find_project
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.observers import Silent
from sluice.storage import Storage
from sluice.times import parse_time

project_folder, stream_name, start, end, moment, what = sys.argv[1:]
writes = 0
told: dict[str, object] = {}


def tells_only_people(location: str, content: bytes) -> bool:
    """Whether a run record says nothing new but how the run goes on."""
    if "/runs/" not in location:
        return False
    said = {key: value for key, value in json.loads(content).items() if key not in {"phases", "explain"}}
    before, told[location] = told.get(location), said
    return before == said


def dying(write: Callable[[Storage, str, bytes], object]) -> Callable[[Storage, str, bytes], object]:
    """Wrap one of the storage's writing methods."""

    def wrapped(self: Storage, location: str, content: bytes) -> object:
        global writes  # noqa: PLW0603 - one process, one count
        if "/leases/" in location or tells_only_people(location, content):
            # Heartbeats come when they come.
            return write(self, location, content)
        writes += 1
        if (moment, what) == ("before", str(writes)):
            os.killpg(0, signal.SIGKILL)
        result = write(self, location, content)
        if (moment, what) == ("after", str(writes)):
            os.killpg(0, signal.SIGKILL)
        return result

    return wrapped


class Dying(Silent):
    def phase(self, text: str) -> None:
        if (moment, what) == ("at", text):
            os.killpg(0, signal.SIGKILL)


Storage.put_if_absent = dying(Storage.put_if_absent)  # type: ignore[method-assign,assignment]
Storage.replace = dying(Storage.replace)  # type: ignore[method-assign,assignment]
project = find_project(project_folder)
interval = Interval(parse_time(start), parse_time(end))  # type: ignore[arg-type]
backfill_stream(project, BackfillRequest(project.stream(stream_name), interval, "the only one"), observer=Dying())
