"""The end of a process of ours: its exit code tells what came of its work, and nothing else.

A process may abort while it ends (exit code 134), its work done: that was seen with delta-rs' reader beside Spark, and
C++ libraries keep threads, one of which may come back to a Python that is gone. So Python's own clean-up is done, and
nothing after it, whatever goes wrong on the way: words that can't be written, as on a full disk, end no work. A
command, whose output is the answer that somebody waits for, asks for `lost_output` when its work is done.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn, TextIO


def leave_with(work: Callable[[], int | None]) -> NoReturn:
    """Do the work of a process, and end it with the exit code that it gives, or that it exits with."""
    code: int | None = 1
    # Nothing gets out of this but by `os._exit`: no signal either, wherever it comes.
    try:
        sys.stdout, sys.stderr = _Words.over(sys.stdout), _Words.over(sys.stderr)
        code = _code_of(work)
        _clean_up()
    finally:
        os._exit((code or 0) & 0xFF)


def lost_output() -> str | None:
    """Why standard output did not take all that was printed; None when it did, and when its reader has left."""
    words = sys.stdout
    words.flush()
    lost = words.lost if isinstance(words, _Words) else None
    if lost is None or isinstance(lost, BrokenPipeError):
        return None
    return getattr(lost, "strerror", None) or str(lost)


class _Words(io.TextIOWrapper):
    """Standard output or error: what can't be written there is lost, and no work is given up for it."""

    lost: OSError | ValueError | None = None
    """Why the first words that were lost could not be written: of a stream that was closed, a `ValueError`."""

    @classmethod
    def over(cls, stream: TextIO | None) -> TextIO:
        """What stands in the place of a stream; a closed one's would be taken by whatever is opened next."""
        if stream is None:
            return open(os.devnull, "w", encoding="utf-8")
        if not isinstance(stream, io.TextIOWrapper):
            return stream
        return cls(
            stream.buffer,
            stream.encoding,
            stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except (OSError, ValueError) as exc:
            self.lost = self.lost or exc
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except (OSError, ValueError) as exc:
            self.lost = self.lost or exc


def _code_of(work: Callable[[], int | None]) -> int | None:
    try:
        return work()
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code
        # As Python itself would.
        words = str(exc.code)
    except BaseException:
        words = traceback.format_exc().rstrip("\n")
    sys.stderr.write(f"{words}\n")
    return 1


def _clean_up() -> None:
    """What Python does at its end: other threads' work is waited for, exit functions are called, output is written."""
    # Pools are told to end before their threads are waited for: nothing public does both.
    for step in (threading._shutdown, atexit._run_exitfuncs, _flush):  # type: ignore[attr-defined]  # noqa: SLF001
        # Who presses Ctrl-C once more wants no more waiting; the work is done.
        with contextlib.suppress(BaseException):
            step()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Whoever read it may be gone; that is no outcome of the work.
        with contextlib.suppress(Exception):
            stream.flush()
