"""What Spark reports of its batches.

A query keeps its last hundred reports, which is all that is needed of one that runs a batch. Of one that drains a
source, a listener hears more, as it does over Spark Connect, where a query's own reports lack some of the words. But a
listener's events arrive late and can be dropped: both together miss nothing that either has seen.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.streaming.listener import StreamingQueryListener

from sluice.runs.record import StateRecord
from sluice.sources.coded import CodedSource
from sluice.sources.contract import SOURCE_METRICS
from sluice.spark.classic_plan import java_class
from sluice.spark.connect_session import is_connected
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

Report = dict[str, Any]
"""One progress report: Spark's own JSON, decoded."""


class ProgressLog(Protocol):
    """The reports of a session's queries, by run and batch id."""

    def latest(self, query: StreamingQuery) -> dict[int, Report]:
        """What is known so far of a query that is running."""
        ...

    def forget(self, query: StreamingQuery, below: int) -> None:
        """Forget what is known of the batches below one, which are counted in."""
        ...

    def reports(self, query: StreamingQuery, batch_ids: range) -> dict[int, Report]:
        """The reports of a query that has ended, which are then forgotten.

        Args:
            query: The query.
            batch_ids: The batches that it committed.
        """
        ...


@contextmanager
def progress_of(session: SparkSession, stream: Stream, *, drains: bool) -> Iterator[ProgressLog]:
    """Keep the reports of the queries that are started meanwhile.

    Args:
        session: Where they run.
        stream: Whose they are; they are analysed by now.
        drains: Whether one of them may run more batches than it keeps reports of.
    """
    log: LocalReports | RemoteReports = RemoteReports() if is_connected(session) else LocalReports(session)
    if not drains and isinstance(log, LocalReports):
        yield log
        return
    if isinstance(log, RemoteReports) and any(isinstance(one, CodedSource) for one in stream.sources.values()):
        # What the server's Pythons have counted while they analysed a data source comes with the next answer, whatever
        # that is about; pyspark ends a listener that is told of it, and each batch would wait for reports in vain.
        session.range(1).collect()
    session.streams.addListener(log)
    try:
        yield log
    finally:
        if isinstance(log, RemoteReports):
            log.drain()
        try:
            session.streams.removeListener(log)
        except Exception:
            # Spark is gone, and what it failed with is what matters.
            logger.warning("the listener could not be taken away", exc_info=True)


class LocalReports(StreamingQueryListener):
    """What queries in this process tell of themselves, and what a listener hears of them.

    Both are read as text. pyspark makes objects of each report and event, with hundreds of calls into the JVM: that was
    a quarter of what a small warm run cost.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._own: dict[str, dict[int, Report]] = {}
        self._heard: dict[str, dict[int, Report]] = {}

    @cached_property
    def _jlistener(self) -> Any:
        wrapper = "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper"
        return java_class(self._session, wrapper)(self)

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is waited for."""

    def onQueryIdle(self, event: Any) -> None:
        """An idle query has no batch to report."""

    def onQueryProgress(self, event: Any) -> None:
        """Keep a batch's report, of the event as the JVM has it."""
        _keep(self._heard, json.loads(event.progress().json()))

    def onQueryTerminated(self, event: Any) -> None:
        """The query itself has its last reports."""

    class Java:
        """What py4j asks for the interface that this implements."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def latest(self, query: StreamingQuery) -> dict[int, Report]:
        """See `ProgressLog`."""
        started: Any = query
        run_id = str(query.runId)
        known = self._own.get(run_id, {})
        recent = started._jsq.recentProgress()
        for index in range(len(recent) - 1, -1, -1):
            report = json.loads(recent[index].json())
            if report["batchId"] in known:
                break
            _keep(self._own, report)
        return self._heard.get(run_id, {}) | self._own.get(run_id, {})

    def forget(self, query: StreamingQuery, below: int) -> None:
        """See `ProgressLog`. The newest of them stays: by it, it is known which of the query's own are new."""
        for known in (self._own, self._heard):
            _forget(known, query, below - 1)

    def reports(self, query: StreamingQuery, batch_ids: range) -> dict[int, Report]:
        """See `ProgressLog`. Each is there before the query ends."""
        found = self.latest(query)
        self._own.pop(str(query.runId), None)
        self._heard.pop(str(query.runId), None)
        return found


