"""What is measured when a task that ran a stream is over, and that measuring fails and delays no task."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats
from airflow_project import StreamProject
from committed import commit

from sluice.plan_document import PlanDocument
from sluice.runs.record import BatchRecord, CheckRecord, QualityRecord, RunRecord, RunRecords, new_run_id
from sluice.sources.files.source import FilesSource
from sluice_airflow import run_metrics
from sluice_airflow.listeners import stream_metrics
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.operators.run_together import RunTogetherOperator
from sluice_airflow.plugin import SluicePlugin
from sluice_airflow.run_metrics import measure
from tests.builders import put

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "flights/manual__1/events/-1/2"


def ended_task(project: StreamProject, state: str = "success") -> Any:
    """A task instance as a worker has it at its end: the fourth try of its second clearing."""
    task = RunStreamOperator(task_id="events", stream="events", project=str(project.root), retries=1)
    return SimpleNamespace(
        task=task, dag_id="flights", run_id="manual__1", task_id="events", map_index=-1, max_tries=3, try_number=4,
        state=state,
    )  # fmt: skip


def keep_record(project: StreamProject, *batches: BatchRecord, status: Any = "succeeded", **changes: Any) -> RunRecord:
    """Let the task's run have left a record."""
    known = {"run_key": KEY, "planned_at": NOW, "plan": PlanDocument(), "started_at": "2026-01-01T00:00:00.000Z"}
    record = RunRecord(
        run_id=new_run_id(NOW, KEY), stream="events", generation=1, status=status, batches=batches, **known | changes
    )
    RunRecords(project.home()).save(record)
    return record


def batch(batch_id: int, rows_in: int | None, rows_out: int | None) -> BatchRecord:
    return BatchRecord(batch_id=batch_id, kind="data", input_rows=rows_in, output_rows=rows_out, watermark=None)


def measured(task_instance: Any, outcome: str = "succeeded") -> dict[str, float]:
    return {found.name: found.value for found in measure(task_instance, outcome)}


def test_a_run_is_measured(stream_project: StreamProject) -> None:
    """Its batches and rows, how long it took, how late the data is, and what waits."""
    keep_record(stream_project, batch(0, 3, 2), batch(1, 4, 4), ended_at="2026-01-01T00:00:02.500Z")
    commit(stream_project, 1, watermark_ms=int((datetime.now(UTC) - timedelta(hours=1)).timestamp() * 1000))

    found = measured(ended_task(stream_project))

    assert 3600 <= found.pop("watermark_delay") < 3700
    assert {name: value for name, value in found.items() if not name.startswith("backlog")} == {
        "run.succeeded": 1, "unbalanced_runs": 0, "batches": 2, "rows.in": 7, "rows.out": 6, "run.duration": 2500,
    }  # fmt: skip


def test_a_verdict_is_measured(stream_project: StreamProject) -> None:
    """Which it was, how many checks failed, and what the suite has taken away; a run without a suite tells nothing."""
    checks = tuple(CheckRecord(success=success) for success in (False, True, False))
    quality = QualityRecord(verdict="warn", checks=checks, rows=9, dropped=2, quarantined=1)
    keep_record(stream_project, batch(0, 3, 2), quality=quality)
    names = {"quality.warn", "quality.failed_checks", "rows.dropped", "rows.quarantined"}

    found = measured(ended_task(stream_project))
    assert {name: found[name] for name in names} == {
        "quality.warn": 1, "quality.failed_checks": 2, "rows.dropped": 2, "rows.quarantined": 1,
    }  # fmt: skip

    keep_record(stream_project, batch(0, 3, 2))
    assert not measured(ended_task(stream_project)).keys() & names


def test_rows_out_of_balance_are_measured(stream_project: StreamProject) -> None:
    """Once for the run, however many of its batches lack rows; where no row is known to have been read, nothing."""
    lost = msgspec.structs.replace(batch(0, 3, 2), result_rows=3)
    keep_record(stream_project, lost, msgspec.structs.replace(lost, batch_id=1))
    assert measured(ended_task(stream_project))["unbalanced_runs"] == 1

    keep_record(stream_project, batch(0, None, 2))
    assert "unbalanced_runs" not in measured(ended_task(stream_project))


