"""What names a backfill in the logs of the sink and of the quarantine, and its files below the sink's folder."""

from __future__ import annotations

_PREFIX = "sluice-backfill-"


def application_of(run_id: str) -> str:
    """What names a backfill in the sink's log."""
    return f"{_PREFIX}{run_id}"


def run_of(application: str) -> str:
    """The run that a name in the sink's log is about."""
    return application.removeprefix(_PREFIX)


def tidied_application(application: str) -> str:
    """What names, in the quarantine's log, that a backfill is done with it."""
    return f"{application}-settled"
