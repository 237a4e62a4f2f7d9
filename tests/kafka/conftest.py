"""One broker for all of these tests, started by the first of them that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.kafka.broker import Broker
from tests.kafka.topics import Kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka on this machine alone; each worker of pytest-xdist that needs one has its own."""
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield Kafka(broker)
