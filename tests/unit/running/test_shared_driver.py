"""What a driver of several streams does with runs that it does not begin, or that fail before Spark; without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.packed_runs import PackStop
from sluice.running.preparation import prepare_run, reserve_run
from sluice.running.shared_driver import run_asked
from sluice.runs.lease import acquire
from sluice.runs.record import RunRecord, RunRecords
from sluice.runs.stop import request_stop
from tests.builders import NOW, put

_DECLARED = """
from sluice import Stream, sinks, sources

def stream(name, source):
    return Stream(name=name, sources={"read": source}, transform="code:rows", sink=sinks.delta(f"out/{name}"))

last = stream("last", sources.delta("out/second"))
second = stream("second", sources.delta("out/first"))
first = stream("first", sources.files("in", format="json", schema="n bigint"))
other = stream("other", sources.files("in", format="json", schema="n bigint"))
"""
NAMES = ("first", "second", "last", "other")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A file has arrived, and each stream's run is asked for under its own name."""
    put(tmp_path / "sluice.toml", '[project]\nname = "p"\n')
    put(tmp_path / "streams" / "all.py", _DECLARED)
    put(tmp_path / "code.py", "def rows(read):\n    return read\n")
    put(tmp_path / "in" / "1.json", '{"n": 1}')
    found = find_project(str(tmp_path))
    for name in ("first", "other"):
        prepare_run(found, Request(found.stream(name), run_key=name))
    for name, before in (("second", "first"), ("last", "second")):
        reserve_run(found, Request(found.stream(name), run_key=name), [before])
    return found


def records(project: Project, name: str) -> list[RunRecord]:
    return list(RunRecords(project.home_named(name)).newest(9))


@contextmanager
def at_work_elsewhere(project: Project, name: str) -> Iterator[None]:
    home = project.home_named(name)
    with acquire(home.storage, home.lease_folder(1), run_id="another", sink_is_idempotent=True):
        yield


def test_what_reads_a_stream_that_failed_is_not_begun(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor what reads that in turn: their tasks run them once the first one is done. The others go on."""
    with at_work_elsewhere(project, "first"), at_work_elsewhere(project, "other"):
        code = run_asked(project, {name: name for name in NAMES}, PackStop())

    assert code == 5
    for name in ("first", "other"):
        (record,) = records(project, name)
        assert record.error is not None
        assert (record.run_key, record.status, record.error.type) == (name, "failed", "LeaseTakenError")
    assert records(project, "second") == records(project, "last") == []
    # There are no tables for them, which they would have said.
    said = [line for line in capsys.readouterr().err.splitlines() if "second" in line or "last" in line]
    assert said == [
        "sluice: the run of `second` was not begun: it is done by itself",
        "sluice: the run of `last` was not begun: it is done by itself",
    ]


def test_what_was_asked_to_end_before_its_turn_is_not_begun(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody takes a lease for it, nor starts Spark; its record says who has stopped it."""
    for name in NAMES:
        (record,) = records(project, name)
        request_stop(project.home_named(name), record.run_id, requested_by="ada", now=NOW)

    assert run_asked(project, {name: name for name in NAMES}, PackStop()) == 0

    for name in NAMES:
        (record,) = records(project, name)
        assert (record.status, record.tries) == ("stopped", 0)
        assert record.error is not None
        assert record.error.message == "stopped by ada before it had begun; a retry runs it"
    assert "sluice: the run of `last` was stopped by ada before it had begun" in capsys.readouterr().err
    assert not Path(project.home_named("first").location, "leases").exists()


def test_a_stop_of_what_never_has_its_turn(project: Project) -> None:
    """The driver is asked to end before: that run was stopped, and the others are done by themselves."""
    (record,) = records(project, "other")
    request_stop(project.home_named("other"), record.run_id, requested_by="ada", now=NOW)
    stop = PackStop()
    stop.set()

    assert run_asked(project, {name: name for name in NAMES}, stop) == 0

    assert [[found.status for found in records(project, name)] for name in NAMES] == [[], [], [], ["stopped"]]


def test_what_nobody_waits_for_any_more_is_not_begun(project: Project) -> None:
    """Whoever asked for it has forgotten it meanwhile, and does it otherwise."""
    for name in NAMES:
        (record,) = records(project, name)
        RunRecords(project.home_named(name)).forget(record.run_id)

    assert run_asked(project, {name: name for name in NAMES}, PackStop()) == 0
    assert [records(project, name) for name in NAMES] == [[], [], [], []]
    assert not Path(project.home_named("first").location, "leases").exists()


def test_who_plans_meanwhile_keeps_its_run(project: Project) -> None:
    """It bears the same key, but is another run: its record is not this driver's to forget."""
    (old,) = records(project, "first")

    class AsOthersPlan(PackStop):
        def is_set(self) -> bool:
            if records(project, "first") == [old]:
                RunRecords(project.home_named("first")).forget(old.run_id)
                prepare_run(project, Request(project.stream("first"), run_key="first"))
            return True

    assert run_asked(project, {"first": "first"}, AsOthersPlan()) == 0

    (new,) = records(project, "first")
    assert (new.status, new.run_key) == ("planned", "first")
    assert new.run_id != old.run_id


def test_a_signal_ends_all_of_them(project: Project) -> None:
    """Those that are to come are not begun."""
    stop = PackStop()
    stop.set()

    assert run_asked(project, {name: name for name in NAMES}, stop) == 0
    assert [records(project, name) for name in NAMES] == [[], [], [], []]


def test_a_declaration_that_is_wrong_by_now(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """It concerns its own stream, whose task says so; the others are run."""
    put(Path(project.root, "streams", "all.py"), _DECLARED.replace('first = stream("first"', 'gone = stream("gone"'))

    with at_work_elsewhere(project, "other"):
        keys = {"first": "first", "second": "second", "other": "other"}
        code = run_asked(find_project(project.root), keys, PackStop())

    assert code == 2
    assert records(project, "second") == []
    assert "sluice first: UnknownStreamError: there is no stream `first`" in capsys.readouterr().err
    assert records(project, "first") == []
    assert [record.status for record in records(project, "other")] == ["failed"]
