"""Drivers of their own: found again by their process or their lease, and ended by a request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from sluice.documents import encode_document
from sluice.errors import RefusedError, RunError, StorageError
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.driver import START_PATIENCE, Driver, Drivers
from sluice.runs.lease import TTL, LeaseFile
from sluice.runs.process import Process, boot_id, is_alive, machine, process
from sluice.runs.record import RunRecord, RunRecords
from sluice.runs.stop import StopEvent, forget_stop, request_stop, stop_request, watching
from sluice.storage import Storage
from tests.builders import NOW

RUN = RunRecord(
    run_id="20260131T120000000Z-00000001",
    stream="s",
    generation=1,
    planned_at=NOW,
    plan=PlanDocument(),
    status="running",
)
ELSEWHERE = "another machine"


@pytest.fixture
def home(tmp_path: Path) -> StreamHome:
    return StreamHome(str(tmp_path / "home" / "s"), Storage())


@pytest.fixture
def launch(home: StreamHome) -> Iterator[Callable[..., Driver]]:
    """Launches drivers that are ended with the test."""
    launched: list[Driver] = []

    def start(program: str, run_id: str = RUN.run_id) -> Driver:
        command = [sys.executable, "-c", program]
        launched.append(Drivers(home).launch(run_id, command, dict(os.environ), NOW))
        return launched[-1]

    yield start
    for driver in launched:
        assert driver.process is not None
        if is_alive(driver.process):
            with suppress(ProcessLookupError):  # it may end in between
                os.killpg(driver.process.pid, signal.SIGKILL)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def keep(home: StreamHome, driver: Driver) -> None:
    home.storage.replace(f"{home.location}/drivers/{driver.run_id}.json", encode_document(driver))


def keep_lease(home: StreamHome, **changes: object) -> None:
    lease = LeaseFile(
        token=1,
        run_id=RUN.run_id,
        host="h",
        machine=ELSEWHERE,
        boot_id="b",
        processes=(Process(1, 1),),
        acquired_at=NOW,
        expires_at=NOW + TTL,
    )
    lease = msgspec.structs.replace(lease, **changes)
    home.storage.replace(f"{home.location}/leases/0001/{lease.token}.json", encode_document(lease))


class TestLaunch:
    """A process of its own."""

    def test_it_is_found_again(self, home: StreamHome, launch: Callable[..., Driver]) -> None:
        """What is on disk is the process, in a group of its own, and its log has what it prints."""
        driver = launch("import time; print('here', flush=True); time.sleep(600)")
        assert driver.process is not None
        assert Drivers(home).find(RUN.run_id) == driver
        assert os.getpgid(driver.process.pid) == driver.process.pid
        assert Drivers(home).is_running(RUN, NOW + timedelta(days=1))
        wait_for(lambda: Path(driver.log).read_text() == "here\n")

    def test_it_ends(self, home: StreamHome, launch: Callable[..., Driver]) -> None:
        """A driver that ended is not at work, however fresh its lease."""
        keep_lease(home, machine=machine(), boot_id=boot_id())
        launch("pass")
        wait_for(lambda: not Drivers(home).is_running(RUN, NOW))

    def test_it_outlives_who_started_it(self, home: StreamHome) -> None:
        """The worker is killed, the driver goes on."""
        program = (
            "import os, signal, sys; from datetime import UTC, datetime; from sluice.home import StreamHome\n"
            "from sluice.runs.driver import Drivers; from sluice.storage import Storage\n"
            f"home = StreamHome({home.location!r}, Storage())\n"
            f"command = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
            f"Drivers(home).launch({RUN.run_id!r}, command, dict(os.environ), datetime.now(UTC))\n"
            "os.killpg(0, signal.SIGKILL)\n"
        )
        worker = subprocess.run([sys.executable, "-c", program], start_new_session=True, check=False)
        driver = Drivers(home).find(RUN.run_id)

        assert worker.returncode == -signal.SIGKILL
        assert driver is not None
        assert driver.process is not None
        assert Drivers(home).is_running(RUN, NOW)
        os.killpg(driver.process.pid, signal.SIGKILL)
        wait_for(lambda: not Drivers(home).is_running(RUN, NOW))

    def test_an_old_request_to_stop_is_forgotten(self, home: StreamHome, launch: Callable[..., Driver]) -> None:
        """It ended the try before; this one is wanted."""
        request_stop(home, RUN.run_id, requested_by="ada", now=NOW)
        launch("pass")
        assert stop_request(home, RUN.run_id) is None

    def test_one_for_several_streams(self, home: StreamHome, tmp_path: Path) -> None:
        """Each of their runs has it, as if it were its own; where it can't be started, none has."""
        other = StreamHome(str(tmp_path / "home" / "other"), Storage())
        runs = {home: RUN.run_id, other: "20260131T120000000Z-00000002"}
        request_stop(other, runs[other], requested_by="ada", now=NOW)
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        driver = Drivers(home).launch(runs[home], command, dict(os.environ), NOW, others=[(other, runs[other])])
        assert driver.process is not None
        record = msgspec.structs.replace(RUN, run_id=runs[other], status="planned")

        assert driver.is_shared
        assert Drivers(other).find(runs[other]) == msgspec.structs.replace(driver, run_id=runs[other])
        assert stop_request(other, runs[other]) is None
        assert Drivers(other).is_running(record, NOW)
        assert not Drivers(other).is_elsewhere(runs[other])
        os.killpg(driver.process.pid, signal.SIGKILL)
        wait_for(lambda: not Drivers(other).is_running(record, NOW))
        with pytest.raises(RunError, match="could not be started"):
            Drivers(home).launch(runs[home], ["/nowhere/python"], {}, NOW, others=[(other, runs[other])])
        assert Drivers(home).find(runs[home]) is Drivers(other).find(runs[other]) is None

    def test_a_command_that_is_not_there(self, home: StreamHome) -> None:
        """The error names it, and nobody waits for it."""
        with pytest.raises(RunError, match="could not be started: No such file") as caught:
            Drivers(home).launch(RUN.run_id, ["/nowhere/spark-submit"], {}, NOW)
        assert caught.value.where == "/nowhere/spark-submit"
        assert not Drivers(home).is_running(RUN, NOW)

    def test_who_started_it_died_at_once(self, home: StreamHome) -> None:
        """There is the intent, and no process: the driver has some time to show itself by its lease."""
        keep(home, driver_of(process=None))
        assert Drivers(home).is_running(RUN, NOW)
        assert not Drivers(home).is_running(RUN, NOW + START_PATIENCE)


