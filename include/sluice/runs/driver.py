"""Drivers: processes that run one run each, detached from whoever started them.

<home>/<stream>/drivers/<run_id>.json    who started the driver of a run, and which process it is

A driver outlives the task that started it. Whoever comes later finds it again by the run: first by the process that was
started, then by the lease that it has taken, which also tells of drivers on other machines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import stat
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, TextIO

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import RunError, SluiceError, StorageError
from sluice.home import StreamHome
from sluice.local_disk import PRIVATE_FILE, PRIVATE_FOLDER, make_folder
from sluice.locations import is_local, join, local_path
from sluice.redaction import redacted
from sluice.runs.lease import TTL, Lease, is_dead, newest_lease
from sluice.runs.process import Process, boot_id, is_alive, machine, process
from sluice.runs.record import RunRecord, RunRecords
from sluice.runs.stop import StopEvent, forget_stop, stop_request, watching

logger = logging.getLogger(__name__)

START_PATIENCE = timedelta(seconds=90)
"""How long a driver may take from its submission to its lease: Spark starts its JVM, which starts Python."""
_TURN_PATIENCE = timedelta(days=1)
"""How long a run may be planned before a driver that can't be seen from here begins it: one that several streams share
does others first."""
GRACE_SECONDS = 5.0
"""How long a batch may go on after somebody asked the run to end."""
_STOP_POLL_SECONDS = 0.25

_IsFresh = Callable[[object, datetime, timedelta], bool]
"""Whether a sign of life, given since a time, still counts after so much patience."""


class Driver(Document, frozen=True, kw_only=True):
    """The driver of a run."""

    if_lost = "delete it: the lease tells whether a driver is at work"
    run_id: str
    machine: str
    boot_id: str
    process: Process | None
    """What was started; None when whoever started it died before it could say."""
    log: str
    """Where its output is, on its machine."""
    log_start: int = 0
    """Where its output begins in there, in bytes: a retry's follows that of the try before."""
    submitted_at: Annotated[datetime, msgspec.Meta(tz=True)]
    is_shared: bool = False
    """Whether it runs other streams, too, one after the other; its log tells of all of them."""


