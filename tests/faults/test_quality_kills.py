"""Kill -9 at every step of write, audit and publish: no row is lost or doubled, and no verdict."""

import os
import signal
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from quality_project import Checked, make_checked

pytestmark = pytest.mark.spark

CAMPAIGN = int(os.environ.get("SLUICE_KILLS", "0"))
_ALL = ["open", "note", "finish", "close"]
POINTS = {
    "publish": [*_ALL, "aside", "decide", "publish"],
    "publish, dropping": [*_ALL, "aside", "decide", "publish"],
    "cache": [*_ALL, "decide", "quarantine", "sink"],
    "write": _ALL,
    "publish, never failing": ["finish"],
    "files": _ALL,
    "function": [*_ALL, "decide", "sink"],
}
EVERY = [
    *[(kind, moment, step) for kind, steps in POINTS.items() for step in steps for moment in ("before", "after")],
    ("write", "at", "out/_delta_log/00000000000000000000.json"),
    ("files", "at", "out/_spark_metadata/0"),
]
CHEAP = [
    ("publish", "after", "publish"),
    ("cache", "after", "quarantine"),
    ("write", "at", "out/_delta_log/00000000000000000000.json"),
    ("function", "before", "finish"),
]


@pytest.fixture
def checked(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Checked:
    """A project with a suite, and with a table where this way through the gate needs one."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = make_checked(tmp_path, request.param)
    if made.kind.has_table:
        made.arrive(1)
        made.run(spark)
    return made


def check(checked: Checked, spark: SparkSession) -> None:
    """Every row is in its one place, and every batch that is committed is judged in one record."""
    bad = [number for number in range(checked.arrived) if number % 4 == 3]
    good = [number for number in range(checked.arrived) if number % 4 != 3]
    leaves = checked.kind.bad in {"drop", "quarantine"}
    assert checked.sink(spark) == (good if leaves else list(range(checked.arrived)))
    assert checked.quarantine() == (bad if checked.kind.bad == "quarantine" else [])
    assert checked.judged() == dict.fromkeys(checked.committed(), 1), checked.records()
    judged = [record.quality for record in checked.records() if record.quality is not None]
    assert sum(quality.rows or 0 for quality in judged) == checked.arrived
    assert sum(quality.dropped for quality in judged) == (len(bad) if checked.kind.bad == "drop" else 0)
    assert sum(quality.quarantined for quality in judged) == (len(bad) if checked.kind.bad == "quarantine" else 0)
    assert checked.gate() is None
    assert {record.status for record in checked.records()} <= {"succeeded", "failed"}


@pytest.mark.parametrize("run_key", ["", "the only one"], ids=["another run", "a retry"])
@pytest.mark.parametrize(("checked", "moment", "step"), EVERY if CAMPAIGN else CHEAP, indirect=["checked"])
def test_a_kill_at_any_step(checked: Checked, spark: SparkSession, moment: str, step: str, run_key: str) -> None:
    """In the first or second of two batches; what comes later finishes it."""
    checked.arrive(2)
    place = str(checked.root / step) if "/" in step else step
    count = "2" if step == "note" else "1"

    returned = checked.crash(moment, place, count, run_key=run_key)
    assert returned == -signal.SIGKILL, checked.driver_log()
    record = checked.run(spark, run_key or None)

    assert record.status in {"succeeded", "skipped"}
    check(checked, spark)
