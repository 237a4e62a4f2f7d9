"""The fixture `bench` of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.project import FILE_NAME
from sluice.testing.actions import Bench


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A bench in a temporary folder, for the project whose `sluice.toml` is nearest above the test's file."""
    above = (folder for folder in request.path.parents if (folder / FILE_NAME).is_file())
    project = next(above, None)
    with Bench(tmp_path / "bench", None if project is None else str(project)) as opened:
        yield opened