@dataclass
class Drivers:
    """The drivers of one stream.

    Args:
        home: The stream's folder in the home.
        seconds: Tells seconds that pass, from any start.
    """

    home: StreamHome
    seconds: Callable[[], float] = time.monotonic
    _sign: tuple[object, float] = (None, 0.0)
    """The newest sign of life on another machine, and since when it is known here."""

    def find(self, run_id: str) -> Driver | None:
        """The newest driver of a run; None when none was started, as of a run by hand.

        Raises:
            RefusedError: Its file is damaged.
        """
        return read_document(self.home.storage, _file(self.home, run_id), Driver)

    def launch(
        self,
        run_id: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        now: datetime,
        *,
        inherited: Sequence[int] = (),
        others: Sequence[tuple[StreamHome, str]] = (),
    ) -> Driver:
        """Start a driver in a process group of its own; its output goes into its log.

        The intent is on disk before the process is there: a second start waits for the first to show itself.

        Args:
            run_id: The run.
            command: What starts the driver.
            environment: Its environment.
            now: The time.
            inherited: Descriptors that it is to have.
            others: The runs of other streams that it does, too, each with its stream's folder in the home.

        Raises:
            StorageError: The intent could not be written, and nothing was started.
            RunError: The command could not be started.
        """
        log_file = self._log_folder() / f"{run_id}.log"
        driver = Driver(
            run_id=run_id,
            machine=machine(),
            boot_id=boot_id(),
            process=None,
            log=str(log_file),
            log_start=log_file.stat().st_size if log_file.exists() else 0,
            submitted_at=now,
            is_shared=bool(others),
        )
        runs = [(self.home, run_id), *others]
        for home, own_id in runs:
            forget_stop(home, own_id)
            _keep(home, driver, own_id)
        try:
            with open(driver.log, "ab", opener=_open_log) as log:
                started = subprocess.Popen(
                    list(command),
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=inherited,
                )
        except OSError as exc:
            for home, own_id in runs:
                home.storage.delete(_file(home, own_id))
            raise RunError(
                f"the driver could not be started: {exc.strerror}",
                where=str(exc.filename),
                remedy="check that pyspark is installed where this task runs, and that the disk is not full",
            ) from exc
        # Nobody waits for it but its own parent; a zombie is not alive.
        threading.Thread(target=started.wait, name="sluice-driver", daemon=True).start()
        driver = msgspec.structs.replace(driver, process=process(started.pid))
        for home, own_id in runs:
            _keep(home, driver, own_id)
        return driver

    def tell_log(self, run_id: str, exc: BaseException) -> str | None:
        """Write all of what ended a run into its log, which only its owner can read; never raises.

        Returns:
            Where the log is, on this machine; None when it can't be written.
        """
        try:
            with self.open_log(run_id) as file:
                file.write(redacted("".join(traceback.format_exception(exc))))
        except Exception:  # whatever it says of itself: the error itself is told anyway
            logger.warning("the log of run %s can't be written", run_id, exc_info=True)
            return None
        return file.name

    @contextlib.contextmanager
    def telling(self, run_id: str) -> Iterator[None]:
        """While this lasts, an error of which the message masks something names the log that has all of it.

        Args:
            run_id: What is at work: a run, or anything else that is named so.
        """
        try:
            yield
        except SluiceError as exc:
            if exc.__cause__ is not None:
                exc.log = self.tell_log(run_id, exc)
            raise

    def open_log(self, run_id: str) -> TextIO:
        """The log of a driver that whoever started it follows, to write down what it says.

        Raises:
            OSError: It can't be written.
            RunError: Its folder is not this user's alone.
        """
        log = str(self._log_folder() / f"{run_id}.log")
        return open(log, "a", opener=_open_log, encoding="utf-8", errors="backslashreplace")

    def look(self, run_id: str) -> tuple[RunRecord | None, bool]:
        """The record of a run, and whether the run is over; a run is also over when its driver died without a word.

        For whoever looks again and again: a driver on another machine lives as long as its heartbeat goes on, whatever
        the two machines' clocks say.

        Raises:
            RefusedError: A file of the home is damaged.
            StorageError: A file of the home can't be read, or the home is not there.
        """
        records = RunRecords(self.home)
        record = records.read(run_id)
        if record is None and self.find(run_id) is None:
            # A run that found nothing to do leaves no record; its driver's file stays.
            raise StorageError("nothing is known of the run", where=self.home.location, remedy="bring back the home")
        if record is not None and self._is_at_work(record, self._is_new):
            return record, False
        # What it wrote last, it may have written since.
        return records.read(run_id), True

    def is_elsewhere(self, run_id: str) -> bool:
        """Whether the driver of a run is one of which this machine can't tell by its process that it has ended.

        Raises:
            RefusedError: Its file is damaged.
        """
        driver = self.find(run_id)
        return driver is not None and not _is_here(driver)

    def wait_for_stopped(self, run_id: str, seconds: float) -> None:
        """Wait until nothing of a run is at work, if somebody has asked it to end: that takes a few seconds.

        Args:
            run_id: The run.
            seconds: How long to wait at most.

        Raises:
            RunError: It is still at work.
            RefusedError: A file of the home is damaged.
            StorageError: A file of the home can't be read.
        """
        deadline = self.seconds() + seconds
        while stop_request(self.home, run_id) is not None and not self._is_gone(run_id):
            if self.seconds() >= deadline:
                raise RunError(
                    f"the driver of run {run_id} was asked to end {seconds:g} s ago, and is still at work",
                    where=_file(self.home, run_id),
                    remedy="try again later; if it hangs, end the process that the file names",
                )
            time.sleep(_STOP_POLL_SECONDS)

    def _is_gone(self, run_id: str) -> bool:
        driver = self.find(run_id)
        # A process that several streams share goes on when the run is over.
        if driver is not None and not driver.is_shared and _is_here(driver):
            # Before it has its lease, and while its JVM ends after the record is closed, only the process tells.
            return not _is_alive_here(driver)
        return self.look(run_id)[1]

    def is_running(self, record: RunRecord, now: datetime) -> bool:
        """Whether a run has a driver at work, as far as can be told from here at once.

        Raises:
            RefusedError: A file of the home is damaged.
            StorageError: A file of the home can't be read.
        """
        return self._is_at_work(record, lambda _sign, since, patience: now < since + patience)

    def may_begin(self, record: RunRecord, now: datetime) -> bool:
        """Whether somebody may yet begin a run that is planned, as far as can be told from here at once.

        Raises:
            RefusedError: The driver's file is damaged.
            StorageError: It can't be read.
        """
        driver = self.find(record.run_id)
        if driver is not None and driver.submitted_at < record.planned_at:
            # That of a plan before: the one of this plan is about to be started.
            driver = None
        if driver is not None and _is_here(driver):
            return _is_alive_here(driver)
        return now < (record.planned_at if driver is None else driver.submitted_at) + _TURN_PATIENCE

    def _is_at_work(self, record: RunRecord, is_fresh: _IsFresh) -> bool:
        if record.status not in {"planned", "running"}:
            return False
        driver = self.find(record.run_id)
        if driver is not None and _is_here(driver):
            return _is_alive_here(driver)
        lease = newest_lease(self.home.storage, RunRecords(self.home).lease_folder(record))
        is_of_this_try = lease is not None and (driver is None or lease.acquired_at >= driver.submitted_at)
        if lease is not None and lease.run_id == record.run_id and is_of_this_try:
            is_live = not lease.is_given_up and not is_dead(lease)
            return is_live and is_fresh((lease.token, lease.expires_at), lease.expires_at - TTL, TTL)
        if driver is None:
            return False
        return is_fresh(driver.submitted_at, driver.submitted_at, START_PATIENCE)

    def _is_new(self, sign: object, _since: datetime, patience: timedelta) -> bool:
        """Whether a sign of life was first seen here not too long ago."""
        known, first_seen = self._sign
        if known != sign:
            first_seen = self.seconds()
            self._sign = sign, first_seen
        return self.seconds() - first_seen < patience.total_seconds()

    def _log_folder(self) -> Path:
        """Beside the driver's file where that is on a disk, else in a folder of this user's for temporary files."""
        if is_local(self.home.location):
            folder = local_path(self.home.drivers_folder())
            make_folder(folder)
            return Path(folder)
        return private_folder(Path(tempfile.gettempdir(), f"sluice-{os.getuid()}"))


