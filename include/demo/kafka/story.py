"""What the demo does, step by step, with a Kafka that runs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from demo.kafka.comparison import Compared, compare
from demo.kafka.drivers import Drivers
from demo.kafka.events import DEPARTURES, FIRST_DAY, LANDINGS, Event, Sender, flight_events
from demo.kafka.topics import Topics
from demo.killing import kill_in_mid_batch
from demo.project_file import write_project
from sluice.project import find_project
from sluice.runs.record import RunRecord, RunRecords, describe_batch

_STREAMS = ("flights", "aircraft")
_KILL_WITHIN_SECONDS = 120
_FEW = 3


class Story:
    """Flights go through Kafka into two tables, while things happen that happen.

    Args:
        kafka: Where topics are made.
        work: An empty folder for the project, its home and its tables.
        drivers: Runs commands there.
        days: How many days of flights, four or more.
        say: Tells what happens.
    """

    def __init__(self, kafka: Topics, work: Path, drivers: Drivers, *, days: int, say: Callable[[str], None]) -> None:
        self._kafka, self._work, self._drivers, self._say = kafka, work, drivers, say
        write_project(work, "flight-events", Path(__file__).parent / "streams")
        self._events = flight_events(days)
        self._end = FIRST_DAY + timedelta(days=days)
        self._partitions = {DEPARTURES: 2, LANDINGS: 2}
        self._produced = work / "produced.jsonl"
        self._sender = Sender(kafka.bootstrap, self._produced)
        os.environ["DEMO_KAFKA"] = kafka.bootstrap
        self._project = find_project(str(work))
        self._homes = {name: self._project.stream_home(self._project.stream(name)) for name in _STREAMS}
        self._shown: set[tuple[str, int]] = set()

    def tell(self) -> list[Compared]:
        """Take every step; gives how each table compares with DuckDB's answer.

        Raises:
            RuntimeError: A command has failed.
        """
        self.read_two_days()
        self.grow_and_kill()
        self.resume()
        self.backfill_the_first_day()
        return self.compare()

    def read_two_days(self) -> None:
        """Fill the topics with three days, and read two of them: a bound by the records' times."""
        for topic, partitions in self._partitions.items():
            self._kafka.make(topic, partitions)
        sent = self._send(until=_day(3))
        self._say(f"sent {sent:,} events of three days to the topics {DEPARTURES} and {LANDINGS}, 2 partitions each")
        self._say("read the first two days: what bears a later time waits")
        self._run("run", *_STREAMS, "--until", f"{_day(2):%Y-%m-%d}")

    def grow_and_kill(self) -> None:
        """Let a topic grow, send the other days into all partitions, and kill the driver that reads them."""
        self._partitions[DEPARTURES] = 3
        self._kafka.add_partitions(DEPARTURES, 3)
        sent = self._send(since=_day(3))
        self._say(f"the topic {DEPARTURES} has a third partition; sent {sent:,} events of the days after")
        self._say(f"$ sluice run {' '.join(_STREAMS)}")
        with self._drivers.started("run", *_STREAMS) as driver:
            batch_id = self._kill(driver)
        self._say(f"killed the driver with SIGKILL in the middle of batch {batch_id} of flights, not yet committed")

    def resume(self) -> None:
        """Send what was held up meanwhile, and let the next run finish the batch and go on."""
        held_up = [event for event in self._events if event.is_held_up]
        sent = self._sender.send(held_up, self._partitions, sent_at=self._end)
        self._say(f"sent {sent:,} landings of {_day(0):%Y-%m-%d} at ORD, days late")
        self._say("the next run finishes the batch as it was planned, then reads what came since")
        self._run("run", *_STREAMS)
        without = self._count_without_landing()
        self._say(f"the join has let {without:,} flights go without a landing: some landings came too late for it")

    def backfill_the_first_day(self) -> None:
        """Compute the day of the late landings anew, from the records that bear its time or a later one."""
        self._say("a backfill of that day reads the topics again, and counts them in")
        self._run("backfill", "flights", "--start", f"{_day(0):%Y-%m-%d}", "--end", f"{_day(1):%Y-%m-%d}")
        record = next(RunRecords(self._homes["flights"]).newest(1))
        if record.backfill is not None:
            self._say(f"  {record.backfill.rows_replaced:,} rows replaced by {record.backfill.rows_written:,}")
        self._say(f"{self._count_without_landing():,} flights without a landing are left")

    def compare(self) -> list[Compared]:
        """Compare every table with what DuckDB makes of the records that were sent."""
        return compare(self._produced, self._work / "lake")

    def _send(self, *, since: datetime = FIRST_DAY, until: datetime | None = None) -> int:
        return self._sender.send(self._on_time(since, until or self._end), self._partitions)

    def _on_time(self, since: datetime, until: datetime) -> Iterator[Event]:
        return (event for event in self._events if since <= event.at < until and not event.is_held_up)

    def _count_without_landing(self) -> int:
        table = DeltaTable(str(self._work / "lake" / "flights")).to_pyarrow_table(columns=["landed_at"])
        return int(table["landed_at"].null_count)

    def _run(self, *words: str) -> None:
        """Run a command, and show what its records say."""
        self._say(f"$ sluice {' '.join(words)}")
        self._drivers.run(*words)
        for name, home in self._homes.items():
            for record in list(RunRecords(home).newest(_FEW))[::-1]:
                self._show(name, record)

    def _show(self, name: str, record: RunRecord) -> None:
        for batch in record.batches:
            if (record.run_id, batch.batch_id) not in self._shown:
                self._shown.add((record.run_id, batch.batch_id))
                self._say(f"  {name}: {describe_batch(batch)}")

    def _kill(self, driver: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + _KILL_WITHIN_SECONDS
        while time.monotonic() < deadline and driver.poll() is None:
            batch_id = kill_in_mid_batch(self._homes["flights"])
            if batch_id is not None:
                return batch_id
            time.sleep(0.02)
        raise RuntimeError(f"there was no batch to kill the driver in; see {self._drivers.log}")


def _day(number: int) -> datetime:
    return FIRST_DAY + timedelta(days=number)
