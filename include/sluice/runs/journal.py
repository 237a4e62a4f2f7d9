"""The record of a run, from its opening to its end, and the lease under which it is written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from sluice.errors import LeaseLostError, LeaseTakenError, RefusedError, RunError, SluiceError
from sluice.home import StreamHome
from sluice.redaction import redacted
from sluice.runs.driver import Drivers
from sluice.runs.fenced_storage import FencedStorage
from sluice.runs.lease import EndSession, Lease, acquire, check_not_taken, newest_token
from sluice.runs.record import RecordedError, RunRecord, RunRecords
from sluice.runs.summary import Status, read_lines
from sluice.times import Clock, iso_time

logger = logging.getLogger(__name__)


class Tell(Protocol):
    """Is given the record of a run that has begun, or ended, once it is on disk."""

    def __call__(self, record: RunRecord, *, is_own: bool = True) -> None:
        """Take note; returns at once, and never raises.

        Args:
            record: The record.
            is_own: Whether the run is this process's.
        """


@dataclass(frozen=True)
class Journal:
    """Writes what becomes of the runs of one stream."""

    home: StreamHome
    clock: Clock
    sink_is_idempotent: bool
    end_session: EndSession
    """Ends the session of a dead run on a Spark Connect server."""
    keep_failed: Callable[[StreamHome, RunRecord], None]
    """Is given the record of a run that has failed: what holds the stream for it needs it when the file is deleted."""
    tell: Tell

    @property
    def records(self) -> RunRecords:
        """The stream's run records."""
        return RunRecords(self.home)

    def keep_planned(self, record: RunRecord, try_before: RunRecord | None) -> RunRecord:
        """Save the record of a run that is to begin elsewhere: it has been tried as often as before.

        A driver of a try before that is stopped somewhere, and wakes up, must not write it any more.
        """
        folder = self.records.lease_folder(record)
        token = None if try_before is None else (newest_token(self.home.storage, folder) or 0) + 1
        planned = msgspec.structs.replace(record, tries=try_before.tries if try_before is not None else 0, token=token)
        self.records.save(planned)
        return planned

    def check_not_taken(self, folder: str | None = None) -> None:
        """Make sure that no run is at work.

        Args:
            folder: The leases to look at; by default those of the live stream.

        Raises:
            LeaseTakenError: One is.
        """
        folder = folder or self.home.lease_folder(self.home.current_generation())
        check_not_taken(self.home.storage, folder, self.clock())

    def take_lease(self, folder: str, run_id: str, try_before: RunRecord | None) -> Lease:
        """Take the newest lease in a folder of leases, for a run whose record may be kept since it was planned.

        Raises:
            LeaseTakenError: Another run has taken it; the kept record says so.
        """
        try:
            return acquire(
                self.home.storage,
                folder,
                run_id=run_id,
                sink_is_idempotent=self.sink_is_idempotent,
                clock=self.clock,
                end_session=self.end_session,
            )
        except LeaseTakenError as exc:
            if try_before is not None and try_before.status == "planned":
                # Whoever planned it follows the record, and would take the driver's end for its death.
                self.close_failed(try_before, exc)
            raise

    def under(self, lease: Lease) -> Journal:
        """The same for the owner of a lease: once another run has it, nothing is written to the home any more.

        Not even the run's own record: whoever took the lease over has closed it, or will, see `close_dead`.
        """
        return replace(self, home=replace(self.home, storage=FencedStorage(self.home.storage, lease)))

    def close(self, record: RunRecord, status: Status) -> RunRecord:
        """Save a record as ended."""
        record = msgspec.structs.replace(record, status=status, ended_at=iso_time(self.clock()))
        self.records.save(record)
        self.tell(record)
        return record

    def told_again(self, record: RunRecord) -> RunRecord:
        """The record of a run that has ended, once more: its driver may have died before it told."""
        self.tell(record)
        return record

    def close_failed(
        self, record: RunRecord, exc: BaseException, words: str | None = None, *, is_own: bool = True
    ) -> None:
        """Save a record as failed or refused, with the error; never raises.

        Args:
            record: The run.
            exc: What ended it.
            words: What is told of it in the place of what it says itself.
            is_own: Whether it is a run of this process.
        """
        if isinstance(exc, SluiceError):
            exc.run_id = record.run_id
        # What somebody else's code said is masked here.
        log = None if exc.__cause__ is None else Drivers(self.home).tell_log(record.run_id, exc)
        if log is not None and isinstance(exc, SluiceError):
            exc.log = log
        error = RecordedError(
            type=type(exc).__name__,
            message=redacted(str(exc) if words is None else words) or "ended by a signal",
            # What nobody foresaw is as likely to pass as not, and a retry loses nothing.
            retryable=exc.retryable if isinstance(exc, SluiceError) else True,
            log=log or "",
        )
        closed = msgspec.structs.replace(
            record,
            status="refused" if isinstance(exc, RefusedError) else "failed",
            error=error,
            ended_at=iso_time(self.clock()),
        )
        try:
            self.records.save(closed)
            self.tell(closed, is_own=is_own)
            self.keep_failed(self.home, closed)
        except SluiceError as also:
            # The first error is the one that matters, and it is raised.
            is_foreseen = isinstance(also, LeaseLostError)
            logger.warning("the run record could not be closed: %s", also, exc_info=not is_foreseen)

    def close_dead(self, lease: Lease, own: str | None) -> None:
        """Close the record of the run that died with a lease; if it lives in spite of all, it can't write it any more.

        Args:
            lease: The lease that was taken over.
            own: The run that takes it: its own try before is left open.
        """
        run_id = lease.taken_from
        if run_id is None or run_id == own:
            return
        record = self.records.read(run_id)
        if record is None or record.status not in {"planned", "running"}:
            return
        if lease.folder == self.records.lease_folder(record):
            record = msgspec.structs.replace(record, token=lease.token)
        self.close_failed(
            record, LeaseLostError("the driver died without a word", remedy="a later run goes on"), is_own=False
        )

    def close_never_begun(self, own: str | None) -> None:
        """Close the records of the live stream's newest runs that were planned, and that nobody is going to begin.

        For the owner of the lease: nobody else begins one meanwhile.

        Args:
            own: The run whose try before is left open.
        """
        lines = [line for line in read_lines(self.home) if line.status == "planned" and not line.error]
        others = (line.run_id for line in lines if line.interval is None and line.run_id != own)
        for record in map(self.records.read, others):
            is_planned = record is not None and record.status == "planned" and record.tries == 0
            if record is not None and is_planned and not self._may_begin(record):
                lost = RunError("nobody has begun it, and its driver is gone", remedy="a later run goes on")
                self.close_failed(record, lost, is_own=False)

    def _may_begin(self, record: RunRecord) -> bool:
        try:
            return Drivers(self.home).may_begin(record, self.clock())
        except RefusedError:
            logger.warning("whether run %s has a driver can't be read", record.run_id, exc_info=True)
            return True
