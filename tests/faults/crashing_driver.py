"""A driver that kills its whole process group with SIGKILL at one chosen write: crashes as data.

    crashing_driver.py PROJECT STREAM before|after COUNT

`before 3` dies just before the third file that Sluice writes, `after 3` just after it.
"""

import os
import signal
import sys
from collections.abc import Callable

from sluice.planning.planner import Limits
from sluice.project import find_project
from sluice.running.preparation import Request
from sluice.running.runner import run_stream
from sluice.storage import Storage

project_folder, stream_name, moment, count = sys.argv[1:]
writes = 0


def dying(write: Callable[[Storage, str, bytes], object]) -> Callable[[Storage, str, bytes], object]:
    """Wrap one of the storage's writing methods."""

    def wrapped(self: Storage, location: str, content: bytes) -> object:
        global writes  # noqa: PLW0603 - one process, one count
        writes += 1
        if moment == "before" and writes == int(count):
            os.killpg(0, signal.SIGKILL)
        result = write(self, location, content)
        if moment == "after" and writes == int(count):
            os.killpg(0, signal.SIGKILL)
        return result

    return wrapped


Storage.put_if_absent = dying(Storage.put_if_absent)  # type: ignore[method-assign,assignment]
Storage.replace = dying(Storage.replace)  # type: ignore[method-assign,assignment]
project = find_project(project_folder)
run_stream(project, Request(project.stream(stream_name), Limits(), run_key="the only one"))
