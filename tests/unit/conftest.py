"""What unit tests share: storages, and how hard hypothesis tries."""

from __future__ import annotations

import pytest
from hypothesis import settings
from obstore.store import MemoryStore

from sluice.storage import Storage
from tests.builders import ManualClock

# No deadline: other work on the machine must not fail a test.
settings.register_profile("unit", max_examples=80, deadline=None)
settings.load_profile("unit")

BUCKET = "memory://bucket"


@pytest.fixture
def storage() -> Storage:
    """Where files are read from and written to."""
    return Storage()


@pytest.fixture
def object_storage() -> Storage:
    """A storage whose `memory://bucket` is an object store in memory."""
    storage = Storage()
    storage._stores[BUCKET] = MemoryStore()
    return storage


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at noon of 2026-01-31, UTC."""
    return ManualClock()
