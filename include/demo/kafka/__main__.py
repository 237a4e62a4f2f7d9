"""`make demo-kafka`: flights through a real Kafka into Delta, and what DuckDB says of it."""

from __future__ import annotations

import shutil
import signal
import sys
import time

from demo.kafka.broker import Broker
from demo.kafka.drivers import Drivers
from demo.kafka.story import Story
from demo.kafka.topics import Topics
from demo.standalone import REPOSITORY
from sluice.cli.printing import print_table
from sluice.exit_code import leave_with

WORK = REPOSITORY / "var" / "demo-kafka"
DAYS = 7


def main() -> int:
    """Run the demo; 0 when all tables are exactly what DuckDB computes from the records that were sent."""
    began = time.monotonic()
    # Being told to end must end the broker and the drivers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(WORK, ignore_errors=True)
    project = WORK / "project"
    project.mkdir(parents=True)

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)

    say("Kafka is starting")
    with Broker(WORK / "broker") as broker:
        say(f"Kafka is up at {broker.bootstrap}")
        found = Story(Topics(broker), project, Drivers(project), days=DAYS, say=say).tell()
    say("Kafka is stopped")
    rows = [(one.table, f"{one.rows:,}", one.missing, one.extra) for one in found]
    print_table("Against DuckDB on the records that were sent", ("table", "rows", "missing", "too many"), rows)
    is_right = all(one.is_right for one in found)
    say("exactly once, as DuckDB says" if is_right else "WRONG: see above")
    return 0 if is_right else 1


if __name__ == "__main__":
    leave_with(main)
