"""The power goes at some write: nothing is written from there on, in the home or in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sluice.sinks.delta.sink import DeltaSink
from sluice.storage import Storage

_STORAGE_WRITES = ("put_if_absent", "replace", "delete", "delete_folder")
_SINK_WRITES = ("write_batch", "write_batch_aside", "publish_batch", "replace_where", "publish", "write_aside")


class PowerCutError(Exception):
    """Nothing is written from here on."""


@contextmanager
def power_cut(at: int, moment: str) -> Iterator[list[str]]:
    """From the so-manyth write on nothing is written; tells which one that was."""
    cut: list[str] = []
    seen = [0]

    def dying(name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if cut:
                raise PowerCutError(name)
            is_lease = bool(args) and isinstance(args[0], str) and "/leases/" in args[0]
            seen[0] += not is_lease
            is_it = seen[0] == at and not is_lease
            if is_it and moment == "before":
                cut.append(f"{name} {args[0] if isinstance(args[0], str) else self}")
                raise PowerCutError(name)
            done = write(self, *args, **kwargs)
            if is_it:
                cut.append(f"{name} {args[0] if isinstance(args[0], str) else self}")
                raise PowerCutError(name)
            return done

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in _STORAGE_WRITES:
            patch.setattr(Storage, name, dying(name, getattr(Storage, name)))
        for name in _SINK_WRITES:
            patch.setattr(DeltaSink, name, dying(name, getattr(DeltaSink, name)))
        yield cut
