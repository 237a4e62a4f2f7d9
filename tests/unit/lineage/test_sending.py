"""Events are sent beside the run: a server that is away or slow costs a moment, and is told of once."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.lineage.sending import lineage_sent, tell_run, tell_work
from sluice.lineage.settings import LineageSettings, using
from sluice.lineage.table_work import TableWork
from sluice.redaction import MASK, remember_secrets
from sluice.runs.record import RecordedError
from sluice.sinks.delta.sink import DeltaSink
from tests.builders import NOW
from tests.lineage_server import LineageServer, forget_lineage, lineage_server, states
from tests.unit.lineage.records import ERROR, LATER, QUALITY, STREAM, make_job, make_record

JOB = make_job()
NO_RETRY = {"type": "http", "timeout": 5, "retry": {"total": 0}}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_lineage(monkeypatch, tmp_path)


@pytest.fixture
def server() -> Iterator[LineageServer]:
    with lineage_server() as found:
        yield found


def telling_to(url: str, **config: Any) -> LineageSettings:
    return LineageSettings(config={"transport": {**NO_RETRY, "url": url}, **config})


def closed_port() -> str:
    """Where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("transport", ["http", "async_http"])
def test_a_run_is_told_in_order(monkeypatch: pytest.MonkeyPatch, server: LineageServer, transport: str) -> None:
    """By the variables that every tool takes, also by a transport that sends later; each as specified."""
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", transport)
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", server.url)

    with lineage_sent():
        for status in ("planned", "running", "succeeded"):
            tell_run(JOB.project, STREAM, make_record(status=status))

    events = server.told.of("shop.visits")
    assert states(events) == ["START", "COMPLETE"]
    assert {event["producer"].rpartition(":")[0] for event in events} == {"urn:sluice-streaming"}
    assert events[0]["run"]["facets"]["sluice"]["_producer"] == events[0]["producer"]


def test_audits_and_releases_are_jobs_of_their_own(server: LineageServer) -> None:
    """With the table that they read, and what they found or wrote."""
    table, sink = DeltaSink("/out_quarantine", ()).dataset, DeltaSink("/out", ()).dataset
    assert table is not None
    audit = TableWork(kind="audit", work_id="1", began_at=NOW, reads=replace(table, version=3))
    release = TableWork(kind="release", work_id="2", began_at=NOW, reads=table, writes=sink)

    with using(telling_to(server.url)), lineage_sent():
        for work in (audit, replace(audit, ended_at=LATER, quality=QUALITY), release):
            tell_work(JOB.project, STREAM, work)
        tell_work(JOB.project, STREAM, replace(release, ended_at=LATER, rows=4))
        tell_work(JOB.project, STREAM, replace(release, work_id="3", ended_at=LATER, error="refused"))

    audits, releases = server.told.of("shop.visits.audit"), server.told.of("shop.visits.release")
    assert (states(audits), states(releases)) == (["START", "COMPLETE"], ["START", "COMPLETE", "FAIL"])
    assert len({event["run"]["runId"] for event in (*audits, *releases)}) == 3
    read = audits[1]["inputs"][0]
    assert read["facets"]["version"]["datasetVersion"] == "3"
    assert len(read["inputFacets"]["dataQualityAssertions"]["assertions"]) == len(QUALITY.checks)
    assert read["inputFacets"]["dataQualityMetrics"]["rowCount"] == 3
    assert [found["name"] for found in releases[1]["outputs"]] == ["/out"]
    assert releases[1]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert releases[2]["run"]["facets"]["errorMessage"]["message"] == "refused"


