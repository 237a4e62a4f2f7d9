"""Triggers that wait for what a stream commits: a batch, or a watermark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

from sluice.errors import DeclarationError
from sluice.monitoring.progress import Progress
from sluice.times import epoch_micros, iso_millis, parse_time
from sluice_airflow.triggers.shared_poll import Sighting
from sluice_airflow.triggers.stream import StreamTrigger, follow_progress, look_at_progress


class ProgressTrigger(StreamTrigger[Progress]):
    """Waits for something about the newest commit."""

    def follow(self) -> AsyncIterator[Sighting[Progress]]:
        """What the shared poll of the project sees."""
        return follow_progress(self.stream, self.project)

    def look(self) -> Progress:
        """How far the stream has come now."""
        return look_at_progress(self.stream, self.project)


class BatchTrigger(ProgressTrigger):
    """Waits until a batch is committed.

    Args:
        stream: The stream's name.
        batch_id: The batch; it, or a later one, must be committed. None for any that is newer than `since`.
        since: Where the stream was when the waiting began, as `as_since` writes it; None where nobody could look by
            then, and the first look counts.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """

    arguments: ClassVar[tuple[str, ...]] = ("stream", "batch_id", "since", "project")

    def __init__(
        self,
        *,
        stream: str,
        batch_id: int | str | None = None,
        since: dict[str, Any] | None = None,
        project: str | None = None,
    ) -> None:
        super().__init__(stream=stream, project=project)
        self.batch_id = batch_id
        self.since = since

    def met(self, seen: Progress) -> dict[str, Any] | None:
        """Whether the batch is there."""
        batch_id = _batch_id(self.batch_id)
        if batch_id is not None:
            return as_json(seen) if seen.batch_id is not None and seen.batch_id >= batch_id else None
        if self.since is None:
            self.since = as_since(seen)
        if seen.batch_id is None:
            return None
        since, before = self.since, self.since.get("batch_id")
        if since.get("query_id") not in {None, seen.query_id}:
            raise DeclarationError(
                "another checkpoint took the stream over while a new batch was waited for",
                where=f"generation {seen.generation}",
                remedy="it was rewound, forked or begun anew, and counts its batches anew: clear the task",
            )
        return as_json(seen) if before is None or seen.batch_id > before else None


class WatermarkTrigger(ProgressTrigger):
    """Waits until event time has passed a moment: the watermark has reached it, and what was due by then is committed.

    Args:
        stream: The stream's name.
        passed: The moment, in ISO 8601.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """

    arguments: ClassVar[tuple[str, ...]] = ("stream", "passed", "project")

    def __init__(self, *, stream: str, passed: str, project: str | None = None) -> None:
        super().__init__(stream=stream, project=project)
        self.passed = passed

    def met(self, seen: Progress) -> dict[str, Any] | None:
        """Whether the watermark has reached the moment, and the rows that were due by then are in the sink."""
        try:
            moment = parse_time(self.passed)
        except DeclarationError as exc:
            raise DeclarationError(exc.problem, where="passed", remedy="write ISO 8601: 2026-01-31T12:00:00Z") from exc
        if moment is None:
            raise DeclarationError(
                "there is no time to wait for: the template gave nothing",
                where="passed",
                remedy="a manual or asset-triggered run has no data interval: give a time of its own",
            )
        return as_json(seen) if seen.has_passed(epoch_micros(moment) / 1000) else None


def as_json(seen: Progress) -> dict[str, Any]:
    """What a sensor returns, and a watcher tells."""
    return {"generation": seen.generation, "batch_id": seen.batch_id, "watermark": iso_millis(seen.watermark_ms)}


def as_since(seen: Progress) -> dict[str, Any]:
    """Where a stream was, for `BatchTrigger`."""
    return {"query_id": seen.query_id, "batch_id": seen.batch_id}


def _batch_id(value: int | str | None) -> int | None:
    text = "" if value is None else str(value).strip()
    if text in {"", "None"}:
        return None
    if not text.isdecimal():
        raise DeclarationError(f"{value!r} is no batch", where="batch_id", remedy="give a whole number from 0 on")
    return int(text)
