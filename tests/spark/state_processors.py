"""Processors of state, which Python's workers import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Counter(StatefulProcessor):
    """Counts the rows of a key, in all batches together."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
        before = self._count.get()[0] if self._count.exists() else 0
        now = before + sum(1 for _ in rows)
        self._count.update((now,))
        yield Row(id=key[0], count=now)

    def close(self) -> None:
        pass
