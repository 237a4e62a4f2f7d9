"""What a run's end means to Airflow: a summary, a skip, a failure that is worth another try, or one that is not.

This is the one place that decides about retries. What an error is, its class says (`retryable` in `sluice.errors`):
refusals, wrong declarations and failed gates need a person; a lost driver, a lease that is taken, a store that is away
do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from sluice.errors import SluiceError
from sluice.runs.record import RunRecord


@contextmanager
def as_airflow_errors() -> Iterator[None]:
    """Let Airflow try again what may succeed then, and nothing else."""
    try:
        yield
    except SluiceError as exc:
        raise airflow_error(str(exc), is_retryable=exc.retryable) from exc


def airflow_error(message: str, *, is_retryable: bool) -> AirflowException:
    """A failure for Airflow: it retries what may pass by itself."""
    return AirflowException(message) if is_retryable else AirflowFailException(message)


def conclude(record: RunRecord) -> dict[str, Any]:
    """The summary of a run that did its work.

    Raises:
        AirflowSkipException: There was nothing to do.
        AirflowFailException: It failed, and trying again would not help; or quality failed it, or holds the stream.
        AirflowException: It failed; a retry may succeed.
    """
    if record.status == "skipped":
        raise AirflowSkipException(f"nothing to do: {record.plan.reason}")
    if record.status == "succeeded":
        return summary(record)
    failure = record.error
    if failure is not None:
        message = f"run {record.run_id} {record.status}: {failure.whole}"
        raise airflow_error(message, is_retryable=failure.retryable)
    if record.status == "stopped":
        raise AirflowException(f"run {record.run_id} was stopped between two batches; a retry goes on")
    raise AirflowException(f"the driver of run {record.run_id} ended without a word; its log is above; a retry goes on")


def has_written(record: RunRecord) -> bool:
    """Whether a run that succeeded has committed a batch, or replaced rows."""
    if record.interval is None:
        return bool(record.batches)
    return record.backfill is None or (record.backfill.rows_replaced, record.backfill.rows_written) != (0, 0)


def summary(record: RunRecord) -> dict[str, Any]:
    """What downstream tasks, and consumers of the asset's event, may want to know of a run.

    Keys: `run_id`, `stream`, `generation`, `status`, `batches` (ids), `input_rows`, `output_rows`, `watermark`,
    `sink_version`, `quality` (the verdict; None without a suite); of a backfill also `interval` and `replaced_rows`.
    """
    batches, backfill = record.batches, record.backfill
    found: dict[str, Any] = {
        "run_id": record.run_id,
        "stream": record.stream,
        "generation": record.generation,
        "status": record.status,
        "batches": [batch.batch_id for batch in batches],
        "input_rows": sum(batch.input_rows or 0 for batch in batches),
        "output_rows": sum(batch.output_rows or 0 for batch in batches),
        "watermark": batches[-1].watermark if batches else None,
        "sink_version": record.sink_version,
        "quality": record.quality.verdict if record.quality is not None else None,
    }
    if record.interval is not None and backfill is not None:
        interval = {"start": record.interval.start.isoformat(), "end": record.interval.end.isoformat()}
        written = {"output_rows": backfill.rows_written, "sink_version": backfill.sink_version}
        return {**found, **written, "interval": interval, "replaced_rows": backfill.rows_replaced}
    return found