def test_the_backlog_is_measured_without_a_record(stream_project: StreamProject) -> None:
    """A skip leaves none; what waits is told all the same."""
    stream_project.arrive(2, at=datetime.now(UTC) - timedelta(minutes=1))

    found = measured(ended_task(stream_project), "skipped")

    assert 60 <= found.pop("backlog.age") < 120
    assert found.pop("backlog.bytes") > 0
    assert found == {"run.skipped": 1, "backlog.files": 2, "backlog.held_back": 0}


def test_a_try_before_the_last_counts_no_batch(stream_project: StreamProject) -> None:
    """The record of the last try holds the batches of all, and each must count once."""
    keep_record(stream_project, batch(0, 3, 2), status="failed")

    assert not measured(ended_task(stream_project), "retried").keys() & {"batches", "rows.in", "rows.out"}
    assert measured(ended_task(stream_project), "failed")["batches"] == 1


@pytest.mark.parametrize(
    ("status", "outcome", "counted"),
    [
        ("refused", "failed", "refused"),
        ("stopped", "failed", "stopped"),
        ("failed", "failed", "failed"),
        # Its driver has ended without a word.
        ("running", "failed", "failed"),
        # A try that found nothing left, after one that did all.
        ("failed", "skipped", "skipped"),
        ("stopped", "retried", "retried"),
    ],
)
def test_a_task_is_counted_once(stream_project: StreamProject, status: str, outcome: str, counted: str) -> None:
    """The record tells more of a failure than the task does, and nothing else."""
    keep_record(stream_project, status=status)

    assert [name for name in measured(ended_task(stream_project), outcome) if name.startswith("run.")] == [
        f"run.{counted}"
    ]


def test_unknown_rows_are_not_zero(stream_project: StreamProject) -> None:
    """A batch that was in the sink already was not read again."""
    keep_record(stream_project, batch(0, None, None), batch(1, 4, 4))

    found = measured(ended_task(stream_project))

    assert found["batches"] == 2
    assert not found.keys() & {"rows.in", "rows.out", "run.duration"}


def test_a_damaged_record_hides_nothing_else(stream_project: StreamProject, caplog: pytest.LogCaptureFixture) -> None:
    """How the task ended and what waits are still told."""
    record = keep_record(stream_project, batch(0, 3, 2))
    put(Path(stream_project.home().runs_folder(), f"{record.run_id}.json"), "{half a rec")

    found = measured(ended_task(stream_project), "failed")

    assert found["run.failed"] == 1
    assert found["backlog.files"] == 0
    assert "batches" not in found
    assert "metrics of stream events lack what the run did" in caplog.text


