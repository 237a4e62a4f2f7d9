"""Stop requests: how somebody far from a driver asks it to end.

<home>/<stream>/stops/<run_id>.json      put there by whoever wants the run ended, polled by the run's driver
"""

from __future__ import annotations

from datetime import datetime

from sluice.documents import Document, encode_document, read_document
from sluice.home import StreamHome
from sluice.storage import join
from sluice.times import iso_time


class StopRequest(Document, frozen=True, kw_only=True):
    """Who wants a run ended, and since when."""

    run_id: str
    requested_by: str
    requested_at: str


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


def _file(home: StreamHome, run_id: str) -> str:
    return join(home.location, "stops", f"{run_id}.json")
