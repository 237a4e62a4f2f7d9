"""Code that is not ours, called so that it fails its own call and nothing else: declarations, transforms, libraries.

A declaration may call `sys.exit()`, and a library in Rust may panic: both raise what is no `Exception`. In the loop of
Airflow's triggerer or of its server that would end the process, and other people's work with it.

Nobody can catch what ends a process without raising: `os._exit`, a signal, a crash of native code or of its stack.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sluice.errors import DeclarationError, SluiceError
from sluice.redaction import redacted


def is_failure(exc: BaseException) -> bool:
    """Whether an exception is the failure of what was called, of whatever class.

    It is not where somebody outside wants this process to stop. Python tells only the main thread of that: Ctrl-C, and
    what Airflow's handlers of signals raise there.
    """
    if isinstance(exc, Exception):
        return True
    is_from_outside = isinstance(exc, KeyboardInterrupt) or type(exc).__module__.partition(".")[0] == "airflow"
    return not (is_from_outside and threading.current_thread() is threading.main_thread())


def described(exc: BaseException) -> str:
    """An exception's class and words, for a message; secrets are masked."""
    try:
        words = str(exc)
    except BaseException as hostile:
        if not is_failure(hostile):
            raise
        words = ""
    return redacted(f"{type(exc).__name__}: {words}" if words else type(exc).__name__)


@contextmanager
def foreign_code(
    fails: str, *, where: Callable[[BaseException], str | None], remedy: str = "correct it"
) -> Iterator[None]:
    """Whatever is raised while this lasts becomes an error of ours; errors of ours stay what they are.

    Args:
        fails: What is wrong then, such as "the declaration does not import"; what was raised follows.
        where: The place, found by what was raised.
        remedy: What to do about it.

    Raises:
        DeclarationError: Something was raised.
    """
    try:
        yield
    except SluiceError:
        raise
    except BaseException as exc:
        if not is_failure(exc):
            raise
        raise DeclarationError(f"{fails}: {described(exc)}", where=where(exc), remedy=remedy) from exc


def error_line(exc: BaseException, file: str | None = None) -> str | None:
    """`file:line` of the innermost frame of an exception that lies in `file` (or of the innermost frame at all)."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return f"{exc.filename}:{exc.lineno}"
    line = None
    trace = exc.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if (file is None and not name.startswith("<frozen")) or name == file:
            line = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line
