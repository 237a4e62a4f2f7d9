"""The trigger that waits for a small backlog."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from sluice.amounts import OF_EVERYTHING, UNITS, Amount, count_in, is_nothing
from sluice.monitoring.inspection import SourceLag
from sluice_airflow.triggers.shared_poll import Sighting
from sluice_airflow.triggers.stream import StreamTrigger, follow_lag, look_at_lag

logger = logging.getLogger(__name__)

_PER_PARTITION = "offsets_per_partition"
LIMITS: Mapping[str, str] = {told: f"max_{told}" for told in (*UNITS, _PER_PARTITION)}
"""By what is told of a backlog, in the units that amounts are counted in, the argument that limits it."""


class LagTrigger(StreamTrigger[dict[str, SourceLag]]):
    """Waits until what waits in a stream's sources, all together, is within every limit.

    Args:
        stream: The stream's name.
        max_files: The most files; None for no limit.
        max_offsets: The most offsets; None for no limit.
        max_offsets_per_partition: The most offsets of any one partition; None for no limit.
        max_bytes: The most bytes; None for no limit.
        max_rows: The most rows; None for no limit.
        max_age_seconds: How long the oldest of it may have waited; None for no limit.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """

    arguments: ClassVar[tuple[str, ...]] = ("stream", *LIMITS.values(), "max_age_seconds", "project")

    def __init__(
        self,
        *,
        stream: str,
        max_files: int | None = None,
        max_offsets: int | None = None,
        max_offsets_per_partition: int | None = None,
        max_bytes: int | None = None,
        max_rows: int | None = None,
        max_age_seconds: float | None = None,
        project: str | None = None,
    ) -> None:
        super().__init__(stream=stream, project=project)
        self.max_files = max_files
        self.max_offsets = max_offsets
        self.max_offsets_per_partition = max_offsets_per_partition
        self.max_bytes = max_bytes
        self.max_rows = max_rows
        self.max_age_seconds = max_age_seconds

    def follow(self) -> AsyncIterator[Sighting[dict[str, SourceLag]]]:
        """What the shared poll of the project sees."""
        return follow_lag(self.stream, self.project)

    def look(self) -> dict[str, SourceLag]:
        """What waits now."""
        return look_at_lag(self.stream, self.project)

    def met(self, seen: dict[str, SourceLag]) -> dict[str, Any] | None:
        """Whether the backlog is within the limits; what is not known is within none, nor is a batch under way."""
        if any(lag.unreadable is not None or lag.pending_batch is not None for lag in seen.values()):
            return None
        now, limits = datetime.now(UTC), {unit: getattr(self, word) for unit, word in LIMITS.items()}
        limited = {unit for unit in UNITS if limits[unit] is not None}
        amounts = [_with_zeros(lag.amount, limited) for lag in seen.values()]
        backlog: dict[str, float | None] = {unit: count_in(amounts, unit) for unit in UNITS}
        partitions = [one.offsets for lag in seen.values() for one in lag.partitions.values()]
        backlog[_PER_PARTITION] = max(partitions, default=None)
        ages = [_age(lag, now) for lag in seen.values()]
        known = [age for age in ages if age is not None]
        backlog["age_seconds"] = max(known, default=0.0) if known == ages else None
        for name, limit in [*limits.items(), ("age_seconds", self.max_age_seconds)]:
            if limit is None:
                continue
            waiting = backlog[name]
            if waiting is None:
                logger.warning("stream %s: its sources do not tell how much waits in %s", self.stream, name)
            if waiting is None or waiting > limit:
                return None
        return backlog


def _age(lag: SourceLag, now: datetime) -> float | None:
    """How long the oldest of it has waited, in seconds; None where something may wait, and nobody tells since when."""
    if is_nothing(lag.amount):
        return 0.0
    age: float | None = lag.as_json(now)["age_seconds"]
    return age


def _with_zeros(amount: Amount, limited: Collection[str]) -> Amount:
    """What waits in a source, which has nothing in the units of others once it is limited in one of its own."""
    own = [unit for unit in limited if unit not in OF_EVERYTHING]
    return {**dict.fromkeys(own, 0), **amount} if any(unit in amount for unit in own) else amount
