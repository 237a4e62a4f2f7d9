"""Reports of batches, put together from what a listener and the query itself have seen."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from sluice.spark.progress import LocalReports, RemoteReports

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
    found = RemoteReports(patience_seconds=0).reports(query(REMOTE), range(1))[0]
    assert [found[name] for name in ("numInputRows", "observedMetrics")] == [3, {"q": {"n": 3}}]
    assert found["sources"][0]["endOffset"] == {"logOffset": 0}


def test_the_listeners_report_is_the_better_one() -> None:
    """Of two reports of a batch, the one in the usual form counts."""
    log = RemoteReports(patience_seconds=0)
    log.onQueryProgress(QueryProgressEvent(StreamingQueryProgress.fromJson(USUAL)))
    assert log.reports(query(REMOTE), range(1)) == {0: USUAL}


def test_a_querys_own_report_in_the_usual_form() -> None:
    """No listener is waited for where the query tells it all."""
    assert RemoteReports(patience_seconds=600).reports(query(USUAL), range(1)) == {0: USUAL}


def local_query(told: list[dict[str, Any]]) -> Any:
    """A query in this process that keeps the last three of its reports; `read` counts how many were asked for."""
    found = SimpleNamespace(runId=RUN, read=0)

    def text(report: dict[str, Any]) -> str:
        found.read += 1
        return json.dumps(report)

    def recent() -> list[Any]:
        return [SimpleNamespace(json=partial(text, report)) for report in told[-3:]]

    found._jsq = SimpleNamespace(recentProgress=recent)
    return found


def batch(batch_id: int) -> dict[str, Any]:
    return USUAL | {"batchId": batch_id}


def idle(batch_id: int) -> dict[str, Any]:
    return USUAL | {"batchId": batch_id, "durationMs": {"latestOffset": 1}}


def test_reports_that_a_query_has_let_go_of_are_kept() -> None:
    """What was seen while the query ran is there at its end, though the query keeps its last few only."""
    told = [batch(0), batch(1)]
    log, query = LocalReports(cast("Any", None)), local_query(told)
    assert log.latest(query) == {0: batch(0), 1: batch(1)}
    told += [batch(2), batch(3), batch(4)]
    assert log.reports(query, range(5)) == {number: batch(number) for number in range(5)}
    assert log.reports(query, range(5)) == {number: batch(number) for number in (2, 3, 4)}, "it was not forgotten"


def test_reports_that_only_a_listener_has_heard() -> None:
    """A query that is asked too late has let go of its first batches, and the listener has missed one."""
    log, query = LocalReports(cast("Any", None)), local_query([batch(number) for number in range(5)])
    for number in (0, 1, 2, 4):
        event = SimpleNamespace(progress=lambda number=number: SimpleNamespace(json=lambda: json.dumps(batch(number))))
        log.onQueryProgress(event)
    assert log.reports(query, range(5)) == {number: batch(number) for number in range(5)}


def test_no_report_is_read_twice() -> None:
    """Each is a call into the JVM."""
    told = [batch(0), batch(1), batch(2)]
    log, query = LocalReports(cast("Any", None)), local_query(told)
    log.latest(query)
    told.append(batch(3))
    log.latest(query)
    assert query.read == 3 + 2, "it read more than the new one, and one that it knows"


def test_an_idle_trigger_is_no_batch() -> None:
    """It bears the number of the batch that is yet to come, which is reported all the same."""
    told = [batch(0), idle(1)]
    log, query = LocalReports(cast("Any", None)), local_query(told)
    assert log.latest(query) == {0: batch(0)}
    told.append(batch(1))
    assert log.latest(query) == {0: batch(0), 1: batch(1)}
