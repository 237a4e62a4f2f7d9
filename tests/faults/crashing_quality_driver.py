"""A driver of a stream with a suite that kills its whole process group with SIGKILL at one chosen step.

    crashing_quality_driver.py PROJECT STREAM RUN_KEY STRATEGY before|after|stop STEP [COUNT]

The step is a name of `STEPS`, `write` for any file that Sluice writes or deletes, leases apart, or the path of a file:
it dies as soon as that is there. With a count, it dies at the so-manyth time. `stop` only stops it, with SIGSTOP, just
before the step.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sluice.auditing import judge_with_spark, run_gate, staged_batch
from sluice.auditing.audit import Audit
from sluice.gate import decided_batch
from sluice.gate.state import GateState
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running import preparation
from sluice.running.runner import run_stream
from sluice.sinks.delta import parquet_aside
from sluice.sinks.delta.sink import DeltaSink
from sluice.sinks.foreach_batch import ForeachBatchSink
from sluice.storage import Storage

project_folder, stream_name, run_key, strategy, moment, step, *counted = sys.argv[1:]
count = int(counted[0]) if counted else 1
seen = 0


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def dying(name: Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that is a step; its arguments tell which."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        global seen  # noqa: PLW0603 - one process, one count
        is_it = name(*args, **kwargs) == step
        seen += is_it
        if is_it and seen == count and moment == "before":
            die()
        if is_it and seen == count and moment == "stop":
            os.killpg(0, signal.SIGSTOP)
        result = function(*args, **kwargs)
        if is_it and seen == count and moment == "after":
            die()
        return result

    return wrapped


def always(name: str) -> Callable[..., str]:
    return lambda *_args, **_kwargs: name


def of_table(sink: DeltaSink, *_args: Any, **_kwargs: Any) -> str:
    return "quarantine" if sink.path.endswith("_quarantine") else "sink"


def of_gate(_home: object, state: GateState) -> str:
    return state.state


def of_file(_storage: Storage, location: str, *_content: bytes) -> str:
    return "lease" if "/leases/" in location else "write"


STEPS = [
    (DeltaSink, "write_batch_aside", always("aside")),
    (DeltaSink, "publish_batch", always("publish")),
    (parquet_aside, "find_added", always("commit")),
    (DeltaSink, "write_batch", of_table),
    (ForeachBatchSink, "write_batch", always("sink")),
    (Audit, "_decide", always("decide")),
    (staged_batch, "stage", always("stage")),
    (decided_batch, "decide", always("split")),
    (decided_batch, "forget", always("forget")),
    (Audit, "note", always("note")),
    (Audit, "finish", always("finish")),
    (run_gate, "close_gate", always("close")),
    (run_gate, "keep_gate", of_gate),
    (preparation, "settle", always("settle")),
    (judge_with_spark, "settle", always("settle")),
    (Storage, "put_if_absent", of_file),
    (Storage, "replace", of_file),
    (Storage, "delete", of_file),
]
for owner, attribute, named in STEPS:
    setattr(owner, attribute, dying(named, getattr(owner, attribute)))


def watch() -> None:
    while not Path(step).exists():
        time.sleep(0.0005)
    die()


if "/" in step:
    threading.Thread(target=watch, daemon=True).start()
project = find_project(project_folder)
limits = Limits(strategy=strategy)  # type: ignore[arg-type]
run_stream(project, Request(project.stream(stream_name), limits, run_key or None))
