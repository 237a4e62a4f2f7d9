"""Spark's Python workers in tests: they import what tests declare, wherever the test stood that came first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[1]


@contextmanager
def importing_tests() -> Iterator[None]:
    """A JVM that is started meanwhile starts workers that import `tests`; one JVM serves a whole process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(_REPOSITORY), os.environ.get("PYTHONPATH")])))
        yield
