"""One api-server with the showcase for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.api_server import ApiServer
from tests.browser.showcase import Showcase, make_showcase


@pytest.fixture(scope="package")
def showcase(tmp_path_factory: pytest.TempPathFactory) -> Showcase:
    """A project with something of everything."""
    return make_showcase(tmp_path_factory.mktemp("showcase"))


@pytest.fixture(scope="package")
def server(showcase: Showcase, airflow_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Airflow's api-server."""
    with ApiServer(tmp_path_factory.mktemp("airflow") / "home", showcase, airflow_tables) as running:
        yield running
