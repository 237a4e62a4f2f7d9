"""The sensor that waits for a verdict of quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from sluice.errors import DeclarationError
from sluice_airflow.sensors.stream import StreamSensor
from sluice_airflow.triggers.quality import QualityTrigger

Wanted = Literal["pass", "warn"]
OnWorse = Literal["fail", "wait"]


class QualitySensor(StreamSensor):
    """Waits until everything that arrived before a moment is judged, with a verdict that is good enough.

    The newest run that ended with a verdict counts, if its bound is the moment or later; so does an earlier one, when
    a later look found nothing new up to the moment. Backfills and runs that broke off do not count. A run that failed
    and that a person has released counts as `warn`.

    Returns `{"run_id", "verdict", "failed_checks", "released_by", "reaches"}` of that run.

    Args:
        verdict: The worst verdict that will do: `pass`, or `warn`.
        until: The moment, in ISO 8601, UTC unless it names a zone; the end of the data interval by default. Empty:
            whatever the newest run took.
        on_worse: What a worse verdict does: it fails the task for good, or the task waits for a run that does better.
        kwargs: As in `StreamSensor`.
    """

    template_fields: Sequence[str] = ("stream", "until", "project")

    def __init__(
        self,
        *,
        verdict: Wanted = "pass",
        until: str = "{{ data_interval_end | default('', true) }}",
        on_worse: OnWorse = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.verdict = verdict
        self.until = until
        self.on_worse = on_worse
        for name, value, known in (("verdict", verdict, Wanted), ("on_worse", on_worse, OnWorse)):
            if value not in get_args(known):
                raise DeclarationError(
                    f"`{name}` is {value!r}",
                    where=f"QualitySensor(task_id={self.task_id!r})",
                    remedy=f"use one of: {', '.join(get_args(known))}",
                )
        self._let_trigger_start()

    def trigger(self) -> QualityTrigger:
        """The trigger that waits for the same."""
        return QualityTrigger(
            stream=self.stream,
            verdict=self.verdict,
            until=str(self.until),
            on_worse=self.on_worse,
            project=self.project,
        )
