"""Deadlines by event time: until a run has succeeded, its stream's watermark must not be too old.

Airflow loads this with the plugin in every process, also for tasks that have nothing to do with streams: so the library
is imported where it is used.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from airflow.sdk.definitions.deadline import BaseDeadlineReference

from sluice_airflow.time_limit import look_within

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 3.0
"""How long the making of a DAG run may wait for the home: the scheduler makes them one after another."""
_CALLBACK_PATIENCE_SECONDS = 30.0


class StreamWatermark(BaseDeadlineReference):
    """Where a stream's committed watermark is when a DAG run is made; `stream_watermark` makes one.

    Airflow asks once per DAG run, in the process that makes it: the scheduler, or the API server. There it must not
    fail, for the run would not be made; nor may a deadline silently vanish with what it watches. So where there is no
    watermark, or none can be read, the deadline counts from the making of the run, and the log says why.

    No declaration is imported there: only `sluice.toml` and the checkpoint are read.

    Args:
        stream: The stream's name.
        project: The folder of `sluice.toml`; None for Airflow's own project.
        checkpoint: The stream's checkpoint where it is not in the home.
    """

    required_kwargs = frozenset({"dag_id", "run_id"})
    """What Airflow tells of the run; the log names it."""

    def __init__(self, stream: str, project: str | None = None, checkpoint: str | None = None) -> None:
        self.stream, self.project, self.checkpoint = stream, project, checkpoint

    @property
    def reference_name(self) -> str:
        """What Airflow's UI shows: "must complete within 3h of ..."."""
        return f"watermark of {self.stream}"

    def serialize_reference(self) -> dict[str, Any]:
        """What Airflow keeps in its database."""
        kept = {"stream": self.stream, "project": self.project, "checkpoint": self.checkpoint}
        return super().serialize_reference() | kept

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> StreamWatermark:
        """Make it from what Airflow has kept."""
        return cls(*(reference_data.get(name) for name in ("stream", "project", "checkpoint")))  # type: ignore[arg-type]

    def _evaluate_with(self, *, dag_id: str, run_id: str, **_: object) -> datetime:
        """The moment from which the deadline's interval counts; Airflow's contract."""
        now = datetime.now(UTC)
        try:
            watermark_ms = look_within(_PATIENCE_SECONDS, self.watermark_ms)
        except Exception as exc:
            # Whatever it is: the run must be made.
            reason = f"can't be read: {exc}"
        else:
            # A watermark of the future, as broken clocks make them, is not late.
            if watermark_ms is not None:
                return min(_moment(watermark_ms), now)
            reason = "is not there yet: the stream has committed none"
        logger.warning(
            "the deadline of run %s of DAG %s counts from now on: the watermark of stream %s %s",
            run_id, dag_id, self.stream, reason,
        )  # fmt: skip
        return now

    def watermark_ms(self) -> int | None:
        """The newest committed watermark, in milliseconds since the epoch; None before there is one.

        Raises:
            SluiceError: The project is not right, or the checkpoint can't be read.
        """
        from sluice.monitoring.progress import read_progress
        from sluice_airflow.projects import airflow_project

        project = airflow_project(self.project)
        home = project.home_named(self.stream, self.checkpoint)
        return read_progress(home).watermark_ms


def stream_watermark(stream: str, *, project: str | None = None) -> StreamWatermark:
    """The reference of a `DeadlineAlert` on how old a stream's data may be until a run has succeeded.

    Args:
        stream: The stream's name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The stream is not declared, or the project is not right: the DAG is not imported, and says so.
    """
    from sluice_airflow.projects import airflow_project, project_for_others

    declared = airflow_project(project).stream(stream)
    return StreamWatermark(declared.name, project_for_others(project), declared.checkpoint)


async def report_delay(*, stream: str, project: str | None = None, context: Mapping[str, Any]) -> None:
    """A callback of a `DeadlineAlert`: says in the triggerer's log how old the stream's data is now.

    Airflow has computed the deadline when the run was made; the watermark may have moved since. It returns nothing:
    Airflow would make a tag of its metrics out of that, and a new one each time.

    Args:
        stream: The stream's name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
        context: Airflow's: the DAG run and the deadline.
    """
    try:
        watermark_ms = await anyio.to_thread.run_sync(_watermark_now, stream, project)
    except Exception as exc:
        # An alert that can't say how late is better than none.
        age = f"can't be read: {exc}"
    else:
        age = _age(watermark_ms, datetime.now(UTC))
    run, deadline = context.get("dag_run") or {}, context.get("deadline") or {}
    logger.warning(
        "stream %s missed its deadline %s: run %s of DAG %s had not succeeded by then; the watermark %s",
        stream, deadline.get("deadline_time"), run.get("dag_run_id"), run.get("dag_id"), age,
    )  # fmt: skip


def _watermark_now(stream: str, project: str | None) -> int | None:
    return look_within(_CALLBACK_PATIENCE_SECONDS, stream_watermark(stream, project=project).watermark_ms)


def _moment(milliseconds: int) -> datetime:
    """The moment; before the epoch, as broken clocks make them, the epoch."""
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=max(milliseconds, 0))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _age(watermark_ms: int | None, now: datetime) -> str:
    from sluice.times import iso_millis, iso_time

    if watermark_ms is None:
        return "is not there yet"
    behind = now - _moment(watermark_ms)
    return f"is {iso_millis(watermark_ms)}, {timedelta(seconds=round(behind.total_seconds()))} behind {iso_time(now)}"
