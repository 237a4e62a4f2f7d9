"""The end of a process of ours: its exit code tells what came of its work, and nothing else.

A process may abort while it ends (exit code 134), its work done: that was seen with delta-rs' reader beside Spark, and
C++ libraries keep threads, one of which may come back to a Python that is gone. So Python's own clean-up is done, and
nothing after it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn


def leave_with(work: Callable[[], int | None]) -> NoReturn:
    """Do the work of a process, and end it with the exit code that it gives, or that it exits with."""
    try:
        code = work()
    except SystemExit as exc:
        code = _code(exc)
    except BaseException:
        traceback.print_exc()
        code = 1
    _clean_up()
    os._exit(code or 0)


def _code(exc: SystemExit) -> int | None:
    """What Python itself would exit with."""
    if exc.code is None or isinstance(exc.code, int):
        return exc.code
    sys.stderr.write(f"{exc.code}\n")
    return 1


def _clean_up() -> None:
    """What Python does at its end: other threads' work is waited for, exit functions are called, output is written."""
    # Pools are told to end before their threads are waited for: nothing public does both.
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001 - nothing public calls them
    for stream in (sys.stdout, sys.stderr):
        # Whoever read it may be gone; that is no outcome of the work.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
