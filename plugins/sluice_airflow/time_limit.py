"""Looking at storage from places that must not wait for it: the scheduler's loop, the end of a task.

Airflow loads this with the plugin in every process: so the library is imported where it is used.
"""

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
        Exception: Whatever `look` raised; what is no `Exception`, and would end the process, as a `DeclarationError`.
    """
    found: Future[T] = Future()

    def work() -> None:
        try:
            found.set_result(look())
        except Exception as exc:
            found.set_exception(exc)
        except BaseException as exc:
            from sluice.errors import DeclarationError
            from sluice.foreign_code import described, error_line

            found.set_exception(DeclarationError(described(exc), where=error_line(exc), remedy="correct it"))

    Thread(target=work, name="sluice-look", daemon=True).start()
    try:
        return found.result(timeout=seconds)
    except TimeoutError as exc:
        if found.done():
            raise
        raise TimeoutError(f"the storage did not answer within {seconds:g} s") from exc