def _keep(home: StreamHome, driver: Driver, run_id: str) -> None:
    own = msgspec.structs.replace(driver, run_id=run_id)
    home.storage.replace(_file(home, run_id), encode_document(own))


def _file(home: StreamHome, run_id: str) -> str:
    return join(home.drivers_folder(), f"{run_id}.json")


def private_folder(folder: Path) -> Path:
    """A folder that nobody else can have put anything into; where others may write, it may be theirs.

    Raises:
        RunError: Somebody else made it, or may write into it.
    """
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise RunError(
            "the folder of the drivers' logs is not this user's alone",
            where=str(folder),
            remedy="delete it, or let TMPDIR name a folder of your own",
        )
    return folder


def _open_log(path: str, flags: int) -> int:
    """Open a driver's log: Spark writes whatever it likes into it, so only its owner may read it."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW, PRIVATE_FILE)
    os.fchmod(descriptor, PRIVATE_FILE)
    return descriptor


def _is_here(driver: Driver) -> bool:
    """Whether this machine can tell by the process whether a driver is at work.

    Not after it was booted: the driver may as well be on another machine of the same name.
    """
    return (driver.machine, driver.boot_id) == (machine(), boot_id()) and driver.process is not None


def _is_alive_here(driver: Driver) -> bool:
    return driver.process is not None and is_alive(driver.process)


@contextlib.contextmanager
def following_requests(home: StreamHome, run_id: str, stop: StopEvent, lease: Lease) -> Iterator[None]:
    """While this lasts, a request to end the run sets `stop`; one that ended an earlier try by hand counts no more."""
    stop.token = lease.token
    if Drivers(home).find(run_id) is None:
        forget_stop(home, run_id)
    with watching(home, run_id, stop):
        yield


def end_group_when_asked(stop: StopEvent, records: RunRecords, tell: Callable[[RunRecord], None]) -> threading.Event:
    """From now on, once somebody asks the run to end, end this process group if it does not end by itself.

    Its batch replays at the next run. A SIGTERM alone ends the run between two batches, however long that takes.

    Args:
        stop: Tells of the request.
        records: The records of the stream's runs.
        tell: Is given the record as it is left.

    Returns:
        What to set when the run is over, and the process goes on with another one.
    """
    is_over = threading.Event()

    def wait_and_kill() -> None:
        stop.asked.wait()
        if is_over.wait(GRACE_SECONDS):
            return
        try:
            if stop.request is not None:
                request, now = stop.request, datetime.now(UTC)
                closed = records.close_stopped(request.run_id, request.requested_by, now, token=stop.token)
                if closed is not None:
                    tell(closed)
        finally:
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait_and_kill, name="sluice-stop", daemon=True).start()
    return is_over
