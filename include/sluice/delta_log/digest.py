"""What tells a version of a Delta table from another one of its number.

A table that is brought back from a backup has its id and fewer versions; once it was written on, it has their numbers
again, of other rows.
"""

from __future__ import annotations

import hashlib

from sluice.delta_log.table import commit_file
from sluice.storage import Storage

_MOST_BYTES = 1024 * 1024 * 1024


def version_digest(location: str, version: int, *, storage: Storage) -> str | None:
    """A digest of a version's commit; None where the table has none, or log clean-up has taken it.

    Args:
        location: Where the table is.
        version: The version, from 0.
        storage: Where the log is.

    Raises:
        StorageError: It can't be read.
    """
    content = storage.read(commit_file(location, version), max_bytes=_MOST_BYTES) if version >= 0 else None
    return None if content is None else hashlib.sha256(content).hexdigest()[:16]
