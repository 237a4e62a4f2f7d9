"""Stop requests: how somebody far from a driver asks it to end.

<home>/<stream>/stops/<run_id>.json      put there by whoever wants the run ended, polled by the run's driver
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from datetime import datetime

from sluice.documents import Document, encode_document, read_document
from sluice.errors import SluiceError
from sluice.home import StreamHome
from sluice.locations import join
from sluice.times import iso_time

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0


class StopRequest(Document, frozen=True, kw_only=True):
    """Who wants a run ended, and since when."""

    if_lost = "delete it, and ask again"
    run_id: str
    requested_by: str
    requested_at: str


class StopEvent(threading.Event):
    """Set, it ends a run between two batches."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        """Set when it was a request in the home that set the other: then the run is to end soon."""
        self.request: StopRequest | None = None
        """That request."""
        self.token = 0
        """The lease's of the run that is to end: the record of a newer try is none of its business."""


def request_stop(home: StreamHome, run_id: str, *, requested_by: str, now: datetime) -> None:
    """Ask a run to end: its driver sees it within a second or so. A second request changes nothing.

    Raises:
        StorageError: It could not be written.
    """
    request = StopRequest(run_id=run_id, requested_by=requested_by, requested_at=iso_time(now))
    home.storage.put_if_absent(_file(home, run_id), encode_document(request))


def stop_request(home: StreamHome, run_id: str) -> StopRequest | None:
    """The request to end a run; None when there is none.

    Raises:
        RefusedError: It is damaged.
        StorageError: It can't be read.
    """
    return read_document(home.storage, _file(home, run_id), StopRequest)


def forget_stop(home: StreamHome, run_id: str) -> None:
    """Forget a request that ended an earlier try of a run.

    Raises:
        StorageError: It is still there.
    """
    home.storage.delete(_file(home, run_id))


@contextlib.contextmanager
def watching(home: StreamHome, run_id: str, stop: StopEvent) -> Iterator[None]:
    """While this lasts, a request to end the run sets `stop` within a second or so."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            try:
                request = stop_request(home, run_id)
            except SluiceError:
                logger.warning("requests to stop can't be read; they are looked for again", exc_info=True)
                continue
            if request is not None:
                logger.warning("asked to stop by %s", request.requested_by)
                stop.request = request
                stop.set()
                stop.asked.set()
                return

    thread = threading.Thread(target=watch, name="sluice-stop-requests", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _file(home: StreamHome, run_id: str) -> str:
    return join(home.stops_folder(), f"{run_id}.json")
