"""The watcher of an asset that changes whenever a stream commits, whoever runs the stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

from sluice.monitoring.progress import Progress
from sluice.times import iso_millis
from sluice_airflow.triggers.shared_poll import Sighting
from sluice_airflow.triggers.stream import follow_progress
from sluice_airflow.triggers.watch import News, Position, StreamWatch


class CommitWatch(StreamWatch[Progress]):
    """Tells of every committed batch, once: an event names the first and the last batch that it tells of.

    The first event tells of all that was committed before. A checkpoint that takes the stream over (a rewind, a
    fork, a new beginning) counts its batches anew, and is told from its first batch on.

    The payload: `{"stream", "generation", "query_id", "first_batch_id", "batch_id", "watermark"}`.
    """

    key: ClassVar[str] = "sluice_commits"

    @classmethod
    def follow(cls, stream: str, project: str | None) -> AsyncIterator[Sighting[Progress]]:
        """What the shared poll of the project sees."""
        return follow_progress(stream, project)

    def news(self, told: Position, seen: Progress) -> News | None:
        """The batches that were committed since."""
        if seen.batch_id is None:
            return None
        is_same = told.get("query_id") == seen.query_id
        first = told["batch_id"] + 1 if is_same and "batch_id" in told else 0
        if first > seen.batch_id:
            return None
        payload = {
            "stream": self.stream,
            "generation": seen.generation,
            "query_id": seen.query_id,
            "first_batch_id": first,
            "batch_id": seen.batch_id,
            "watermark": iso_millis(seen.watermark_ms),
        }
        return News(payload, {"query_id": seen.query_id, "batch_id": seen.batch_id})
