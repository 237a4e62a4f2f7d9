"""What unit tests share: storages, and how many examples property tests try: many by `HYPOTHESIS_PROFILE=campaign`."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings
from obstore.store import MemoryStore

from sluice.storage import Storage
from tests.builders import ManualClock

# No deadline: other work on the machine must not fail a test.
_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("default", max_examples=50, stateful_step_count=15, **_SHARED)
settings.register_profile("campaign", max_examples=1000, stateful_step_count=30, **_SHARED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

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
