"""The lease: who may write, and when it is taken over."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given

from sluice.documents import read_document
from sluice.errors import LeaseLostError, LeaseTakenError, RefusedError, StorageError
from sluice.runs import lease as module
from sluice.runs.lease import HEARTBEAT, TTL, Lease, LeaseFile, RemoteSession, acquire, is_dead, may_wake_up
from sluice.runs.process import Process, boot_id, is_alive, machine, process
from sluice.storage import Storage
from tests.builders import NOW, ManualClock, put
from tests.fuzzing import DEEP, damaged, outcome, short

Spawn = Callable[..., Process]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts processes that live for a given time, or until the test ends."""
    children: list[subprocess.Popen[bytes]] = []

    def start(
        seconds: float = 600, *, program: str = "sleep", is_dead: bool = False, is_reaped: bool = True
    ) -> Process:
        child = subprocess.Popen([program, str(seconds)])
        children.append(child)
        started = process(child.pid).started
        assert started is not None
        if is_dead:
            child.kill()
            # WNOWAIT leaves a zombie behind.
            os.waitid(os.P_PID, child.pid, os.WEXITED | (0 if is_reaped else os.WNOWAIT))
        return Process(child.pid, started)

    yield start
    for child in children:
        child.kill()
        child.wait()


def take(folder: Path, clock: ManualClock, *, run_id: str = "run-1", is_idempotent: bool = True) -> Lease:
    return acquire(Storage(), str(folder), run_id=run_id, sink_is_idempotent=is_idempotent, clock=clock)


def newest(folder: Path, token: int = 1) -> LeaseFile:
    found = read_document(Storage(), f"{folder}/{token}.json", LeaseFile)
    assert found is not None
    return found


def put_lease(folder: Path, *processes: Process, token: int = 1, **changes: Any) -> Path:
    """A lease as another run left it."""
    content = {
        "format": 1,
        "token": token,
        "run_id": "theirs",
        "host": "worker-7",
        "machine": machine(),
        "boot_id": boot_id(),
        "processes": [{"pid": process.pid, "started": process.started} for process in processes],
        "acquired_at": "2026-01-31T11:59:30Z",
        "expires_at": (NOW + TTL).isoformat(),
        "is_released": False,
    }
    return put(folder / f"{token}.json", json.dumps(content | changes))


def me() -> Process:
    return process(os.getpid())


class TestFree:
    """Nobody has taken it."""

    def test_first(self, tmp_path: Path, clock: ManualClock) -> None:
        """The first lease of a generation has token 1, this process as its owner, and an expiry."""
        lease = take(tmp_path / "leases", clock)
        found = newest(tmp_path / "leases")

        assert (lease.token, lease.taken_from) == (1, None)
        assert (found.run_id, found.token, found.is_given_up) == ("run-1", 1, False)
        assert found.processes == (me(),)
        assert (found.acquired_at, found.expires_at) == (NOW, NOW + TTL)
        assert os.path.exists(f"/proc/{found.processes[0].pid}")

    def test_released(self, tmp_path: Path, clock: ManualClock) -> None:
        """A released lease is followed by the next token; no file is ever deleted."""
        with take(tmp_path, clock):
            pass
        with take(tmp_path, clock, run_id="run-2", is_idempotent=False) as lease:
            assert (lease.token, lease.taken_from) == (2, None)

        assert sorted(os.listdir(tmp_path)) == ["1.json", "2.json"]
        assert newest(tmp_path, 1).is_given_up
        assert newest(tmp_path, 2).is_given_up

    def test_release_after_a_failure(self, tmp_path: Path, clock: ManualClock) -> None:
        """A run that fails gives its lease up, too."""
        with pytest.raises(ZeroDivisionError), take(tmp_path, clock):
            _ = 1 / 0

        assert newest(tmp_path).is_given_up

    def test_strangers_in_the_folder(self, tmp_path: Path, clock: ManualClock) -> None:
        """Temporary files and strange names are no leases."""
        for name in (".7.json.0f1e.tmp", "²", "².json", "a.json", "8", "9.json.bak", "-5.json", "007.json", "00.json"):
            put(tmp_path / name, "x")

        assert take(tmp_path, clock).token == 1

    def test_tokens_are_numbers(self, tmp_path: Path, clock: ManualClock) -> None:
        """The highest token counts, not the last in the order of letters."""
        for token in (9, 10, 2):
            put_lease(tmp_path, me(), token=token, is_released=True)

        assert take(tmp_path, clock).token == 11


