"""Topics read and written on a Spark Connect server: planned here, where the settings are declared, and run there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import OffsetSpec
from deltalake import DeltaTable

from tests.builders import put
from tests.kafka.topics import Kafka
from tests.spark.connect_server import DELTA, Server, serving

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), DELTA) as running:
        yield running


def project(root: Path, server: Server, source: str, sink: str) -> Path:
    toml = f'[project]\nname = "p"\nstreams = ["streams"]\npath = ["."]\n[spark]\nmaster = "{server.url}"\n'
    put(root / "sluice.toml", toml.encode())
    put(root / "jobs" / "orders.py", b"def values(orders):\n    return orders.select('key', 'value')\n")
    declared = (
        "from sluice import Stream, sinks, sources\n"
        f"orders = Stream(name='orders', sources={{'orders': {source}}}, transform='jobs.orders:values', sink={sink})\n"
    )
    put(root / "streams" / "orders.py", declared.encode())
    return root


def run(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "sluice", "run", "orders"], cwd=root, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_from_topic_to_topic_to_table(tmp_path: Path, server: Server, kafka: Kafka) -> None:
    """Run after run, each goes on where the one before ended."""
    topic, out = kafka.topic(2), kafka.topic()
    read = f"sources.kafka({kafka.bootstrap!r}, topics=[{{!r}}], max_offsets_per_batch=2)"
    sent = project(tmp_path / "a", server, read.format(topic), f"sinks.kafka({kafka.bootstrap!r}, topic={out!r})")
    kept = project(tmp_path / "b", server, read.format(out), "sinks.delta('table')")
    found = []
    for values in (["1", "2", "3"], ["4"]):
        kafka.send(topic, [(value, value) for value in values], partition=1)
        for root in (sent, kept):
            code, told = run(root)
            assert code == 0, told
        found.append(sorted(DeltaTable(str(kept / "table")).to_pyarrow_table()["value"].to_pylist()))

    assert found == [[b"1", b"2", b"3"], [b"1", b"2", b"3", b"4"]]
    assert kafka.offsets(out, OffsetSpec.latest()) == {0: 4}
