"""What `make demo-kafka` shows: with fewer days, a warm Spark and the Kafka of these tests; and as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.kafka.drivers import Drivers
from demo.kafka.events import DEPARTURES, LANDINGS
from demo.kafka.story import Story
from demo.standalone import REPOSITORY
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.running.runner import run_stream
from sluice.times import parse_time
from tests.campaign import in_campaigns
from tests.kafka.topics import Kafka
from tests.spark.lab import NO_LIMITS, Lab, bounded

pytestmark = pytest.mark.spark
STEPS = (
    r"read the first two days",
    r"departures has a third partition",
    r"killed the driver with SIGKILL in the middle of batch \d+ of flights",
    r"flights: batch \d+ \(uncommitted\)",
    r"flights: batch \d+ \(data\): 47 rows in, .*47 late",
    r"a backfill of that day",
)


class WarmDrivers(Drivers):
    """Runs to the end what the demo runs, with the Spark of these tests; what is killed is a process all the same."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab.root)
        self._lab = lab

    def run(self, *words: str) -> None:
        project = find_project(str(self._lab.root))
        match words:
            case ("run", *names, "--until", until):
                self._run(names, bounded(parse_time(until)))
            case ("run", *names):
                self._run(names, NO_LIMITS)
            case ("backfill", name, "--start", start, "--end", end):
                request = BackfillRequest(project.stream(name), Interval.parse(start, end))
                backfill_stream(project, request, session=self._lab.spark)
            case _:
                pytest.fail(f"the demo runs something else: {words}")

    def _run(self, names: list[str], limits: Limits) -> None:
        project = find_project(str(self._lab.root))
        for name in names:
            run_stream(project, Request(project.stream(name), limits), session=self._lab.spark)


@pytest.fixture
def cleared(kafka: Kafka) -> Iterator[Kafka]:
    yield kafka
    for topic in (DEPARTURES, LANDINGS):
        kafka.delete_topic(topic)


def check_steps(told: str) -> None:
    """Each step is told, in this order, and the backfill finds a landing for each flight that came too late."""
    assert re.search(".*".join(STEPS), told, re.DOTALL), told
    without = [int(count) for count in re.findall(r"(\d+) flights (?:go )?without a landing", told)]
    assert without[0] - 47 == without[1] > 0


def test_the_story(lab: Lab, cleared: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step happens as it is told, and both tables are what DuckDB says."""
    monkeypatch.setenv("DEMO_KAFKA", "told by the demo")
    told: list[str] = []

    story = Story(cleared, lab.root, WarmDrivers(lab), days=4, say=told.append)

    found = story.tell()

    assert [(one.table, one.is_right) for one in found] == [("flights", True), ("aircraft", True)]
    check_steps("\n".join(told))
    # A record more would be missed, in both tables.
    landings = [line for line in (lab.root / "produced.jsonl").read_text().splitlines() if LANDINGS in line]
    with (lab.root / "produced.jsonl").open("a") as out:
        out.write(landings[0] + "\n")
    assert [(one.table, one.missing, one.is_right) for one in story.compare()] == [
        ("flights", 1, False), ("aircraft", 1, False),
    ]  # fmt: skip


@in_campaigns
def test_the_command(tmp_path: Path) -> None:
    """It ends with 0, and the broker with it."""
    demo = [sys.executable, "-m", "demo.kafka"]
    done = subprocess.run(demo, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)

    assert (done.returncode, "exactly once, as DuckDB says" in done.stdout) == (0, True), done.stdout + done.stderr
    check_steps(done.stdout)
    running = subprocess.run(["pgrep", "-f", str(REPOSITORY / "var" / "demo-kafka")], capture_output=True, check=False)
    assert running.stdout == b""
