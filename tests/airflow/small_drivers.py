"""Small programs in place of Spark's drivers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from sluice.project import Project
from sluice.runs.driver import Driver, Drivers
from sluice.runs.process import is_alive
from sluice.runs.record import RunRecord


class SmallDrivers:
    """Launches them, and ends them with the test."""

    def __init__(self) -> None:
        self.drivers: list[Driver] = []

    def launch(self, project: Project, planned: Mapping[str, RunRecord], program: str) -> Driver:
        """One for all of these runs, in Python."""
        (first, record), *rest = planned.items()
        others = [(project.home_named(name), other.run_id) for name, other in rest]
        command, environment = [sys.executable, "-c", program], dict(os.environ)
        drivers = Drivers(project.home_named(first))
        driver = drivers.launch(record.run_id, command, environment, datetime.now(UTC), others=others)
        self.drivers.append(driver)
        return driver

    def end(self) -> None:
        for driver in self.drivers:
            if driver.process is not None and is_alive(driver.process):
                with suppress(ProcessLookupError):  # it may end in between
                    os.killpg(driver.process.pid, signal.SIGKILL)
