"""The sensor that waits for a small backlog."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sluice.errors import DeclarationError
from sluice_airflow.sensors.stream import StreamSensor
from sluice_airflow.triggers.lag import LagTrigger


class LagSensor(StreamSensor):
    """Waits until what a stream has yet to take, from all of its sources together, is within every limit given.

    It lists the sources, as planning does: it costs more than the other sensors, and grows with what is listed.

    Returns `{"files", "bytes", "age_seconds"}`.

    Args:
        max_files: The most files that may wait.
        max_bytes: The most bytes that may wait.
        max_age: How long the oldest of it may have waited.
        kwargs: As in `StreamSensor`.
    """

    def __init__(
        self,
        *,
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_age: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_files = max_files
        self.max_bytes = max_bytes
        self.max_age = max_age
        place = f"LagSensor(task_id={self.task_id!r})"
        for name, value, kind, meant in (
            ("max_files", max_files, int, "a whole number"),
            ("max_bytes", max_bytes, int, "a whole number"),
            ("max_age", max_age, timedelta, "a time, such as `timedelta(hours=1)`"),
        ):
            if value is not None and not isinstance(value, kind):
                raise DeclarationError(f"`{name}` is {value!r}", where=place, remedy=f"give {meant}")
        limits = (max_files, max_bytes, None if max_age is None else max_age.total_seconds())
        if not any(limit is not None for limit in limits) or any(limit is not None and limit < 0 for limit in limits):
            raise DeclarationError(
                "there is no limit, or one is below zero",
                where=place,
                remedy="give at least one of `max_files`, `max_bytes` and `max_age`",
            )
        self._let_trigger_start()

    def trigger(self) -> LagTrigger:
        """The trigger that waits for the same."""
        return LagTrigger(
            stream=self.stream,
            max_files=self.max_files,
            max_bytes=self.max_bytes,
            max_age_seconds=None if self.max_age is None else self.max_age.total_seconds(),
            project=self.project,
        )