def test_a_server_that_is_away_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each event is lost, nothing fails, and one line says so."""
    with caplog.at_level(logging.WARNING, "sluice"), using(telling_to(closed_port())), lineage_sent():
        for status in ("running", "failed"):
            tell_run(JOB.project, STREAM, make_record(status=status))

    (said,) = [found.getMessage() for found in caplog.records]
    assert said.startswith("lineage: 2 of the events could not be sent, and are lost: ConnectionError: ")
    with caplog.at_level(logging.WARNING, "sluice"), lineage_sent():
        pass
    assert len(caplog.records) == 1


def test_a_server_that_does_not_answer_delays_nobody(server: LineageServer, caplog: pytest.LogCaptureFixture) -> None:
    """To tell takes no time; the end waits as long as it is asked to, and less after that."""
    server.may_answer.clear()
    with caplog.at_level(logging.WARNING, "sluice"), using(telling_to(server.url)):
        began = time.monotonic()
        with lineage_sent(0.2):
            tell_run(JOB.project, STREAM, make_record(status="running"))
            tell_run(JOB.project, STREAM, make_record())
            assert time.monotonic() - began < 0.2
        assert time.monotonic() - began >= 0.2

    assert [found.getMessage() for found in caplog.records] == [
        "lineage: 2 of the events could not be sent, and are lost: the server has not answered in 0.2 s"
    ]


def test_a_server_that_comes_back_is_told_again(server: LineageServer) -> None:
    """What was given up is not sent late, behind the next run's events."""
    server.may_answer.clear()
    with using(telling_to(server.url)):
        with lineage_sent(0.1):
            tell_run(JOB.project, STREAM, make_record(status="running"))
            tell_run(JOB.project, STREAM, make_record(status="failed", error=ERROR))
        server.may_answer.set()
        with lineage_sent():
            tell_run(JOB.project, STREAM, make_record(planned_at=LATER))

    assert [state for state in states(server.told.of("shop.visits")) if state != "START"] == ["COMPLETE"]


def test_a_configuration_that_is_wrong_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The client says what is wrong, and one line tells it."""
    wrong = LineageSettings(config={"transport": {"type": "carrier pigeon"}})
    with caplog.at_level(logging.WARNING, "sluice"), using(wrong), lineage_sent():
        tell_run(JOB.project, STREAM, make_record())

    (said,) = [found.getMessage() for found in caplog.records if found.name.startswith("sluice")]
    assert said.endswith("ImportError: Failed to import carrier pigeon")


def test_a_process_without_room_for_a_thread_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The system may refuse one."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with using(telling_to(closed_port())):
        tell_run(JOB.project, STREAM, make_record())

    assert caplog.records[0].getMessage() == "lineage: an event could not be made, and is lost"


def test_no_event_has_a_secret(server: LineageServer, tmp_path: Path) -> None:
    """Not in a message, a query, nor in the address of the repository, which the client itself would look up."""
    secret = "correct-horse-battery"
    remember_secrets([secret])
    for words in ("init --quiet", f"remote add origin https://me:{secret}@example.org/shop.git"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    stream = replace(STREAM, transform=None, sql=f"select 'a salt', `{secret}` from stream(visits)")
    record = make_record(status="failed", error=replace_message(f"the token is {secret}"))

    with_code = telling_to(server.url, facets={"source_code_location": {"disabled": False}})
    for root in (tmp_path, "/nowhere"):
        # The second project is in no repository; the client's working folder is.
        with using(with_code), lineage_sent():
            tell_run(make_job(root=str(root)).project, stream, record)

    events = server.told.of("shop.visits")
    assert len(events) == 2
    assert secret not in str(events)
    assert "a salt" not in str(events)
    assert {event["job"]["facets"]["sourceCodeLocation"]["repoUrl"] for event in events} == {
        f"https://{MASK}@example.org/shop.git"
    }
    assert events[0]["job"]["facets"]["sql"]["query"] == f"select '?', `{MASK}` from stream(visits)"


def replace_message(message: str) -> RecordedError:
    return RecordedError(type="BatchFailedError", message=message)


def test_nobody_waits_where_nothing_was_told() -> None:
    """No thread is there, and no package of OpenLineage's is needed."""
    before = threading.active_count()
    with lineage_sent():
        tell_run(JOB.project, STREAM, make_record())

    assert threading.active_count() == before
