"""Deadlines by watermark: what Airflow keeps of them, and that asking for one never fails the making of a run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.decoders import decode_deadline_alert
from airflow.serialization.encoders import encode_deadline_alert
from airflow_project import StreamProject
from committed import commit

from sluice.errors import DeclarationError, UnknownStreamError
from sluice_airflow import deadlines
from sluice_airflow.deadlines import StreamWatermark, report_delay, stream_watermark

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

REPOSITORY = Path(__file__).resolve().parents[2]
WATERMARK = datetime(2026, 1, 31, 11, 59, 59, 123000, tzinfo=UTC)
CONTEXT: dict[str, object] = {
    "dag_run": {"dag_id": "flights", "dag_run_id": "manual__1"},
    "deadline": {"deadline_time": "2026-01-31T15:00:00Z"},
}


def evaluated(reference: StreamWatermark) -> datetime:
    return reference._evaluate_with(session=None, dag_id="flights", run_id="manual__1")


def test_the_reference_is_the_committed_watermark(stream_project: StreamProject) -> None:
    """To the millisecond."""
    commit(stream_project, 0, watermark_ms=int(WATERMARK.timestamp() * 1000))

    assert evaluated(stream_watermark("events", project=str(stream_project.root))) == WATERMARK


def test_the_example_survives_airflows_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alert of the example DAG comes back from what Airflow keeps, through the plugin's registration."""
    monkeypatch.setenv("SLUICE_PROJECT", str(REPOSITORY))
    bag = DagBag(str(REPOSITORY / "dags" / "flights_now.py"))
    assert not bag.import_errors, bag.import_errors
    (alert,) = bag.dags["flights_now"].deadline

    kept = decode_deadline_alert(encode_deadline_alert(alert))

    assert kept.reference.inner_ref == StreamWatermark("hourly_delays")
    assert kept.interval == timedelta(days=2, hours=3)
    assert kept.callback.path == "sluice_airflow.deadlines.report_delay"


def test_an_own_checkpoint_is_read(stream_project: StreamProject) -> None:
    """A stream whose checkpoint is not in the home: its place is kept, for declarations are not read later."""
    commit(stream_project, 0, watermark_ms=int(WATERMARK.timestamp() * 1000))
    declaration = stream_project.root / "streams" / "events.py"
    elsewhere = stream_project.home().checkpoint_location(1)
    text = declaration.read_text().replace('name="hourly",', f'name="hourly", checkpoint="{elsewhere}",')
    declaration.write_text(text)

    reference = stream_watermark("hourly", project=str(stream_project.root))
    declaration.unlink()

    assert evaluated(StreamWatermark.deserialize_reference(reference.serialize_reference())) == WATERMARK


def _no_project(project: StreamProject) -> None:
    (project.root / "sluice.toml").unlink()


def _broken_project(project: StreamProject) -> None:
    (project.root / "sluice.toml").write_text("[project\n")


def _broken_commit(project: StreamProject) -> None:
    commit(project, 0).write_bytes(b"\xff not a commit")


def _newer_home(project: StreamProject) -> None:
    commit(project, 0)
    Path(project.home().location, "current.json").write_text('{"format": 99, "generation": 1}')


def _nothing(_: StreamProject) -> None:
    """The stream has not begun."""


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_nothing, "is not there yet"),
        (lambda project: commit(project, 0), "is not there yet"),
        (_no_project, "can't be read: no "),
        (_broken_project, "can't be read: "),
        (_broken_commit, "can't be read: "),
        (_newer_home, "can't be read: "),
    ],
)
def test_what_is_not_known_counts_from_now(
    stream_project: StreamProject,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[StreamProject], object],
    words: str,
) -> None:
    """An alert must not vanish with what it watches: its time counts from the making of the run; one line says why."""
    reference = stream_watermark("events", project=str(stream_project.root))
    damage(stream_project)
    before = datetime.now(UTC)

    assert before <= evaluated(reference) <= datetime.now(UTC)

    (record,) = caplog.records
    assert "run manual__1 of DAG flights" in record.getMessage()
    assert f"watermark of stream events {words}" in record.getMessage()


@pytest.mark.parametrize("watermark_ms", [2**62, 253_402_300_799_999 + 10**9])
def test_a_watermark_of_the_future_is_not_late(stream_project: StreamProject, watermark_ms: int) -> None:
    """Adding an interval to it would overflow, in the scheduler."""
    commit(stream_project, 0, watermark_ms=watermark_ms)

    found = evaluated(stream_watermark("events", project=str(stream_project.root)))

    assert found + timedelta(days=1) > datetime.now(UTC) > found


def test_a_watermark_before_the_epoch_is_late(stream_project: StreamProject) -> None:
    """As a clock makes it that was never set."""
    commit(stream_project, 0, watermark_ms=-(2**62))

    assert evaluated(stream_watermark("events", project=str(stream_project.root))) == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_storage_that_hangs_holds_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The scheduler makes runs one after another."""
    monkeypatch.setattr(deadlines, "_PATIENCE_SECONDS", 0.2)
    answered = threading.Event()

    class Hanging(StreamWatermark):
        def watermark_ms(self) -> None:
            answered.wait()

    before = datetime.now(UTC)
    assert before <= evaluated(Hanging("events")) < before + timedelta(seconds=5)
    answered.set()

    assert "can't be read: the storage did not answer within" in caplog.text


def test_a_stream_that_is_not_declared_fails_the_import() -> None:
    """Airflow shows it as the import error of the DAG file, with what is declared instead."""
    with pytest.raises(UnknownStreamError, match="did you mean `hourly_delays`"):
        stream_watermark("hourly_delay", project=str(REPOSITORY))
    with pytest.raises(DeclarationError):
        stream_watermark("hourly_delays", project="/nowhere")


def test_the_callback_says_how_late(stream_project: StreamProject, caplog: pytest.LogCaptureFixture) -> None:
    """Which run of which DAG, and where the watermark is now."""
    commit(stream_project, 0, watermark_ms=int(WATERMARK.timestamp() * 1000))

    asyncio.run(report_delay(stream="events", project=str(stream_project.root), context=CONTEXT))

    assert "missed its deadline 2026-01-31T15:00:00Z: run manual__1 of DAG flights" in caplog.text
    assert "the watermark is 2026-01-31T11:59:59.123Z" in caplog.text


@pytest.mark.parametrize("context", [CONTEXT, {}, {"dag_run": None}])
def test_the_callback_tells_even_when_it_knows_little(
    stream_project: StreamProject, caplog: pytest.LogCaptureFixture, context: dict[str, object]
) -> None:
    """The stream was renamed meanwhile, or Airflow tells less than it does today."""
    asyncio.run(report_delay(stream="renamed", project=str(stream_project.root), context=context))

    assert "stream renamed missed its deadline" in caplog.text
    assert "the watermark can't be read: there is no stream `renamed`" in caplog.text
