"""A driver that kills its whole process group with SIGKILL at one chosen write: crashes as data.

    crashing_driver.py PROJECT STREAM before|after write|aside|publish COUNT

`before write 3` dies just before the third file that Sluice writes, `after write 3` just after it; `aside` is what
Spark writes below the table, and `publish` the commit that makes it count.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running.runner import run_stream
from sluice.sinks.delta.sink import DeltaSink
from sluice.storage import Storage

project_folder, stream_name, moment, step, count = sys.argv[1:]
times: Counter[str] = Counter()


def dying(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what writes."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        times[name] += 1
        is_now = name == step and times[name] == int(count)
        if is_now and moment == "before":
            os.killpg(0, signal.SIGKILL)
        result = act(*args, **kwargs)
        if is_now and moment == "after":
            os.killpg(0, signal.SIGKILL)
        return result

    return wrapped


Storage.put_if_absent = dying("write", Storage.put_if_absent)  # type: ignore[method-assign]
Storage.replace = dying("write", Storage.replace)  # type: ignore[method-assign]
DeltaSink.write_batch_aside = dying("aside", DeltaSink.write_batch_aside)  # type: ignore[method-assign]
DeltaSink.publish_batch = dying("publish", DeltaSink.publish_batch)  # type: ignore[method-assign]
project = find_project(project_folder)
run_stream(project, Request(project.stream(stream_name), Limits(), run_key="the only one"))
