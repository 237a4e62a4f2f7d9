"""A look is waited for only so long."""

from __future__ import annotations

import threading

import pytest

from sluice.errors import StorageError
from sluice_airflow.time_limit import look_within


def test_what_is_found_is_given() -> None:
    """In time."""
    assert look_within(10, lambda: 7) == 7


@pytest.mark.parametrize("error", [StorageError("it is away"), TimeoutError("the store's own")])
def test_an_error_is_passed_on(error: Exception) -> None:
    """As it is, also a time-out that is not ours."""

    def look() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        look_within(10, look)
    assert raised.value is error


def test_a_look_that_takes_too_long_is_left() -> None:
    """Its thread is a daemon: it keeps no process alive."""
    answered = threading.Event()
    before = set(threading.enumerate())

    with pytest.raises(TimeoutError, match=r"did not answer within 0\.05 s"):
        look_within(0.05, answered.wait)

    (left,) = set(threading.enumerate()) - before
    assert left.daemon
    answered.set()
    left.join(10)
    assert not left.is_alive()
