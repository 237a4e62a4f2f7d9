"""Drivers on machines of one name, stopped, woken and killed at any step: who lost the lease writes nothing more.

A schedule decides at every step which driver goes on, and how long the one that does not is stopped. Its seed tells all
of it: only one driver is at work at a time, and the clock moves only while one is stopped.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sluice import local_disk
from sluice.errors import SluiceError
from sluice.generation_notes import KeptState
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.running import analysed_query, begun_query, runner
from sluice.runs import journal as journal_module
from sluice.runs import lease as lease_module
from sluice.runs.lease import HEARTBEAT, TTL, Lease, newest_token
from sluice.storage import Storage
from tests.campaign import CAMPAIGN
from tests.unit.engine_lab import KilledError, Lab, LabProject, make_lab

SEEDS = range(3_000 if CAMPAIGN else 40)
_FILES = 4
_MAY_BE_LATE = re.compile(
    # Put where nothing is: what the next run would have put there, or what it finds, and adopts or refuses.
    r"current\.json|generations/0001/(metadata|offsets/\d+|sources/0/\d+)"
    # Of a driver that read it a moment ago, and of the same plan; what is lost of it is told anew by the next run.
    r"|generations/0001\.json"
    # Aids, and what nobody goes by: sizes of files, the newest skip, stop requests of runs that are over.
    r"|taken/0001/0/\d+\.json|checked\.json|stops/[0-9TZ]+-[0-9a-f]{8}\.json"
)
"""What a driver may write late that was stopped between its look at the lease and its write: no record, no commit, and
nothing that says what the sink or a gate has decided."""
_STOPS = 0.1
"""How likely a driver is stopped at a step."""


@dataclass
class _Driver:
    """One driver: a thread that is at work only while it is its turn."""

    name: str
    run_key: str | None
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    lease: Lease | None = None
    is_over: bool = False
    is_killed: bool = False
    run_id: str = ""
    status: str = ""
    """What its run came to."""
    late_writes: list[str] = field(default_factory=list)
    """What it wrote after another one had taken its lease over."""

    def has_lost(self) -> bool:
        return self.lease is not None and newest_token(Storage(), self.lease.folder) != self.lease.token


class _WatchedStorage(Storage):
    """The storage of one driver; notes what is written without a lease that holds."""

    def __init__(self, driver: _Driver, schedule: _Schedule) -> None:
        super().__init__()
        self.driver, self.schedule = driver, schedule
        self.is_record = False
        """Whether it is a run's record that is written: those are fenced by their tokens."""

    def put_if_absent(self, location: str, content: bytes) -> bool:
        self._step(location)
        had_lost = self.driver.has_lost()
        done = super().put_if_absent(location, content)
        if done and had_lost:
            self.driver.late_writes.append(location)
        return done

    def replace(self, location: str, content: bytes) -> None:
        # A record was stopped at already, with its folder locked: nobody else could get at it.
        if not self.is_record and not self._is_own_lease(location):
            self._step(location)
        self._note(location)
        super().replace(location, content)

    def replace_if(self, location: str, content: bytes, may_replace: Callable[[bytes | None], bool]) -> bool:
        self._step(location)
        self.is_record = True
        try:
            return super().replace_if(location, content, may_replace)
        finally:
            self.is_record = False

    def delete(self, location: str) -> None:
        self._step(location)
        self._note(location)
        super().delete(location)

    def _step(self, location: str) -> None:
        if self.schedule.is_torn:
            self.schedule.step(self.driver)
        if self.driver.is_killed:
            raise KilledError(location)

    def _note(self, location: str) -> None:
        if self.driver.is_killed:
            raise KilledError(location)
        if self.driver.has_lost() and not (self._is_own_lease(location) or self.is_record):
            self.driver.late_writes.append(location)

    def _is_own_lease(self, location: str) -> bool:
        return self.driver.lease is not None and location.startswith(self.driver.lease.folder)


