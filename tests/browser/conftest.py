"""One api-server with the showcase for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.api_server import ApiServer
from tests.browser.showcase import Showcase, make_showcase


@pytest.fixture(scope="session")
def showcase(tmp_path_factory: pytest.TempPathFactory) -> Showcase:
    """A project with something of everything."""
    return make_showcase(tmp_path_factory.mktemp("showcase"))


@pytest.fixture(scope="session")
def server(showcase: Showcase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Airflow's api-server."""
    with ApiServer(tmp_path_factory.mktemp("airflow") / "home", showcase) as running:
        yield running
