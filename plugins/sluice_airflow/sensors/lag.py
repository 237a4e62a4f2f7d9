"""The sensor that waits for a small backlog."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sluice.errors import DeclarationError
from sluice_airflow.sensors.stream import StreamSensor
from sluice_airflow.triggers.lag import LIMITS, LagTrigger


class LagSensor(StreamSensor):
    """Waits until what a stream has yet to take, from all of its sources together, is within every limit given.

    It lists the sources, as planning does: it costs more than the other sensors, and grows with what is listed.

    What waits is counted in the units in which `sluice lag` tells of it. Where a source does not tell in a unit, its
    limit is never kept; but files of some sources and offsets of others may each have a limit.

    Returns `{"files", "offsets", "bytes", "rows", "offsets_per_partition", "age_seconds"}`; what is not known is null.

    Args:
        max_files: The most files that may wait, of sources of files and Delta tables.
        max_offsets: The most offsets that may wait, of Kafka sources.
        max_offsets_per_partition: The most offsets that may wait in any one partition.
        max_bytes: The most bytes that may wait.
        max_rows: The most rows that may wait.
        max_age: How long the oldest of it may have waited.
        kwargs: As in `StreamSensor`.
    """

    def __init__(
        self,
        *,
        max_files: int | None = None,
        max_offsets: int | None = None,
        max_offsets_per_partition: int | None = None,
        max_bytes: int | None = None,
        max_rows: int | None = None,
        max_age: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_files = max_files
        self.max_offsets = max_offsets
        self.max_offsets_per_partition = max_offsets_per_partition
        self.max_bytes = max_bytes
        self.max_rows = max_rows
        self.max_age = max_age
        place = f"LagSensor(task_id={self.task_id!r})"
        amounts = self._amounts()
        for name, value, kind, meant in (
            *((word, amount, int, "a whole number") for word, amount in amounts.items()),
            ("max_age", max_age, timedelta, "a time, such as `timedelta(hours=1)`"),
        ):
            if value is not None and not isinstance(value, kind):
                raise DeclarationError(f"`{name}` is {value!r}", where=place, remedy=f"give {meant}")
        limits = (*amounts.values(), None if max_age is None else max_age.total_seconds())
        if not any(limit is not None for limit in limits) or any(limit is not None and limit < 0 for limit in limits):
            raise DeclarationError(
                "there is no limit, or one is below zero",
                where=place,
                remedy=f"give at least one of {', '.join(f'`{word}`' for word in LIMITS.values())} and `max_age`",
            )
        self._let_trigger_start()

    def _amounts(self) -> dict[str, int | None]:
        """By its word, every limit of an amount."""
        return {word: getattr(self, word) for word in LIMITS.values()}

    def trigger(self) -> LagTrigger:
        """The trigger that waits for the same."""
        return LagTrigger(
            stream=self.stream,
            **self._amounts(),
            max_age_seconds=None if self.max_age is None else self.max_age.total_seconds(),
            project=self.project,
        )
