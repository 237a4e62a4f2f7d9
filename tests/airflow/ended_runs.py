"""Launches small programs in place of drivers, and lets their runs have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from small_drivers import SmallDrivers

from sluice.planning.verdict import Request
from sluice.project import Project
from sluice.runs.driver import Driver
from sluice.runs.record import BatchRecord, RunRecord, RunRecords
from sluice_airflow.operators import run_stream, run_together

_BATCH = BatchRecord(batch_id=0, kind="data", input_rows=1, output_rows=1, watermark=None, sink_version=0)


class Launched(SmallDrivers):
    """Launches small programs in place of drivers, and lets their runs have ended, unless it is told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = True
        self.batches: tuple[BatchRecord, ...] = (_BATCH,)
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens while the drivers are at work."""
        self.keys: list[str | None] = []

    def one(self, project: Project, request: Request, run_id: str, _conn_id: str) -> Driver:
        home = project.stream_home(request.stream)
        record = RunRecords(home).read(run_id)
        assert record is not None
        return self._do(project, {request.stream.name: record})

    def together(self, project: Project, _streams: Any, planned: Mapping[str, RunRecord], _conn_id: str) -> Driver:
        return self._do(project, planned)

    def _do(self, project: Project, planned: Mapping[str, RunRecord]) -> Driver:
        self.meanwhile()
        for name, record in planned.items():
            self.keys.append(record.run_key)
            status: Any = "succeeded" if self.ends else "running"
            done = msgspec.structs.replace(record, status=status, tries=1, batches=self.batches)
            RunRecords(project.home_named(name)).save(done)
        return self.launch(project, planned, "pass" if self.ends else "import time; time.sleep(600)")


def launching(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Let the operators launch such programs."""
    found = Launched()
    monkeypatch.setattr(run_stream, "launch", found.one)
    monkeypatch.setattr(run_together, "launch_together", found.together)
    return found
