"""Waits until a stream is free: for tasks that find another run at work on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sluice.errors import LeaseTakenError
from sluice.runs.lease import check_not_taken
from sluice_airflow.projects import airflow_project
from sluice_airflow.triggers.following import FollowingTrigger

_POLL_SECONDS = 2.0


class LeaseTrigger(FollowingTrigger):
    """Waits until no run that may be at work has a lease, however long that takes.

    Several tasks may wait for one lease: all of them go on when it is free, and those that come too late wait again.

    Args:
        project: The folder of `sluice.toml`.
        folder: Where the leases are.
    """

    def __init__(self, *, project: str, folder: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.project, self.folder = project, folder

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer makes this trigger from."""
        return "sluice_airflow.triggers.lease.LeaseTrigger", {"project": self.project, "folder": self.folder}

    def told(self) -> dict[str, Any]:
        """Which lease it was."""
        return {"folder": self.folder}

    @property
    def followed(self) -> str:
        """The lease."""
        return "the lease"

    async def follow(self, *, poll_seconds: float = _POLL_SECONDS) -> None:
        """See `FollowingTrigger.follow`; a free lease is not urgent."""
        await super().follow(poll_seconds=poll_seconds)

    def look(self) -> bool:
        """Whether the lease is free."""
        try:
            check_not_taken(airflow_project(self.project).storage(), self.folder, datetime.now(UTC))
        except LeaseTakenError:
            return False
        return True
