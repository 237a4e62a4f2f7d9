"""A whole Airflow that tells: of data that is too old, of runs that fail, and how streams do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow_project import StreamProject, make_stream_project
from committed import commit
from receivers import Receiver, mail_server, metrics_collector

from demo.standalone import REPOSITORY, Standalone
from sluice.project import find_project
from sluice.runs.record import RunRecords
from tests.builders import commit_bytes, put
from tests.campaign import in_campaigns

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(1200), in_campaigns]

SOON = 240.0
BEHIND = timedelta(hours=1)
_DAGS = """
from datetime import datetime, timedelta, timezone
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import AsyncCallback, DAG, DeadlineAlert, DeadlineReference, task
from sluice_airflow.deadlines import StreamWatermark, report_delay, stream_watermark
from sluice_airflow.sensors.progress import BatchSensor, WatermarkSensor
from sluice_airflow.stream_dag import stream_dag
from sluice_airflow.timetables import data_intervals

def alert(stream, reference=None):
    callback = AsyncCallback(report_delay, kwargs={"stream": stream})
    reference = reference or stream_watermark(stream)
    return DeadlineAlert(reference=reference, interval=timedelta(hours=1), callback=callback)

late = {
    "to": "you@example.org",
    "from_email": "airflow@example.org",
    "subject": "{{ dag_run.dag_id }} is late",
    "html_content": "{{ dag_run.dag_run_id }} should have succeeded by {{ deadline.deadline_time }}",
}
mailed = DeadlineAlert(
    reference=stream_watermark("events"), interval=timedelta(hours=1), callback=AsyncCallback(SmtpNotifier, kwargs=late)
)
with DAG("slow", schedule=None, deadline=[alert("events"), mailed]):
    BatchSensor(task_id="wait", stream="events", batch_id=1000, timeout=900)
with DAG("quick", schedule=None, deadline=alert("events")):
    EmptyOperator(task_id="done")
with DAG("fails", schedule=None, deadline=alert("events")):
    @task
    def fail():
        raise RuntimeError
    fail()
with DAG("orphan", schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
         deadline=alert("events", StreamWatermark("events", project="/a/project/that/is/gone"))):
    EmptyOperator(task_id="done")
with DAG("hours", schedule=data_intervals("0 * * * *"), start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
         catchup=False, deadline=alert("watched", DeadlineReference.DAGRUN_LOGICAL_DATE)):
    WatermarkSensor(task_id="complete", stream="watched", timeout=900)
with DAG("unknown", schedule=None, deadline=alert("hourly")):
    EmptyOperator(task_id="done")
mail = SmtpNotifier(
    from_email="airflow@example.org",
    to="you@example.org",
    subject="{{ ti.task_id }} of {{ dag.dag_id }} failed",
    html_content="{{ exception }}",
)
stream_dag("flaky", schedule=None, default_args={
    "retries": 1, "retry_delay": timedelta(seconds=1), "on_failure_callback": mail,
})
"""
_FLAKY = """
watched = Stream(
    name="watched",
    sources={"events": sources.files("in", format="json", schema="n bigint")},
    transform="transform_events:events",
    sink=sinks.delta("out/watched"),
)
flaky = Stream(
    name="flaky",
    sources={"numbers": sources.files("flaky", format="json", schema="n bigint, at timestamp")},
    transform="transform_flaky:flaky",
    sink=sinks.delta("out/flaky"),
)
"""
_TRANSFORM = """
from pyspark.sql import functions as F
def flaky(numbers):
    checked = F.when(F.col("n") == 13, F.raise_error(F.lit("no 13 here")).cast("bigint")).otherwise(F.col("n"))
    return numbers.withWatermark("at", "0 seconds").select(checked.alias("n"), "at")
