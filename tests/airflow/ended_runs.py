"""Launches small programs in place of drivers, and lets their runs have ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sluice.planning.verdict import Request
from sluice.project import Project
from sluice.runs.driver import Driver, Drivers
from sluice.runs.process import is_alive
from sluice.runs.record import BatchRecord, RunRecord, RunRecords
from sluice_airflow.operators import run_stream, run_together

_BATCH = BatchRecord(batch_id=0, kind="data", input_rows=1, output_rows=1, watermark=None, sink_version=0)


class Launched:
    """Launches small programs in place of drivers, and lets their runs have ended, unless it is told otherwise."""

    def __init__(self) -> None:
        self.ends = True
        self.batches: tuple[BatchRecord, ...] = (_BATCH,)
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens while the drivers are at work."""
        self.keys: list[str | None] = []
        self.drivers: list[Driver] = []

    def one(self, project: Project, request: Request, run_id: str, _conn_id: str) -> Driver:
        home = project.stream_home(request.stream)
        record = RunRecords(home).read(run_id)
        assert record is not None
        self._do(project, {request.stream.name: record})
        return self._launch(project, {request.stream.name: record})

    def together(self, project: Project, _streams: Any, planned: Mapping[str, RunRecord], _conn_id: str) -> Driver:
        self._do(project, planned)
        return self._launch(project, planned)

    def _do(self, project: Project, planned: Mapping[str, RunRecord]) -> None:
        self.meanwhile()
        for name, record in planned.items():
            self.keys.append(record.run_key)
            status: Any = "succeeded" if self.ends else "running"
            done = msgspec.structs.replace(record, status=status, tries=1, batches=self.batches)
            RunRecords(project.home_named(name)).save(done)

    def _launch(self, project: Project, planned: Mapping[str, RunRecord]) -> Driver:
        (first, record), *rest = planned.items()
        program = "pass" if self.ends else "import time; time.sleep(600)"
        driver = Drivers(project.home_named(first)).launch(
            record.run_id,
            [sys.executable, "-c", program],
            dict(os.environ),
            datetime.now(UTC),
            others=[(project.home_named(name), other.run_id) for name, other in rest],
        )
        self.drivers.append(driver)
        return driver

    def end(self) -> None:
        for driver in self.drivers:
            if driver.process is not None and is_alive(driver.process):
                with suppress(ProcessLookupError):  # it may end in between
                    os.killpg(driver.process.pid, signal.SIGKILL)


def launching(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Let the operators launch such programs."""
    found = Launched()
    monkeypatch.setattr(run_stream, "launch", found.one)
    monkeypatch.setattr(run_together, "launch_together", found.together)
    return found