class RemoteReports(StreamingQueryListener):
    """What a listener hears of the queries on a server, and what they tell of themselves."""

    def __init__(self, *, patience_seconds: float = 10.0) -> None:
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self._reports: dict[str, dict[int, Report]] = {}
        self._running: set[str] = set()
        self._ended: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember that this query's end must be waited for."""
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """An idle query has no batch to report."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep a batch's report."""
        with self._changed:
            _keep(self._reports, json.loads(event.progress.json))
            self._changed.notify_all()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """No more reports of this query will come."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait for the events of every query that was started: Spark sends them after the query has ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=self._patience_seconds)

    def latest(self, query: StreamingQuery) -> dict[int, Report]:
        """See `ProgressLog`."""
        with self._changed:
            return dict(self._reports.get(str(query.runId), {}))

    def forget(self, query: StreamingQuery, below: int) -> None:
        """See `ProgressLog`."""
        with self._changed:
            _forget(self._reports, query, below)

    def reports(self, query: StreamingQuery, batch_ids: range) -> dict[int, Report]:
        """See `ProgressLog`. The listener's last events are waited for, and what has not come is the query's own."""
        run_id = str(query.runId)
        own = [json.loads(recent.json) for recent in query.recentProgress]
        with self._changed:
            for report in own:
                if _is_usual(report):
                    _keep(self._reports, report)
            self._changed.wait_for(
                lambda: run_id in self._ended or self._has(run_id, batch_ids), timeout=self._patience_seconds
            )
            for report in own:
                if not _is_usual(report) and not self._has(run_id, range(report["batchId"], report["batchId"] + 1)):
                    _keep(self._reports, _plain(report))
            return self._reports.pop(run_id, {})

    def _has(self, run_id: str, batch_ids: range) -> bool:
        return all(batch_id in self._reports.get(run_id, {}) for batch_id in batch_ids)


def _keep(reports: dict[str, dict[int, Report]], report: Report) -> None:
    # An idle trigger reports the id of the next batch, without having run it.
    if "addBatch" in report.get("durationMs", {}):
        reports.setdefault(str(report["runId"]), {})[int(report["batchId"])] = report


def _forget(reports: dict[str, dict[int, Report]], query: StreamingQuery, below: int) -> None:
    known = reports.get(str(query.runId), {})
    # A listener's thread adds to it meanwhile.
    for batch_id in [one for one in list(known) if one < below]:
        del known[batch_id]


def _is_usual(report: Report) -> bool:
    """Whether this is Spark's usual JSON; a query's own report over Connect is the server's object as it is."""
    return "numInputRows" in report


def _plain(report: Report) -> Report:
    """The usual JSON of a query's own report over Spark Connect."""
    sources = [
        source | {key: json.loads(source[key]) for key in ("startOffset", "endOffset") if source.get(key)}
        for source in report["sources"]
    ]
    observed = {
        name: dict(zip((column["name"] for column in row["schema"]["fields"]), row["values"], strict=True))
        for name, row in report["observedMetrics"].items()
    }
    rows = sum(source["numInputRows"] for source in sources)
    return report | {"sources": sources, "observedMetrics": observed, "numInputRows": rows}


def source_metric(observed: Mapping[str, Mapping[str, Any]], metric: str) -> dict[str, int]:
    """One of the metrics that sources observe, by source."""
    return {
        name.removeprefix(SOURCE_METRICS): found[metric]
        for name, found in observed.items()
        if name.startswith(SOURCE_METRICS) and metric in found
    }


def late_rows(report: Report) -> int | None:
    """The rows that stateful operators dropped by the watermark; None when there are none of them."""
    counts = [operator.get("numRowsDroppedByWatermark") for operator in report.get("stateOperators", [])]
    return sum(count for count in counts if count is not None) if counts else None


def kept_state(report: Report) -> tuple[StateRecord, ...]:
    """What each stateful operator keeps after a batch, in the order of Spark's report."""
    return tuple(
        StateRecord(
            operator=str(operator.get("operatorName", "")),
            rows=int(operator.get("numRowsTotal", 0)),
            updated_rows=int(operator.get("numRowsUpdated", 0)),
            removed_rows=int(operator.get("numRowsRemoved", 0)),
            late_rows=int(operator.get("numRowsDroppedByWatermark", 0)),
            memory_bytes=int(operator.get("memoryUsedBytes", 0)),
        )
        for operator in report.get("stateOperators", [])
    )