"""


@dataclass(frozen=True)
class Telling:
    """The Airflow, its project, and who hears of it."""

    airflow: Standalone
    project: StreamProject
    mails: Receiver
    metrics: Receiver

    def start(self, dag_id: str) -> str:
        return str(self.airflow.api("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"])

    def scheduled(self, dag_id: str) -> str:
        """The run that the scheduler has made."""

        def run_id() -> str:
            runs = self.airflow.api("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"]
            return str(runs[0]["dag_run_id"]) if runs else ""

        return str(self.airflow.wait_for(run_id, f"a run of {dag_id}", SOON))

    def wait_for_end(self, dag_id: str, run_id: str) -> str:
        """Wait until a run is over; gives its state."""

        def state() -> str:
            found = str(self.airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])
            return found if found in {"success", "failed"} else ""

        return str(self.airflow.wait_for(state, f"the end of {run_id}", SOON))

    def deadlines(self, dag_id: str) -> list[tuple[datetime, bool]]:
        """When each deadline of a DAG's runs is, and whether it was missed."""
        query = "select deadline_time, missed from deadline join dag_run on dag_run.id = dagrun_id where dag_id = ?"
        with sqlite3.connect(f"file:{self.airflow.home / 'airflow.db'}?mode=ro", uri=True) as database:
            rows = database.execute(query, (dag_id,)).fetchall()
        return [(datetime.fromisoformat(at).replace(tzinfo=UTC), bool(missed)) for at, missed in rows]

    def wait_for_log(self, words: str) -> str:
        """Wait until a component of Airflow logs a line with these words; gives the line."""

        def line() -> str:
            lines = self.airflow.log_file.read_text("utf-8", "replace").splitlines()
            return next((found for found in lines if words in found), "")

        return str(self.airflow.wait_for(line, words, SOON))

    def wait_for_mail(self, subject: str) -> str:
        """Wait for the one mail with this subject; gives its text."""

        def found() -> list[str]:
            return [text for its_subject, text in self.mails.mails if its_subject == subject]

        (text,) = self.airflow.wait_for(found, f"the mail `{subject}`", SOON)
        return str(text)

    def arrive(self, n: int) -> None:
        """Let a row of `flaky` arrive."""
        row = json.dumps({"n": n, "at": datetime.now(UTC).isoformat()})
        (self.project.root / "flaky" / f"{n}.json").write_text(row)


@pytest.fixture(scope="module")
def telling(airflow_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Telling]:
    """Every component, on loopback."""
    root = tmp_path_factory.mktemp("alerts")
    project = make_stream_project(root, root / "dags")
    declaration = root / "streams" / "events.py"
    declaration.write_text(declaration.read_text() + _FLAKY)
    (root / "transform_flaky.py").write_text(_TRANSFORM)
    (root / "flaky").mkdir()
    project.dags.mkdir()
    (project.dags / "alerts.py").write_text(_DAGS)
    with mail_server() as mails, metrics_collector() as metrics:
        mailbox = {"conn_type": "smtp", "host": "127.0.0.1", "port": mails.port}
        environment = {
            "PYTHONPATH": f"{REPOSITORY / 'include'}:{REPOSITORY / 'plugins'}",
            "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(mailbox | {"extra": {"disable_tls": True, "disable_ssl": True}}),
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{metrics.port}/v1/metrics",
        }
        home = tmp_path_factory.mktemp("airflow")
        with Standalone(home, project.dags, project.root, environment=environment, tables=airflow_tables) as airflow:
            airflow.wait_until_healthy(400)
            airflow.wait_for(lambda: len(airflow.api("GET", "/dags")["dags"]) == 7, "the DAGs", 200)
            yield Telling(airflow, project, mails, metrics)


def test_a_deadline_by_watermark_is_missed_and_told(telling: Telling) -> None:
    """Three runs, one deadline: one succeeds before it, and nothing is told; one still waits then, one has failed."""
    watermark = datetime.now(UTC) - BEHIND + timedelta(seconds=30)
    commit(telling.project, 0, watermark_ms=int(watermark.timestamp() * 1000))

    slow, quick, fails = (telling.start(dag_id) for dag_id in ("slow", "quick", "fails"))
    assert telling.wait_for_end("quick", quick) == "success"
    told = telling.wait_for_log(f"run {slow} of DAG slow had not succeeded by then")

    assert "stream events missed its deadline" in told
    assert f"the watermark is {watermark:%Y-%m-%dT%H:%M}" in told
    assert "1:00:" in told
    telling.wait_for_log(f"run {fails} of DAG fails had not succeeded by then")
    for deadline, is_missed in telling.deadlines("slow"):
        assert is_missed
        assert abs(deadline - watermark - BEHIND) < timedelta(milliseconds=1)
    text = telling.wait_for_mail("slow is late")
    assert f"{slow} should have succeeded by {deadline:%Y-%m-%d %H:%M}" in text
    assert telling.deadlines("quick") == []


