"""What data is called outside: by OpenLineage's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openlineage.client.naming import dataset as naming

from sluice import sinks, sources
from sluice.datasets import Dataset, dataset_at
from sluice.sinks.contract import Sink
from sluice.sources.contract import Source
from sluice.surroundings import Surroundings


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("/data/lake/visits", naming.LocalFileSystem("/data/lake/visits")),
        ("/data/lake/visits/", naming.LocalFileSystem("/data/lake/visits")),
        ("file:///data/my%20lake", naming.LocalFileSystem("/data/my lake")),
        ("s3://bucket/lake/visits", naming.S3("bucket", "lake/visits")),
        ("s3a://bucket/lake/visits/", naming.S3("bucket", "lake/visits")),
        ("gs://bucket/lake", naming.GCS("bucket", "lake")),
        ("abfss://lake@store.dfs.core.windows.net/visits/all", naming.ABFSS("lake", "store", "visits/all")),
        ("wasbs://lake@store.dfs.core.windows.net/visits", naming.WASBS("lake", "store", "visits")),
        ("hdfs://namenode:8020/data/visits", naming.HDFS("namenode", "8020", "/data/visits")),
    ],
)
def test_locations(location: str, named: naming.DatasetNaming) -> None:
    """As OpenLineage's client names what is there."""
    assert dataset_at(location) == Dataset(named.get_namespace(), named.get_name())


def test_a_whole_bucket_has_a_name() -> None:
    """No dataset is without one."""
    assert dataset_at("s3://bucket") == Dataset("s3://bucket", "/")
    assert dataset_at("/") == Dataset("file", "/")


TOPICS = [naming.Kafka("broker-1", "9092", topic) for topic in ("orders", "returns")]
ORDERS, RETURNS = (Dataset(topic.get_namespace(), topic.get_name()) for topic in TOPICS)
SERVERS = "broker-1:9092, broker-2:9092"


@pytest.mark.parametrize(
    ("source", "end", "datasets"),
    [
        (sources.files("/in/2026-*/*.json", format="text"), {"logOffset": 3}, (Dataset("file", "/in"),)),
        (sources.files("/in", format="text"), None, (Dataset("file", "/in"),)),
        (sources.delta("s3://b/t"), None, (Dataset("s3://b", "t"),)),
        (sources.delta("/t"), {"reservoirVersion": 8, "reservoirId": "x", "index": -1}, (Dataset("file", "/t", 7),)),
        (sources.delta("/t"), {"reservoirVersion": 8, "reservoirId": "x", "index": 2}, (Dataset("file", "/t", 8),)),
        (sources.delta("/t"), {"reservoirVersion": "none"}, (Dataset("file", "/t"),)),
        (sources.kafka(SERVERS, topics=["orders", "returns"]), None, (ORDERS, RETURNS)),
        (sources.kafka(SERVERS, pattern="o.*|r.*"), {"orders": {"0": 1}, "returns": {}}, (ORDERS, RETURNS)),
        (sources.kafka(SERVERS, pattern="o.*"), None, ()),
        (sources.kafka(SERVERS, pattern="o.*"), "damaged", ()),
        (sources.other("rate"), None, ()),
        (sources.rate_micro_batch(rows_per_batch=1), None, ()),
    ],
)  # fmt: skip
def test_sources(source: Source, end: Any, datasets: tuple[Dataset, ...]) -> None:
    """Each kind by what it reads; of a pattern of topics, those that the offset has."""
    assert source.datasets(end) == datasets


@pytest.mark.parametrize(
    ("sink", "dataset"),
    [
        (sinks.delta("s3://b/t"), Dataset("s3://b", "t")),
        (sinks.files("/out", format="json"), Dataset("file", "/out")),
        (sinks.kafka(SERVERS, topic="orders"), ORDERS),
        (sinks.kafka(SERVERS), None),
        (sinks.console(), None),
        (sinks.foreach_batch("jobs:write"), None),
        (sinks.noop(), None),
    ],
)
def test_sinks(sink: Sink, dataset: Dataset | None) -> None:
    """Each kind by where it writes; where each row says its own topic, and where a function writes, nobody knows."""
    assert sink.dataset == dataset


def test_relative_paths_are_named_once_they_are_resolved(tmp_path: Path) -> None:
    """Two projects may have the same."""
    assert sources.delta("lake/t").resolved(Surroundings(str(tmp_path))).datasets(None) == (
        Dataset("file", f"{tmp_path}/lake/t"),
    )
