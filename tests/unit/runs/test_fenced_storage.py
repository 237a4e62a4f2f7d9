"""Whatever changes files goes through the fence: once another run has the lease, nothing is changed any more."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.errors import LeaseLostError
from sluice.runs.fenced_storage import FencedStorage
from sluice.runs.lease import Lease, acquire
from sluice.storage import Storage
from tests.builders import ManualClock
from tests.unit.conftest import BUCKET

CHANGES: dict[str, Callable[[Storage, str], object]] = {
    "put_if_absent": lambda storage, root: storage.put_if_absent(f"{root}/new", b"1"),
    "replace": lambda storage, root: storage.replace(f"{root}/there/1", b"1"),
    "replace_aid": lambda storage, root: storage.replace_aid(f"{root}/there/1", b"1"),
    "replace_if": lambda storage, root: storage.replace_if(f"{root}/there/1", b"1", lambda _found: True),
    "delete": lambda storage, root: storage.delete(f"{root}/there/1"),
    "delete_folder": lambda storage, root: storage.delete_folder(f"{root}/there"),
    "copy_folder": lambda storage, root: storage.copy_folder(f"{root}/there", f"{root}/copy"),
}
LOOKS = {"list_folder", "open_file", "read", "stat"}
KEEPS = {"make_durable"}
"""What gives no file another content: what others have written outlives a loss of power, whoever has the lease."""


def test_every_method_is_known() -> None:
    """A new one is sorted in here, and goes through the fence if it changes anything."""
    methods = {name for name, _ in inspect.getmembers(Storage, inspect.isfunction) if not name.startswith("_")}
    assert methods == CHANGES.keys() | LOOKS | KEEPS


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", ["disk", "objects"])
def test_nothing_is_changed_without_the_lease(tmp_path: Path, object_storage: Storage, place: str, change: str) -> None:
    root, storage = (str(tmp_path), Storage()) if place == "disk" else (BUCKET, object_storage)
    storage.replace(f"{root}/there/1", b"0")
    clock = ManualClock()

    def take() -> Lease:
        return acquire(storage, f"{root}/leases", run_id="r", sink_is_idempotent=True, clock=clock)

    lost = FencedStorage(storage, take())
    CHANGES[change](FencedStorage(storage, lost._lease), f"{root}/before")
    clock.move(600)
    held = FencedStorage(storage, take())
    with pytest.raises(LeaseLostError):
        CHANGES[change](lost, root)
    assert storage.read(f"{root}/there/1") == b"0"
    assert (storage.read(f"{root}/new"), storage.list_folder(f"{root}/copy")) == (None, None)
    CHANGES[change](held, root)
    left = [storage.read(f"{root}/{name}") for name in ("there/1", "new", "copy/1")]
    assert left != [b"0", None, None]