def test_a_damaged_checkpoint_hides_nothing_else(
    stream_project: StreamProject, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither watermark nor backlog are known, and none of them is reported as 0."""
    keep_record(stream_project, batch(0, 3, 2))
    commit(stream_project, 0).write_bytes(b"\xff")

    assert measured(ended_task(stream_project)) == {
        "run.succeeded": 1, "unbalanced_runs": 0, "batches": 1, "rows.in": 3, "rows.out": 2,
    }  # fmt: skip
    assert "lack the watermark" in caplog.text
    assert "lack the backlog" in caplog.text


@pytest.mark.parametrize("text", [None, "1/0\n", "def broken(:\n"])
def test_a_broken_declaration_hides_nothing_else(
    stream_project: StreamProject, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    """The task has failed for the same reason, and that is counted."""
    declaration = stream_project.root / "streams" / "events.py"
    if text is None:
        declaration.unlink()
    else:
        declaration.write_text(text)

    assert measured(ended_task(stream_project), "failed") == {"run.failed": 1}
    assert "lack all but how the task ended" in caplog.text


def test_an_unreadable_source_is_no_empty_backlog(
    stream_project: StreamProject, caplog: pytest.LogCaptureFixture
) -> None:
    """Its folder is gone: what waits there is not known."""
    (stream_project.root / "in").rmdir()

    assert measured(ended_task(stream_project)) == {"run.succeeded": 1}
    assert "backlog" in caplog.text


def test_a_source_that_hangs_holds_no_task(
    stream_project: StreamProject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task ends without its backlog."""
    monkeypatch.setattr(run_metrics, "_PATIENCE_SECONDS", 0.5)
    answered = threading.Event()
    monkeypatch.setattr(FilesSource, "available", lambda *_, **__: answered.wait())

    assert measured(ended_task(stream_project)) == {"run.succeeded": 1}
    answered.set()
    assert "lack the backlog: the storage did not answer within 0.5 s" in caplog.text


def test_nothing_is_looked_at_without_metrics(stream_project: StreamProject, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has no metrics configured pays nothing: not even a folder is listed, and nothing is logged."""
    (stream_project.root / "sluice.toml").unlink()

    stream_metrics.on_task_instance_success(ended_task(stream_project))

    assert caplog.text == ""


class Sent:
    """A backend of Airflow's metrics that keeps what it is told."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.tags: list[dict[str, str]] = []

    def _keep(self, name: str, value: Any = 1, *, tags: dict[str, str], count: int | None = None) -> None:
        self.values[name] = value if count is None else count
        self.tags.append(tags)

    incr = gauge = timing = _keep


@pytest.fixture
def sent() -> Any:
    """What reaches the backend."""
    backend = Sent()
    stats.initialize(factory=lambda: backend, export_legacy_names=True)
    yield backend
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        ({"otel_on": True}, "sluice."),
        ({"statsd_on": True}, "sluice.events."),
        ({"statsd_on": True, "statsd_influxdb_enabled": True}, "sluice."),
        ({"statsd_datadog_enabled": True, "statsd_on": True}, "sluice."),
    ],
)
def test_without_tags_the_stream_stands_in_the_name(
    stream_project: StreamProject, monkeypatch: pytest.MonkeyPatch, sent: Sent, options: dict[str, bool], prefix: str
) -> None:
    """Plain StatsD has no tags: the gauges of two streams would overwrite each other."""
    for option, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{option.upper()}", str(value))
    keep_record(stream_project, batch(0, 3, 2), ended_at="2026-01-01T00:00:02.500Z")

    stream_metrics.on_task_instance_failed(ended_task(stream_project, "up_for_retry"))
    stream_metrics.on_task_instance_success(ended_task(stream_project))

    assert sent.values[f"{prefix}run.retried"] == sent.values[f"{prefix}run.succeeded"] == 1
    assert sent.values[f"{prefix}rows.in"] == 3
    assert sent.values[f"{prefix}backlog.files"] == 0
    assert sent.values[f"{prefix}run.duration"] == timedelta(seconds=2.5)
    assert all(tags == {"stream": "events", "dag_id": "flights"} for tags in sent.tags)


def test_streams_whose_own_tasks_were_skipped(
    stream_project: StreamProject, monkeypatch: pytest.MonkeyPatch, sent: Sent
) -> None:
    """The task before them tells of those that had nothing to do: no worker of theirs does; not of itself, nor of any
    other stream."""
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    streams = ["events", "hourly"]
    task = RunTogetherOperator(task_id="together", streams=streams, project=str(stream_project.root))
    task.idle = ["events"]

    stream_metrics.on_task_instance_success(SimpleNamespace(task=task, dag_id="flights", state="success"))

    assert sent.values == {
        "sluice.run.skipped": 1, "sluice.backlog.files": 0, "sluice.backlog.bytes": 0, "sluice.backlog.rows": 0,
        "sluice.backlog.held_back": 0, "sluice.backlog.age": 0,
    }  # fmt: skip
    assert all(tags == {"stream": "events", "dag_id": "flights"} for tags in sent.tags)


def test_a_listener_never_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A task of another kind is none of its business; one of ours that is broken is logged."""
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    stream_metrics.on_task_instance_skipped(SimpleNamespace())
    stream_metrics.on_task_instance_success(SimpleNamespace(task=object()))
    assert caplog.text == ""

    stream_metrics.on_task_instance_success(SimpleNamespace(task=object.__new__(RunStreamOperator)))

    assert "metrics of a stream could not be sent" in caplog.text


def test_the_plugin_stays_light() -> None:
    """Airflow loads it in every process, also for tasks that are none of ours: not even the library comes with it."""
    assert stream_metrics in SluicePlugin.listeners
    program = "import sys, sluice_airflow.plugin; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)

    loaded = set(done.stdout.split())
    assert "sluice_airflow.deadlines" in loaded
    assert not loaded & {
        "sluice",
        "sluice_airflow.ui",
        "fastapi",
        "pyspark",
        "great_expectations",
        "deltalake",
        "pyarrow",
        "pandas",
        "obstore",
    }
