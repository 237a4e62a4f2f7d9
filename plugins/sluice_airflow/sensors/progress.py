"""Sensors that wait for what a stream commits: a batch, or a watermark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice_airflow.run_keys import run_key
from sluice_airflow.sensors.stream import StreamSensor
from sluice_airflow.triggers.progress import BatchTrigger, WatermarkTrigger, as_since

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.monitoring.progress import Progress


class BatchSensor(StreamSensor):
    """Waits until a batch is committed: a certain one, or any since the task began.

    Where the stream was when the task began is noted at the first look that succeeds, and kept over retries: a batch
    that was there already does not count, one that comes between two tries does.

    Returns `{"generation", "batch_id", "watermark"}` of the newest commit.

    Args:
        batch_id: Wait until this batch, or a later one, is committed. When not given, until a new one is.
        kwargs: As in `StreamSensor`.
    """

    template_fields: Sequence[str] = ("stream", "batch_id", "project")

    def __init__(self, *, batch_id: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batch_id = batch_id
        self._since: dict[str, Any] | None = None
        if self.start_from_trigger and batch_id is None:
            raise DeclarationError(
                "where the stream is when the task begins is noted by a worker",
                where=f"BatchSensor(task_id={self.task_id!r}, start_from_trigger=True)",
                remedy="give `batch_id`, or leave `start_from_trigger` out",
            )
        self._let_trigger_start()

    def trigger(self) -> BatchTrigger:
        """The trigger that waits for the same."""
        return BatchTrigger(stream=self.stream, batch_id=self.batch_id, since=self._since, project=self.project)

    def looked(self, context: Context) -> Progress:
        """How far the stream is; where the first look finds it is noted."""
        seen = self.trigger().look()
        if self.batch_id is None and self._since is None:
            # A cleared task begins anew.
            key = f"start-{run_key(context['ti'], self.retries or 0).generation}"
            store = context["task_state_store"]
            noted = store.get(key)
            if not isinstance(noted, dict):
                noted = as_since(seen)
                store.set(key, noted)
            self._since = noted
        return seen


class WatermarkSensor(StreamSensor):
    """Waits until event time has passed a moment: the committed watermark has reached it.

    That is the right way to wait for a complete hour: what is older than the watermark is late, and dropped by
    Spark's windows. A stream to which nothing comes keeps its watermark, so give a `timeout`.

    Returns `{"generation", "batch_id", "watermark"}` of the newest commit.

    Args:
        passed: The moment, in ISO 8601, UTC unless it names a zone; `{{ data_interval_end }}` by default.
        kwargs: As in `StreamSensor`.
    """

    template_fields: Sequence[str] = ("stream", "passed", "project")

    def __init__(
        self, *, passed: datetime | str = "{{ data_interval_end | default('', true) }}", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.passed = passed
        self._let_trigger_start()

    def trigger(self) -> WatermarkTrigger:
        """The trigger that waits for the same."""
        return WatermarkTrigger(stream=self.stream, passed=str(self.passed), project=self.project)