def test_the_ui_names_the_reference(telling: Telling) -> None:
    """Airflow shows a reference that is not its own by the name that it was kept under."""
    found = json.loads(telling.airflow.api.page("/ui/dags/quick/deadlineAlerts"))

    (alert,) = found["deadline_alerts"]
    assert (alert["reference_type"], alert["interval"]) == ("watermark of events", BEHIND.total_seconds())


def test_without_a_watermark_the_deadline_counts_from_the_run(telling: Telling) -> None:
    """The run is made all the same, and the log of the API server, which made it, says what its deadline is."""
    run_id = telling.start("unknown")

    assert telling.wait_for_end("unknown", run_id) == "success"
    words = f"run {run_id} of DAG unknown counts from now on: the watermark of stream hourly is not there yet"
    assert "WARN" in telling.wait_for_log(words).upper()


def test_the_scheduler_goes_on_without_the_project(telling: Telling) -> None:
    """It makes the run, and its log says why the deadline counts from then on."""
    run_id = telling.scheduled("orphan")

    assert telling.wait_for_end("orphan", run_id) == "success"
    telling.wait_for_log(f"run {run_id} of DAG orphan counts from now on: the watermark of stream events can't be read")


def test_an_hour_must_be_complete_in_time(telling: Telling) -> None:
    """A run that waits for the end of its hour is over when the hour is complete: its deadline is exact."""
    run_id = telling.scheduled("hours")
    told = telling.wait_for_log(f"run {run_id} of DAG hours had not succeeded by then")
    assert "stream watched missed its deadline" in told
    assert "the watermark is not there yet" in told

    project = find_project(str(telling.project.root))
    checkpoint = project.stream_home(project.stream("watched")).checkpoint_location(1)
    put(Path(checkpoint, "commits", "0"), commit_bytes(int(datetime.now(UTC).timestamp() * 1000)))

    assert telling.wait_for_end("hours", run_id) == "success"


@pytest.mark.spark
def test_a_run_tells_metrics_and_a_failure_is_mailed(telling: Telling) -> None:
    """A run that does its work, one with nothing to do, one that fails twice: each is counted as what it was."""
    telling.arrive(1)
    assert telling.wait_for_end("flaky", telling.start("flaky")) == "success"
    assert telling.wait_for_end("flaky", telling.start("flaky")) == "success"
    telling.arrive(13)
    assert telling.wait_for_end("flaky", telling.start("flaky")) == "failed"
    metrics, tags = telling.metrics, {"stream": "flaky", "dag_id": "flaky"}
    counters = ("run.succeeded", "run.skipped", "run.retried", "run.failed", "batches", "rows.in", "rows.out")

    def sums() -> dict[str, float]:
        return {name: sum(metrics.values(f"airflow.sluice.{name}", **tags)) for name in counters}

    telling.airflow.wait_for(lambda: sums()["run.failed"], "the metrics of the failure", SOON)
    assert sums() == dict.fromkeys(counters, 1)
    delays = metrics.values("airflow.sluice.watermark_delay", **tags)
    assert 0 < delays[0] < delays[-1] < 600
    assert metrics.values("airflow.sluice.run.duration", **tags)[0] > 1000

    project = find_project(str(telling.project.root))
    failed = next(RunRecords(project.stream_home(project.stream("flaky"))).newest(1))
    text = telling.wait_for_mail("flaky of flaky failed")
    assert f"run {failed.run_id} failed" in text
    assert "no 13 here" in text
