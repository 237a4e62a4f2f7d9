"""What Spark reports of its batches, from two sides: a listener, and the query's own recent progress.

The query keeps about the last 100 reports, and a listener's events arrive late and can be dropped: together they miss
nothing that either has seen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from sluice.sources.contract import SOURCE_METRICS

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

Report = dict[str, Any]
"""One progress report: Spark's own JSON, decoded."""


class ProgressLog(StreamingQueryListener):
    """Collects the reports of every query of a session, by run id and batch id."""

    def __init__(self) -> None:
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
            self._keep(json.loads(event.progress.json))
            self._changed.notify_all()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """No more reports of this query will come."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def drain(self, *, patience_seconds: float = 10.0) -> None:
        """Wait for the events of every query that was started: Spark sends them after the query has ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=patience_seconds)

    def reports(self, query: StreamingQuery, batch_ids: range, *, patience_seconds: float = 10.0) -> dict[int, Report]:
        """The reports of a query that has ended, by batch id.

        Args:
            query: The query.
            batch_ids: The batches that it committed.
            patience_seconds: How long a listener's last events are waited for when the query itself does not have
                them any more.
        """
        run_id = str(query.runId)
        own = [json.loads(recent.json) for recent in query.recentProgress]
        with self._changed:
            for report in own:
                if not _is_remote(report):
                    self._keep(report)
            self._changed.wait_for(
                lambda: run_id in self._ended or self._has(run_id, batch_ids), timeout=patience_seconds
            )
            for report in own:
                if _is_remote(report) and not self._has(run_id, range(report["batchId"], report["batchId"] + 1)):
                    self._keep(_plain(report))
            return dict(self._reports.pop(run_id, {}))

    def latest(self, run_id: str) -> dict[int, Report]:
        """What is known so far of a query that is running."""
        with self._changed:
            return dict(self._reports.get(run_id, {}))

    def _has(self, run_id: str, batch_ids: range) -> bool:
        return all(batch_id in self._reports.get(run_id, {}) for batch_id in batch_ids)

    def _keep(self, report: Report) -> None:
        # An idle trigger reports the id of the next batch, without having run it.
        if "addBatch" in report.get("durationMs", {}):
            self._reports.setdefault(str(report["runId"]), {})[int(report["batchId"])] = report


def _is_remote(report: Report) -> bool:
    """Whether this is a query's own report over Spark Connect: the server's object as it is, not its usual JSON."""
    return "numInputRows" not in report


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