class TestIsRunning:
    """As far as can be told from here."""

    def test_closed(self, home: StreamHome, launch: Callable[..., Driver]) -> None:
        """A run that is closed is over, though its JVM may still be ending."""
        launch("import time; time.sleep(600)")
        assert not Drivers(home).is_running(msgspec.structs.replace(RUN, status="succeeded"), NOW)

    def test_another_process_with_its_number(self, home: StreamHome) -> None:
        """The start time tells them apart."""
        mine = process(os.getpid())
        assert mine.started is not None
        other = Process(mine.pid, mine.started - 1)
        keep(home, driver_of(machine=machine(), boot_id=boot_id(), process=other))
        assert not Drivers(home).is_running(RUN, NOW)

    def test_a_boot_since(self, home: StreamHome) -> None:
        """It may as well be at work on a clone of this machine: its lease tells."""
        keep(home, driver_of(machine=machine(), boot_id="before", process=process(os.getpid())))
        assert Drivers(home).is_running(RUN, NOW)
        assert not Drivers(home).is_running(RUN, NOW + START_PATIENCE)
        keep_lease(home, machine=machine(), boot_id="before", processes=(Process(1, -1),))
        assert Drivers(home).is_running(RUN, NOW)
        assert not Drivers(home).is_running(RUN, NOW + TTL)

    @pytest.mark.parametrize("is_launched", [True, False])
    def test_on_another_machine(self, home: StreamHome, *, is_launched: bool) -> None:
        """Its lease tells, by its expiry, also of a run that was started by hand."""
        if is_launched:
            keep(home, driver_of())
        keep_lease(home)
        assert Drivers(home).is_running(RUN, NOW)
        assert not Drivers(home).is_running(RUN, NOW + TTL)
        keep_lease(home, is_given_up=True)
        assert not Drivers(home).is_running(RUN, NOW)

    def test_the_lease_of_the_try_before(self, home: StreamHome) -> None:
        """A retry on another machine that has yet to take its lease is starting."""
        keep(home, driver_of())
        keep_lease(home, acquired_at=NOW - timedelta(seconds=30), is_given_up=True)
        assert Drivers(home).is_running(RUN, NOW)

    def test_the_lease_of_another_run(self, home: StreamHome) -> None:
        keep_lease(home, run_id="another")
        assert not Drivers(home).is_running(RUN, NOW)

    def test_nothing_is_known(self, home: StreamHome) -> None:
        assert not Drivers(home).is_running(RUN, NOW)

    def test_damaged(self, home: StreamHome) -> None:
        home.storage.replace(f"{home.location}/drivers/{RUN.run_id}.json", b"{")
        with pytest.raises(RefusedError, match="does not parse"):
            Drivers(home).is_running(RUN, NOW)