class _Schedule:
    """Three drivers of one stream, and when each is at work.

    Args:
        lab: The stream.
        seed: Decides everything.
        is_torn: Whether a driver may also be stopped between its look at the lease and its write.
    """

    def __init__(self, lab: Lab, seed: int, *, is_torn: bool) -> None:
        self.lab, self.random, self.is_torn = lab, random.Random(seed), is_torn
        key = self.random.choice([None, "key"])
        self.drivers = [_Driver(f"boot-{number}", key) for number in range(3)]
        self.unforeseen: list[BaseException] = []
        self._over = threading.Semaphore(0)
        self._mine = threading.local()

    @property
    def me(self) -> _Driver:
        found: _Driver = self._mine.driver
        return found

    def play(self) -> None:
        """Let all drivers run to their end."""
        check, acquire = Lease.check, lease_module.acquire

        def stepped_check(lease: Lease) -> None:
            self.step(self.me)
            check(lease)

        def noted_acquire(*args: Any, **options: Any) -> Lease:
            self.me.lease = acquire(*args, **options)
            return self.me.lease

        with ExitStack() as patches:
            # Who holds a folder's lock is stopped: the others would wait for it in vain.
            patches.enter_context(patch.object(local_disk, "_LOCK_PATIENCE_SECONDS", 0.001))
            patches.enter_context(patch.object(Lease, "check", stepped_check))
            patches.enter_context(patch.object(journal_module, "acquire", noted_acquire))
            patches.enter_context(patch.object(lease_module, "boot_id", lambda: self.me.name))
            patches.enter_context(patch.object(analysed_query, "build_query", self.lab._build_query))
            patches.enter_context(patch.object(runner, "fingerprints", lambda *_, **__: {}))
            patches.enter_context(patch.object(begun_query, "read_kept_state", lambda _: KeptState("the model", ())))
            patches.enter_context(patch.object(runner, "first_batch_checked", lambda *_: nullcontext()))
            patches.enter_context(patch.object(self.lab, "_step", lambda _: self.step(self.me)))
            threads = [threading.Thread(target=self._drive, args=(driver,)) for driver in self.drivers]
            for thread in threads:
                thread.start()
            self.drivers[0].turn.release()
            assert self._over.acquire(timeout=120)
            for thread in threads:
                thread.join()

    def step(self, driver: _Driver) -> None:
        """A moment at which a driver may be stopped or killed, and others go on."""
        if driver.is_killed:
            return
        fate = self.random.random()
        if fate < _STOPS / 10:
            driver.is_killed = True
            raise KilledError(driver.name)
        if fate < _STOPS:
            self._stop(driver)

    def _stop(self, driver: _Driver) -> None:
        """Stop a driver for up to three of its leases' lives, while the others' hearts beat."""
        others = [other for other in self.drivers if not other.is_over and other is not driver]
        seconds = self.random.choice([0.0, HEARTBEAT.total_seconds(), 3 * TTL.total_seconds()])
        self.lab.now += timedelta(seconds=seconds)
        for other in others:
            if other.lease is not None and not other.is_killed and not other.has_lost():
                Lease._write(other.lease)
        if others:
            self.random.choice(others).turn.release()
            assert driver.turn.acquire(timeout=120)

    def _drive(self, driver: _Driver) -> None:
        self._mine.driver = driver
        assert driver.turn.acquire(timeout=120)
        lab = self.lab
        settings: Any = {"stream_folders": (), "import_roots": (), "its_storage": _WatchedStorage(driver, self)}
        project = LabProject(str(lab.root), "lab", str(lab.root / "home"), **settings)
        request = Request(lab.stream, Limits(), driver.run_key)
        try:
            record = runner.run_stream(project, request, session=lab._session(), clock=lab.clock)
            driver.run_id, driver.status = record.run_id, record.status
        except KilledError:
            pass
        except SluiceError as exc:
            driver.status = type(exc).__name__
        except BaseException as exc:
            self.unforeseen.append(exc)
        finally:
            driver.is_over = True
            left = [other for other in self.drivers if not other.is_over]
            (self.random.choice(left).turn if left else self._over).release()


def play(root: Path, seed: int, *, is_torn: bool) -> _Schedule:
    """Play a schedule, and then a last run when every lease has run out."""
    lab = make_lab(root, max_files_per_batch=1)
    for second in range(_FILES):
        lab.arrive(second)
    schedule = _Schedule(lab, seed, is_torn=is_torn)
    schedule.play()
    assert not schedule.unforeseen, schedule.unforeseen
    lab.now += 2 * TTL
    with patch.object(lease_module, "boot_id", lambda: "another"):
        lab.run()
    return schedule


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_torn", [False, True], ids=["between writes", "in a write"])
def test_nothing_is_written_without_the_lease(tmp_path: Path, *, is_torn: bool) -> None:
    """Whoever is stopped, and for how long: every row once, nothing late, and no record but the newest try's."""
    taken_over = torn = 0
    for seed in SEEDS:
        schedule = play(tmp_path / str(seed), seed, is_torn=is_torn)
        lab, drivers = schedule.lab, schedule.drivers
        assert lab.sink.ids() == Counter(range(_FILES)), seed
        late = [location.removeprefix(f"{lab.home}/") for driver in drivers for location in driver.late_writes]
        assert not [file for file in late if not (is_torn and _MAY_BE_LATE.fullmatch(file))], seed
        torn += bool(late)
        kept = {record["run_id"]: record["status"] for record in lab.records()}
        done = [driver.run_id for driver in drivers if driver.status == "succeeded"]
        assert [kept[run_id] for run_id in done] == ["succeeded"] * len(done), seed
        taken_over += (newest_token(Storage(), f"{lab.home}/leases/0001") or 0) > 1
    assert taken_over > len(SEEDS) / 4
    assert not is_torn or torn > len(SEEDS) / 20
