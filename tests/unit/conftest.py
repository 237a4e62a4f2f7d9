"""What unit tests share: storages, and how hard hypothesis tries."""

from __future__ import annotations

import sys

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


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither settings of Sluice from outside, nor modules that a test's project leaves."""
    for variable in ("NAME", "HOME", "STREAMS", "PATH", "PROJECT", "SPARK_MASTER"):
        monkeypatch.delenv(f"SLUICE_{variable}", raising=False)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
