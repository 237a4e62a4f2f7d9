"""Reports of batches, put together from what a listener and the query itself have seen."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from sluice.spark.progress import ProgressLog

RUN = "85d30370-88fd-4f94-89f7-c8cad6769d67"
BATCH = {
    "id": "3b8791a2-0dad-4560-a4ec-6ecb09df4e7e",
    "runId": RUN,
    "name": None,
    "timestamp": "2026-11-21T10:04:30.916Z",
    "batchId": 0,
    "batchDuration": 3046,
    "durationMs": {"addBatch": 2720},
    "stateOperators": [],
    "sink": {"description": "DeltaSink[/out]", "numOutputRows": -1},
}
SOURCE = {"description": "FileStreamSource[file:/in]", "startOffset": None, "latestOffset": None, "numInputRows": 3}
USUAL = BATCH | {
    "numInputRows": 3,
    "inputRowsPerSecond": 0.0,
    "processedRowsPerSecond": 1.0,
    "sources": [SOURCE | {"endOffset": {"logOffset": 0}, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 1.0}],
    "observedMetrics": {"q": {"n": 3}},
}
FIELD = {"name": "n", "type": "long", "nullable": False, "metadata": {}}
REMOTE = BATCH | {
    "sources": [SOURCE | {"endOffset": '{"logOffset":0}'}],
    "observedMetrics": {"q": {"values": [3], "schema": {"type": "struct", "fields": [FIELD]}}},
}
"""The same batch as a query on a Spark Connect server tells it of itself, as recorded from Spark 4.2."""


def query(*reports: Any) -> Any:
    return SimpleNamespace(runId=RUN, recentProgress=[SimpleNamespace(json=json.dumps(report)) for report in reports])


def test_a_querys_own_report_over_connect() -> None:
    """Where no listener was told, the server's object is read as the usual JSON."""
    found = ProgressLog().reports(query(REMOTE), range(1), patience_seconds=0)[0]
    assert [found[name] for name in ("numInputRows", "observedMetrics")] == [3, {"q": {"n": 3}}]
    assert found["sources"][0]["endOffset"] == {"logOffset": 0}


def test_the_listeners_report_is_the_better_one() -> None:
    """Of two reports of a batch, the one in the usual form counts."""
    log = ProgressLog()
    log.onQueryProgress(QueryProgressEvent(StreamingQueryProgress.fromJson(USUAL)))
    assert log.reports(query(REMOTE), range(1), patience_seconds=0) == {0: USUAL}


def test_a_querys_own_report_in_this_process() -> None:
    """No listener is waited for where the query tells it all."""
    assert ProgressLog().reports(query(USUAL), range(1), patience_seconds=600) == {0: USUAL}
