"""Measures that never arrive: taken again where the rows are still to be had, else the gate fails, and says so."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from sluice import sinks
from sluice.auditing import audit
from sluice.errors import HeldError, QualityFailedError
from sluice.spark.progress import LocalReports
from tests.campaign import in_campaigns
from tests.spark.lab import Lab, write_numbers
from tests.spark.test_quality_gates import declare_suite, gate_of, ids, largest, stream, up_to

pytestmark = pytest.mark.spark

_PROJECT = """
[project]
name = "overloaded"
streams = ["streams"]
[spark]
master = "local[2]"
[spark.conf]
"spark.scheduler.listenerbus.eventqueue.capacity" = "1"
"""
_DECLARATION = """
from sluice import Stream, sinks, sources
land = sources.files("land", format="json", schema="id bigint", max_files_per_batch=1)
s = Stream(name="s", sources={"numbers": land}, transform="spread:out", sink=sinks.delta("out"), quality="suite.json")
"""


@in_campaigns
@pytest.mark.parametrize("gate", ["publish", "write"])
def test_a_listener_bus_that_is_overloaded(lab: Lab, gate: str) -> None:
    """Spark drops nearly every event, and the run is measured all the same."""
    declare_suite(lab, up_to(1, "warn"))
    write_numbers(lab.root / "land", 1, rows=2)
    lab.run(stream())
    declare_suite(lab, up_to(3, "warn"), largest(9, "warn"), gate=gate)
    write_numbers(lab.root / "land", 2, first=1, rows=2)
    (lab.root / "sluice.toml").write_text(_PROJECT)
    (lab.root / "var").mkdir()
    (lab.root / "home").rename(lab.root / "var" / "sluice")
    (lab.root / "streams").mkdir()
    (lab.root / "streams" / "s.py").write_text(_DECLARATION)
    (lab.root / "spread.py").write_text("def out(numbers):\n    return numbers.repartition(100)\n")

    run = subprocess.run(
        [sys.executable, "-m", "sluice", "run", "s", "--json"],
        cwd=lab.root,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-3000:]
    assert "Dropping event from queue" in run.stderr
    quality = json.loads(run.stdout)["quality"]
    assert (quality["gate"], quality["verdict"], quality["rows"]) == (gate, "warn", 4)
    assert quality["checks"][0]["result"]["unexpected_count"] == 2
    assert quality["checks"][1]["result"] == {"observed_value": 5}


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """No observation is ever completed."""
    monkeypatch.setattr(audit, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("pyspark.sql.Observation.get", property(lambda _: threading.Event().wait()))


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize("policy", ["warn", "drop"])
def test_what_was_not_observed_is_measured_again(lab: Lab, policy: str) -> None:
    """From the files that were written aside; where rows were left out of them, from the batch itself."""
    declare_suite(lab, up_to(1, "warn"))
    write_numbers(lab.root / "land", 1, rows=2)
    lab.run(stream())
    declare_suite(lab, up_to(3, policy), largest(5), measured="observe")
    write_numbers(lab.root / "land", 2, first=1, rows=2)

    began = time.monotonic()
    record = lab.run(stream())

    assert time.monotonic() - began < 60
    assert record.quality is not None
    assert (record.quality.where, record.quality.rows) == ("publish", 4)
    assert record.quality.checks[0].result["unexpected_count"] == 2
    assert ids(lab) == ([0, 1, 2, 3] if policy == "drop" else [0, 1, 2, 3, 4, 5])


@pytest.mark.usefixtures("deaf")
def test_what_fails_then_is_not_published(lab: Lab) -> None:
    """The second measure decides as the first would have."""
    declare_suite(lab, up_to(1, "warn"))
    write_numbers(lab.root / "land", 1, rows=2)
    lab.run(stream())
    declare_suite(lab, largest(2), measured="observe")
    write_numbers(lab.root / "land", 1, first=1, rows=2)

    with pytest.raises(QualityFailedError):
        lab.run(stream())

    assert ids(lab) == [0, 1]


def _without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_reports(*_: Any, **__: Any) -> dict[int, Any]:
        return {}

    monkeypatch.setattr(LocalReports, "reports", no_reports)


def test_a_batch_without_a_report_is_measured_in_the_table(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote is in the version that it made."""
    declare_suite(lab, up_to(3, "warn"), gate="write")
    write_numbers(lab.root / "land", 2, rows=3)
    _without_reports(monkeypatch)

    record = lab.run(stream())

    assert record.quality is not None
    assert (record.quality.where, record.quality.rows) == ("write", 6)
    assert record.quality.checks[0].result["unexpected_count"] == 2


def test_the_gate_fails_when_nothing_can_be_measured(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files don't tell what a batch wrote: the stream is held, and why is said, also to the next run."""
    declare_suite(lab, largest(100))
    sink = sinks.files("out", format="json")
    write_numbers(lab.root / "land", 2)
    with monkeypatch.context() as patch:
        _without_reports(patch)
        with pytest.raises(QualityFailedError, match="2 of 2 batches were not measured"):
            lab.run(stream(sink=sink))

    (failed,) = lab.records(stream())
    assert (failed["status"], failed["quality"]["verdict"], failed["quality"]["rows"]) == ("failed", "fail", None)
    assert gate_of(lab).state == "failed"
    write_numbers(lab.root / "land", 1, first=2)
    with pytest.raises(HeldError, match="not measured"):
        lab.run(stream(sink=sink))
