"""A storage for the owner of a lease: nothing is written through it once another run has taken the lease over.

The lease is looked at right before every write, however long the process was stopped since the one before. A run's
record is fenced a second time, by the lease's token in it: see `RunRecords.save`.
"""

from __future__ import annotations

from collections.abc import Callable

from sluice.runs.lease import Lease
from sluice.storage import Storage


class FencedStorage(Storage):
    """Writes what another storage writes, for as long as a lease holds.

    Args:
        storage: What writes.
        lease: The right to write; every change raises `LeaseLostError` once another run has it.
    """

    def __init__(self, storage: Storage, lease: Lease) -> None:
        super().__init__(storage.options)
        self._storage, self._lease = storage, lease
        self._stores = storage._stores  # noqa: SLF001 - of its own class

    def put_if_absent(self, location: str, content: bytes) -> bool:
        self._lease.check()
        return self._storage.put_if_absent(location, content)

    def replace(self, location: str, content: bytes) -> None:
        self._lease.check()
        self._storage.replace(location, content)

    def replace_aid(self, location: str, content: bytes) -> None:
        self._lease.check()
        self._storage.replace_aid(location, content)

    def replace_if(self, location: str, content: bytes, may_replace: Callable[[bytes | None], bool]) -> bool:
        self._lease.check()
        return self._storage.replace_if(location, content, may_replace)

    def copy_folder(self, location: str, target: str) -> None:
        self._lease.check()
        self._storage.copy_folder(location, target)

    def delete(self, location: str) -> None:
        self._lease.check()
        self._storage.delete(location)

    def delete_folder(self, location: str) -> None:
        self._lease.check()
        self._storage.delete_folder(location)
