"""What data is called outside: OpenLineage's names of datasets, the same for every tool that reads or writes them.

A name has two parts, as its specification lays down: `s3://bucket` and `lake/visits`, `kafka://broker:9092` and
`visits`, `file` and `/data/lake/visits`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.locations import canonical_location, is_local, local_path

_WITH_ROOTS = ("hdfs", "viewfs")
"""File systems whose paths begin with a slash; what is in a bucket or a container has a key."""


@dataclass(frozen=True)
class Dataset:
    """One dataset."""

    namespace: str
    """The store that it is in."""
    name: str
    version: int | None = None
    """Which version of it is meant; None for what has none, and where it is not known."""


def dataset_at(location: str) -> Dataset:
    """The dataset at a location: a folder, a file, or a table by its path."""
    if is_local(location):
        return Dataset("file", local_path(location).rstrip("/") or "/")
    scheme, _, rest = canonical_location(location).partition("://")
    store, _, path = rest.partition("/")
    path = path.strip("/")
    return Dataset(f"{scheme}://{store}", f"/{path}" if scheme in _WITH_ROOTS or not path else path)