class TestLook:
    """What somebody sees who follows a run."""

    @pytest.mark.parametrize("skew", [timedelta(days=-1), timedelta(0), timedelta(days=1)])
    def test_clocks_that_differ(self, home: StreamHome, skew: timedelta) -> None:
        """A driver on another machine lives while its heartbeat goes on, and no longer than the lease after it."""
        seconds = [0.0]
        drivers = Drivers(home, seconds=lambda: seconds[0])
        RunRecords(home).save(RUN)
        keep(home, driver_of(submitted_at=NOW + skew))
        assert not drivers.look(RUN.run_id)[1]
        for beat in range(20):
            seconds[0] = beat * 59.0
            times = {"acquired_at": NOW + skew, "expires_at": NOW + skew + beat * timedelta(seconds=10)}
            keep_lease(home, **times)
            assert not drivers.look(RUN.run_id)[1]
        seconds[0] += 59
        assert not drivers.look(RUN.run_id)[1]
        seconds[0] += 1
        assert drivers.look(RUN.run_id)[1]

    def test_a_driver_that_never_shows_itself(self, home: StreamHome) -> None:
        """Whatever the clock of who started it said."""
        seconds = [0.0]
        drivers = Drivers(home, seconds=lambda: seconds[0])
        RunRecords(home).save(RUN)
        keep(home, driver_of(submitted_at=NOW + timedelta(days=1)))
        assert not drivers.look(RUN.run_id)[1]
        seconds[0] = START_PATIENCE.total_seconds()
        assert drivers.look(RUN.run_id)[1]

    def test_no_record(self, home: StreamHome) -> None:
        """A run whose driver left no record is over: there was nothing left to do. Without both, the home is away."""
        with pytest.raises(StorageError, match="nothing is known"):
            Drivers(home).look(RUN.run_id)
        keep(home, driver_of())
        assert Drivers(home).look(RUN.run_id) == (None, True)

    def test_at_work_and_over(self, home: StreamHome) -> None:
        keep_lease(home)
        RunRecords(home).save(RUN)
        assert Drivers(home).look(RUN.run_id) == (RUN, False)
        done = msgspec.structs.replace(RUN, status="succeeded")
        RunRecords(home).save(done)
        assert Drivers(home).look(RUN.run_id) == (done, True)


class TestWaitForStopped:
    """Until a run that was asked to end is gone, and no second driver can start beside it."""

    @pytest.mark.parametrize("lease", [None, "of the try before"])
    def test_a_driver_without_a_lease_of_its_own(
        self, home: StreamHome, launch: Callable[..., Driver], *, lease: str | None
    ) -> None:
        """Its JVM still starts, and its record may be closed already: only its process tells that it is there."""
        if lease is not None:
            keep_lease(home, acquired_at=NOW - timedelta(seconds=30), is_given_up=True)
        RunRecords(home).save(msgspec.structs.replace(RUN, status="stopped"))
        driver = launch("import time; time.sleep(600)")
        request_stop(home, RUN.run_id, requested_by="ada", now=NOW)
        with pytest.raises(RunError, match=r"was asked to end 0\.1 s ago, and is still at work"):
            Drivers(home).wait_for_stopped(RUN.run_id, 0.1)

        assert driver.process is not None
        os.killpg(driver.process.pid, signal.SIGKILL)
        Drivers(home).wait_for_stopped(RUN.run_id, 20.0)
        assert not is_alive(driver.process)

    def test_one_that_nobody_asked(self, home: StreamHome, launch: Callable[..., Driver]) -> None:
        """It is not waited for."""
        RunRecords(home).save(RUN)
        launch("import time; time.sleep(600)")
        Drivers(home).wait_for_stopped(RUN.run_id, 0.0)

    def test_on_another_machine(self, home: StreamHome) -> None:
        """Its record tells, or its lease."""
        RunRecords(home).save(RUN)
        keep(home, driver_of())
        keep_lease(home)
        request_stop(home, RUN.run_id, requested_by="ada", now=NOW)
        with pytest.raises(RunError, match="is still at work"):
            Drivers(home).wait_for_stopped(RUN.run_id, 0.0)
        RunRecords(home).close_stopped(RUN.run_id, "ada", NOW, token=1)
        Drivers(home).wait_for_stopped(RUN.run_id, 0.0)


