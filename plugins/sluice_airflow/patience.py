"""Looking at storage from places that must not wait for it: the scheduler's loop, the end of a task."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def look_within(seconds: float, look: Callable[[], T]) -> T:
    """What `look` finds; a look that takes longer is left to itself, in a thread that keeps no process alive.

    Raises:
        TimeoutError: It took longer.
        BaseException: Whatever `look` raised.
    """
    found: Future[T] = Future()

    def work() -> None:
        try:
            found.set_result(look())
        except BaseException as exc:
            found.set_exception(exc)

    Thread(target=work, name="sluice-look", daemon=True).start()
    try:
        return found.result(timeout=seconds)
    except TimeoutError as exc:
        if found.done():
            raise
        raise TimeoutError(f"the storage did not answer within {seconds:g} s") from exc