class TestHeld:
    """Somebody has taken it."""

    @pytest.mark.parametrize("is_idempotent", [True, False])
    def test_by_a_living_process(
        self, tmp_path: Path, clock: ManualClock, spawn: Spawn, *, is_idempotent: bool
    ) -> None:
        """A lease that has not run out is refused with its owner and age, and left as it is."""
        process = spawn()
        file = put_lease(tmp_path, process)
        content = file.read_bytes()

        with pytest.raises(LeaseTakenError) as caught:
            take(tmp_path, clock, is_idempotent=is_idempotent)

        assert f"run theirs on worker-7, process {process.pid}, since 2026-01-31T11:59:30.000Z" in caught.value.problem
        assert "clock" not in caught.value.problem
        assert caught.value.where == str(file)
        assert (os.listdir(tmp_path), file.read_bytes()) == (["1.json"], content)

    def test_by_this_process(self, tmp_path: Path, clock: ManualClock) -> None:
        """A process can't take its own lease a second time."""
        take(tmp_path, clock)

        with pytest.raises(LeaseTakenError):
            take(tmp_path, clock, run_id="run-2")

    def test_until_the_very_end(self, tmp_path: Path, clock: ManualClock) -> None:
        """A lease holds up to its expiry, and not at it."""
        put_lease(tmp_path, me())
        clock.move(TTL.total_seconds() - 0.001)
        with pytest.raises(LeaseTakenError):
            take(tmp_path, clock)

        clock.move(0.001)
        assert take(tmp_path, clock).token == 2

    def test_on_another_machine(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """A process number of another machine proves nothing."""
        put_lease(tmp_path, spawn(is_dead=True), machine="worker-7 0f1e pid:[1]")

        with pytest.raises(LeaseTakenError):
            take(tmp_path, clock)

    def test_race(self, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of two that saw the same free lease, the second to write is refused."""
        put_if_absent = Storage.put_if_absent

        def slow(storage: Storage, location: str, content: bytes) -> bool:
            monkeypatch.setattr(Storage, "put_if_absent", put_if_absent)
            take(tmp_path, clock, run_id="faster")
            return put_if_absent(storage, location, content)

        monkeypatch.setattr(Storage, "put_if_absent", slow)
        with pytest.raises(LeaseTakenError, match="at the same moment") as caught:
            take(tmp_path, clock)

        assert caught.value.where == f"{tmp_path}/1.json"
        assert newest(tmp_path).run_id == "faster"

    def test_crowd(self, tmp_path: Path, clock: ManualClock) -> None:
        """Of eight at once exactly one gets the lease."""
        start = threading.Barrier(8)
        results: list[Lease | LeaseTakenError] = []

        def compete(number: int) -> None:
            start.wait()
            try:
                results.append(take(tmp_path, clock, run_id=f"run-{number}"))
            except LeaseTakenError as exc:
                results.append(exc)

        threads = [threading.Thread(target=compete, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [type(result) for result in results].count(Lease) == 1
        assert os.listdir(tmp_path) == ["1.json"]


class TestTakeover:
    """The owner is dead, or has run out of time."""

    @pytest.mark.parametrize("is_reaped", [True, False], ids=["gone", "zombie"])
    @pytest.mark.parametrize("is_idempotent", [True, False])
    def test_dead_owner(
        self, tmp_path: Path, clock: ManualClock, spawn: Spawn, *, is_idempotent: bool, is_reaped: bool
    ) -> None:
        """A dead owner's lease is taken over at once, whatever the sink, and its run is told."""
        put_lease(tmp_path, spawn(is_dead=True, is_reaped=is_reaped))
        lease = take(tmp_path, clock, is_idempotent=is_idempotent)

        assert (lease.token, lease.taken_from) == (2, "theirs")

    def test_process_number_used_again(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """A process of the same number that began at another time is not the owner."""
        process = spawn()
        put_lease(tmp_path, Process(process.pid, process.started - 1))

        assert take(tmp_path, clock).token == 2

    @pytest.mark.parametrize("is_gone", [True, False])
    def test_machine_of_the_same_name(self, tmp_path: Path, clock: ManualClock, spawn: Spawn, *, is_gone: bool) -> None:
        """Another boot proves no death: a clone of this machine may be at work. Its lease runs out, or is given up."""
        put_lease(tmp_path, spawn(is_dead=is_gone), boot_id="before")
        with pytest.raises(LeaseTakenError):
            take(tmp_path, clock)

        clock.move(TTL.total_seconds())
        with pytest.raises(LeaseTakenError, match="has run out, but it may still write"):
            take(tmp_path, clock, is_idempotent=False)
        assert take(tmp_path, clock).token == 2

    def test_jvm_that_outlives_its_driver(
        self, tmp_path: Path, clock: ManualClock, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While the dead driver's JVM lives, it may write: the lease is taken, for as long as is waited."""
        monkeypatch.setattr(module, "_DEATH_PATIENCE_SECONDS", 0.1)
        put_lease(tmp_path, spawn(is_dead=True), spawn())

        with pytest.raises(LeaseTakenError):
            take(tmp_path, clock)

    def test_jvm_that_follows_its_driver(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """A JVM that dies within the patience is waited for."""
        put_lease(tmp_path, spawn(is_dead=True), spawn(0.2))

        assert take(tmp_path, clock, is_idempotent=False).token == 2

    def test_living_driver_is_not_waited_for(
        self, spawn: Spawn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """When the driver itself lives, there is nothing to wait for."""
        # Its own clock, for other threads of this process sleep as they like.
        impatient = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("waited"))
        monkeypatch.setattr(module, "time", impatient)
        put_lease(tmp_path, spawn(), spawn(is_dead=True))

        assert not is_dead(newest(tmp_path), patience_seconds=600)

    def test_expired_with_an_idempotent_sink(
        self, tmp_path: Path, clock: ManualClock, spawn: Spawn, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Where the sink refuses a second writer, running out is enough; a warning stays."""
        put_lease(tmp_path, spawn())
        clock.move(TTL.total_seconds())
        with caplog.at_level(logging.WARNING):
            lease = take(tmp_path, clock)

        assert (lease.token, lease.taken_from) == (2, "theirs")
        assert "ran out at 2026-01-31T12:01:00.000Z" in caplog.text

    def test_expired_with_another_sink(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """Elsewhere a stopped owner could wake up and write: a person decides."""
        file = put_lease(tmp_path, spawn())
        clock.move(3600)

        with pytest.raises(LeaseTakenError, match="has run out, but it may still write") as caught:
            take(tmp_path, clock, is_idempotent=False)

        assert caught.value.where == str(file)
        assert os.listdir(tmp_path) == ["1.json"]

    def test_person_who_releases(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """What the message advises works, and the number of the lease is not used again."""
        file = put_lease(tmp_path, spawn())
        clock.move(3600)
        with pytest.raises(LeaseTakenError, match='set "is_released": true in the file'):
            take(tmp_path, clock, is_idempotent=False)

        file.write_bytes(file.read_bytes().replace(b'"is_released": false', b'"is_released": true'))
        assert take(tmp_path, clock, is_idempotent=False).token == 2

    def test_owner_whose_start_is_not_known(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """Where the system told no start time, nothing proves a death: the lease holds until it runs out."""
        put_lease(tmp_path, Process(spawn(is_dead=True).pid, None))
        with pytest.raises(LeaseTakenError):
            take(tmp_path, clock)

        clock.move(TTL.total_seconds())
        assert take(tmp_path, clock).token == 2

    def test_clock_that_is_behind(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """An expiry far ahead comes of clocks that differ: it holds, and the message says so."""
        put_lease(tmp_path, spawn())
        clock.move(-3600)

        with pytest.raises(LeaseTakenError, match="by a clock 1:00:00 ahead of this one"):
            take(tmp_path, clock)

    @pytest.mark.parametrize(("ahead_seconds", "is_told"), [(120, False), (121, True)])
    def test_clocks_that_differ_a_little(
        self, tmp_path: Path, clock: ManualClock, ahead_seconds: int, *, is_told: bool
    ) -> None:
        """Up to a minute of difference is not worth a word."""
        put_lease(tmp_path, me(), expires_at=(NOW + timedelta(seconds=ahead_seconds)).isoformat())

        with pytest.raises(LeaseTakenError) as caught:
            take(tmp_path, clock)

        assert ("by a clock 0:01:01 ahead" in caught.value.problem) is is_told

    def test_owner_on_another_machine_that_ran_out(self, tmp_path: Path, clock: ManualClock) -> None:
        """A machine that was lost is taken over from by expiry, where the sink allows it."""
        put_lease(tmp_path, me(), machine="worker-7", expires_at=(NOW - timedelta(seconds=1)).isoformat())

        assert take(tmp_path, clock).token == 2

    def test_process_with_an_odd_name(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """A process's own name, whatever bytes it has, does not hide that it lives."""
        program = tmp_path / os.fsdecode(b"a) Z 1 \xff (")
        program.symlink_to("/bin/sleep")
        put_lease(tmp_path / "leases", spawn(program=str(program)))

        with pytest.raises(LeaseTakenError):
            take(tmp_path / "leases", clock)


class TestSessionOnAServer:
    """The owner's Spark is on a server, where it goes on without its owner."""

    SESSION = RemoteSession("sc://spark:15002", "ann", "7c9f")

    def put(self, folder: Path, owner: Process) -> Path:
        return put_lease(folder, owner, session=msgspec.structs.asdict(self.SESSION))

    def take(self, folder: Path, clock: ManualClock, *, is_ended: bool, is_idempotent: bool = False) -> list[Any]:
        """Which sessions are asked to be ended, before the lease is taken."""
        asked: list[RemoteSession] = []

        def end(session: RemoteSession) -> bool:
            asked.append(session)
            return is_ended

        lease = acquire(
            Storage(), str(folder), run_id="mine", sink_is_idempotent=is_idempotent, clock=clock, end_session=end
        )
        assert lease.token == 2
        return asked

    def test_dead_owner(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """What a dead owner has started is ended, and then the lease is taken over at once."""
        self.put(tmp_path, spawn(is_dead=True))
        assert self.take(tmp_path, clock, is_ended=True) == [self.SESSION]

    def test_dead_server(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """What ran in a process that is gone need not be ended; one that lives is asked."""
        for server, asked in ((spawn(is_dead=True), 0), (spawn(), 1)):
            folder = tmp_path / str(asked)
            session = msgspec.structs.replace(self.SESSION, process=server)
            put_lease(folder, spawn(is_dead=True), session=msgspec.to_builtins(session))
            assert self.take(folder, clock, is_ended=True) == [session] * asked

    def test_living_owner(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """The session of a run that is at work is left alone."""
        self.put(tmp_path, spawn())
        with pytest.raises(LeaseTakenError, match="is being run by run theirs"):
            acquire(
                Storage(),
                str(tmp_path),
                run_id="mine",
                sink_is_idempotent=True,
                clock=clock,
                end_session=lambda _: pytest.fail("ended"),
            )

    def test_session_that_can_not_be_ended(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """Until the lease runs out it is taken, although its owner is dead; then the sink's identity counts."""
        self.put(tmp_path, spawn(is_dead=True))
        with pytest.raises(LeaseTakenError, match="what it has started on sc://spark:15002 could not be ended"):
            self.take(tmp_path, clock, is_ended=False, is_idempotent=True)
        clock.move(TTL.total_seconds())
        with pytest.raises(LeaseTakenError, match="make sure that it runs nothing on sc://spark:15002"):
            self.take(tmp_path, clock, is_ended=False)
        assert self.take(tmp_path, clock, is_ended=False, is_idempotent=True) == [self.SESSION]

    def test_owner_that_ran_out(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """An owner without a session can't write any more, wherever it is: no person has to decide."""
        self.put(tmp_path, spawn())
        clock.move(TTL.total_seconds())
        assert self.take(tmp_path, clock, is_ended=True) == [self.SESSION]

    def test_add_session(self, tmp_path: Path, clock: ManualClock) -> None:
        """The session is on disk before anything is started in it, and stays there."""
        with take(tmp_path, clock) as lease:
            lease.add_session(self.SESSION)
            assert newest(tmp_path).session == self.SESSION
        assert newest(tmp_path).session == self.SESSION


class TestHolding:
    """While it is taken."""

    def test_check(self, tmp_path: Path, clock: ManualClock) -> None:
        """The owner's check passes until a higher token appears, which is named."""
        lease = take(tmp_path, clock)
        lease.check()
        put_lease(tmp_path, me(), token=2)

        with pytest.raises(LeaseLostError, match="lease 1 was taken over by 2") as caught:
            lease.check()
        assert caught.value.where == f"{tmp_path}/2.json"

    def test_check_of_a_lease_that_was_deleted(self, tmp_path: Path, clock: ManualClock) -> None:
        """A lease that is gone does not hold."""
        lease = take(tmp_path, clock)
        (tmp_path / "1.json").unlink()

        with pytest.raises(LeaseLostError):
            lease.check()

    def test_heartbeat(self, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """The expiry moves on with the clock while the lease is taken."""
        monkeypatch.setattr(module, "HEARTBEAT", timedelta(milliseconds=1))
        written = threading.Event()
        replace = Storage.replace
        with take(tmp_path, clock):
            clock.move(30)
            monkeypatch.setattr(Storage, "replace", lambda *args: (replace(*args), written.set()))
            assert written.wait(10)
            assert newest(tmp_path).expires_at == NOW + timedelta(seconds=30) + TTL
            assert not newest(tmp_path).is_given_up

    def test_heartbeat_leaves_time(self) -> None:
        """A lease of a minute outlives several heartbeats that fail."""
        assert HEARTBEAT.total_seconds() == 10
        assert TTL.total_seconds() == 60

    def test_heartbeat_that_fails(
        self, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A heartbeat that can't be written is tried again, and does not end the run."""
        monkeypatch.setattr(module, "HEARTBEAT", timedelta(milliseconds=1))
        replace, attempts, recovered = Storage.replace, [0], threading.Event()

        def flaky(storage: Storage, location: str, content: bytes) -> None:
            attempts[0] += 1
            if attempts[0] <= 2:
                raise StorageError("could not write it")
            replace(storage, location, content)
            recovered.set()

        monkeypatch.setattr(Storage, "replace", flaky)
        with take(tmp_path, clock):
            assert recovered.wait(10)

        assert caplog.text.count("heartbeat failed") == 2
        assert newest(tmp_path).is_given_up

    def test_release_stops_the_heartbeat(
        self, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is written after the release, which is the last word."""
        monkeypatch.setattr(module, "HEARTBEAT", timedelta(milliseconds=1))
        with take(tmp_path, clock):
            pass

        assert not [thread for thread in threading.enumerate() if thread.name == "sluice-lease"]
        assert newest(tmp_path).is_given_up

    def test_release_that_fails(
        self, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The work is done when the lease is given up: a full disk then is a warning."""

        def full(*_args: object) -> None:
            raise StorageError("could not write it")

        with take(tmp_path, clock):
            monkeypatch.setattr(Storage, "replace", full)

        assert "could not be given up" in caplog.text
        assert not newest(tmp_path).is_given_up

    def test_lost_lease_is_released_alone(self, tmp_path: Path, clock: ManualClock) -> None:
        """Who lost the lease gives up its own token, never the new owner's."""
        with take(tmp_path, clock):
            file = put_lease(tmp_path, me(), token=2)
            theirs = file.read_bytes()

        assert file.read_bytes() == theirs
        assert newest(tmp_path, 1).is_given_up

    def test_add_process(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """The JVM becomes part of the owner at once, and stays so in every heartbeat."""
        jvm = spawn()
        with take(tmp_path, clock) as lease:
            lease.add_process(jvm.pid)
            assert newest(tmp_path).processes == (me(), jvm)
            assert not newest(tmp_path).is_given_up

        assert newest(tmp_path).processes == (me(), jvm)

    def test_add_process_that_is_gone(self, tmp_path: Path, clock: ManualClock, spawn: Spawn) -> None:
        """A process that died before it was named is dead."""
        lease = take(tmp_path, clock)
        lease.add_process(spawn(is_dead=True).pid)

        assert newest(tmp_path).processes[1].started is None
        assert not is_alive(newest(tmp_path).processes[1])


class TestDamage:
    """A lease file that is not as it was written."""

    @pytest.mark.parametrize(
        "content",
        [b"", b"{}", b"garbage", DEEP, b'{"format": 99}', b'{"token": "\xff"}'],
        ids=short,
    )
    def test_damaged_file(self, tmp_path: Path, clock: ManualClock, content: bytes) -> None:
        """A damaged lease refuses, and is named: nobody knows who has taken it."""
        file = put(tmp_path / "1.json", content)

        with pytest.raises(RefusedError) as caught:
            take(tmp_path, clock)

        assert caught.value.finding.file == str(file)

    @pytest.mark.parametrize(
        "changes", [{"processes": []}, {"expires_at": "2026-01-31T12:01:00"}, {"acquired_at": "2026-01-31T12:01:00"}]
    )
    def test_half_a_lease(self, tmp_path: Path, clock: ManualClock, changes: dict[str, Any]) -> None:
        """So does one without an owner, or with times of no zone."""
        put_lease(tmp_path, me(), **changes)

        with pytest.raises(RefusedError):
            take(tmp_path, clock)

    @given(content=damaged(b'{"format":1,"token":1,"run_id":"a","host":"h","machine":"m","boot_id":"b","processes":'
                           b'[{"pid":1,"started":5}],"acquired_at":"2026-01-31T11:59:30Z","expires_at":"2026-01-31T'
                           b'11:59:40Z","is_released":false}'))  # fmt: skip
    def test_any_bytes(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Any bytes give a lease, one that is taken, or a refusal."""
        folder = tmp_path_factory.getbasetemp() / "fuzzed_lease"
        put(folder / "1.json", content)
        (folder / "2.json").unlink(missing_ok=True)

        assert isinstance(outcome(lambda: take(folder, ManualClock())), Lease | LeaseTakenError | RefusedError)


def test_who_may_wake_up(tmp_path: Path, spawn: Spawn) -> None:
    """Whoever has not given a lease up, and is not provably dead; on a server, nobody is."""
    remote = {"server": "sc://localhost:15002", "user_id": "u", "session_id": "s"}
    put_lease(tmp_path, spawn(), run_id="asleep")
    put_lease(tmp_path, spawn(is_dead=True), token=2, run_id="dead")
    put_lease(tmp_path, spawn(), token=3, run_id="gave it up", is_released=True)
    put_lease(tmp_path, spawn(is_dead=True), token=4, run_id="on a server", session=remote)
    put_lease(tmp_path, spawn(is_dead=True), token=5, run_id="elsewhere", machine="worker-8 0f1e pid:[1]")
    put_lease(tmp_path, me(), token=6, run_id="own")
    gone = {**remote, "process": msgspec.to_builtins(spawn(is_dead=True))}
    put_lease(tmp_path, spawn(is_dead=True), token=7, run_id="on a server that is gone", session=gone)

    assert may_wake_up(Storage(), str(tmp_path), but=6) == ["asleep", "on a server", "elsewhere"]
    assert may_wake_up(Storage(), str(tmp_path / "none")) == []