class TestStopping:
    """Requests to end a run."""

    def test_request(self, home: StreamHome) -> None:
        """The first one stays; it can be forgotten."""
        assert stop_request(home, "r") is None
        request_stop(home, "r", requested_by="ada", now=NOW)
        request_stop(home, "r", requested_by="bob", now=NOW)
        found = stop_request(home, "r")
        assert found is not None
        assert found.requested_by == "ada"
        forget_stop(home, "r")
        assert stop_request(home, "r") is None

    def test_a_request_is_seen(self, home: StreamHome) -> None:
        """Whoever watches learns of it soon, and of whom it came from."""
        stop = StopEvent()
        with watching(home, "r", stop):
            request_stop(home, "r", requested_by="ada", now=NOW)
            assert stop.asked.wait(10)
        assert stop.is_set()
        assert stop.request is not None
        assert stop.request.requested_by == "ada"

    def test_a_signal_is_no_request(self) -> None:
        """A SIGTERM lets the batch under way be finished, however long it takes."""
        stop = StopEvent()
        stop.set()
        assert not stop.asked.is_set()

    @pytest.mark.parametrize("ends", [True, False])
    def test_a_process_goes_on_where_its_run_has_ended_by_itself(self, home: StreamHome, *, ends: bool) -> None:
        """It has other runs to do; a run that does not end takes the process along, and its record says so."""
        RunRecords(home).save(RUN)
        program = (
            "import threading; from sluice.home import StreamHome; from sluice.runs import driver\n"
            "from sluice.runs.record import RunRecords; from sluice.runs.stop import StopEvent, StopRequest\n"
            "from sluice.storage import Storage\n"
            "driver.GRACE_SECONDS = 0.2\n"
            f"home, stop = StreamHome({home.location!r}, Storage()), StopEvent()\n"
            "is_over = driver.end_group_when_asked(stop, RunRecords(home), lambda _: None)\n"
            f"stop.request = StopRequest(run_id={RUN.run_id!r}, requested_by='ada', requested_at='')\n"
            f"if {ends}: is_over.set()\n"
            "stop.asked.set()\n"
            "thread, = [found for found in threading.enumerate() if found.name == 'sluice-stop'] or [None]\n"
            "thread is None or thread.join(20)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], start_new_session=True, check=False, timeout=60)
        record = RunRecords(home).read(RUN.run_id)

        assert record is not None
        expected = (0, "running") if ends else (-signal.SIGKILL, "stopped")
        assert (done.returncode, record.status) == expected

    def test_a_run_that_was_ended_in_a_batch(self, home: StreamHome) -> None:
        """Its record says who wanted it."""
        records = RunRecords(home)
        records.save(RUN)
        records.close_stopped(RUN.run_id, "ada", NOW, token=1)
        found = records.read(RUN.run_id)
        assert found is not None
        assert (found.status, found.ended_at) == ("stopped", "2026-01-31T12:00:00.000Z")
        assert found.error is not None
        assert "stopped by ada in the middle of a batch" in found.error.message

    def test_a_newer_try_is_not_closed(self, home: StreamHome) -> None:
        """A driver that was stopped somewhere, and asked to end, wakes up: its retry is at work under that record."""
        records = RunRecords(home)
        records.save(msgspec.structs.replace(RUN, status="running", token=2))
        records.close_stopped(RUN.run_id, "ada", NOW, token=1)
        found = records.read(RUN.run_id)
        assert found is not None
        assert found.status == "running"


def driver_of(**changes: object) -> Driver:
    driver = Driver(
        run_id=RUN.run_id, machine=ELSEWHERE, boot_id="b", process=Process(1, 1), log="/nowhere.log", submitted_at=NOW
    )
    return msgspec.structs.replace(driver, **changes)
