"""Histories of the examples of operators: flights and weather in random order, runs, stops and a kill; and the prefix.

A history's last rows are from far ahead: whatever the watermark closes is closed by then. What rows counted is told by
the batches that read them: one at or behind the watermark of the batch before comes too late, as Spark has it.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote, urlsplit

from sluice.home import StreamHome
from sluice.monitoring.state_document import state_document, stateful_operators
from sluice.project import Project
from sluice.spark.state_rows import StateView
from sluice.testing import Bench, Moment
from tests.spark.lab import log_files, log_of, offset_lines

REPOSITORY = Path(__file__).parents[2]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MORNING = datetime(2026, 1, 1, 6, tzinfo=UTC)
FAR = datetime(2026, 5, 1, tzinfo=UTC)
"""When the last rows of a history are; nothing else is near them."""
LATENESS = timedelta(hours=2)
MILES = {"BOS": 187, "ORD": 733, "LAX": 2475}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """What Spark had in a batch."""

    rows: Mapping[str, Sequence[Row]]
    """By source, as they were added: with `at`, the time of each."""
    late_at: datetime
    """Rows at or behind it come too late."""
    watermark: datetime
    clock: datetime

    def in_time(self, source: str) -> list[Row]:
        """The rows of a source that count."""
        return [row for row in self.rows[source] if row["at"] > self.late_at]


@dataclass
class Traffic:
    """Draws rows in an order that is not that of their times."""

    chance: random.Random
    now: datetime = MORNING
    drawn: dict[str, list[Row]] = field(default_factory=lambda: {"flights": [], "weather": []})
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def file(self, source: str) -> list[Row]:
        """Rows of one file: most of them in time, some of them not, some delivered before."""
        self.now += timedelta(minutes=self.chance.choice((0, 20, 60, 150)))
        before, rows = self.drawn[source], []
        for _ in range(self.chance.randint(1, 6)):
            again = bool(before) and self.chance.random() < 0.15
            rows.append(self.chance.choice(before) if again else self._row(source))
        before += rows
        return rows

    def _row(self, source: str) -> Row:
        behind = self.chance.randint(0, 119) if self.chance.random() < 0.75 else self.chance.randint(120, 360)
        at = self.now - timedelta(minutes=behind)
        return self._flight(at) if source == "flights" else self._observation(at)

    def _flight(self, at: datetime) -> Row:
        destination = self.chance.choice([*MILES])
        return {
            "at": at,
            "time_hour": at.replace(minute=0),
            "minute": at.minute,
            "carrier": self.chance.choice(["AA", "B6", "UA"]),
            "flight": next(self._numbers),
            "tailnum": self.chance.choice(["N1", "N2", "N3", "N4"]),
            "origin": self.chance.choice(["EWR", "JFK"]),
            "dest": destination,
            "dep_delay": self.chance.choice([None, -3, 0, 12, 45]),
            "distance": MILES[destination],
        }

    def _observation(self, at: datetime) -> Row:
        at = at.replace(minute=at.minute // 20 * 20)
        station = self.chance.choice(["EWR", "JFK"])
        return {"at": at, "time_hour": at, "origin": station, "temp": self.chance.randint(10, 40) * 1.0, "visib": 10.0}


def far(source: str) -> Row:
    """The last row of a source."""
    row: dict[str, Any] = {"at": FAR, "time_hour": FAR, "origin": "far"}
    return row if source == "weather" else row | {"minute": 0, "carrier": "far", "tailnum": "far", "flight": 0}


class History:
    """One example, and everything that has arrived for it.

    Args:
        bench: Where it lives.
        name: Of the example.
        seed: What is drawn by.
        began_as: The transform that it has until it is edited; None for one that is not.
        conf: Settings beside those that it declares.
    """

    def __init__(
        self,
        bench: Bench,
        name: str,
        seed: int,
        *,
        began_as: str | None = None,
        conf: Mapping[str, str | int] | None = None,
    ) -> None:
        self.bench, self.chance = bench, random.Random(f"{name} {seed}")
        self.traffic = Traffic(self.chance)
        declared = examples(bench_root(bench)).stream(name)
        limited = {
            source: replace(found, max_files_per_batch=self.chance.choice((None, 1, 2)))  # type: ignore[type-var]
            for source, found in declared.sources.items()
        }
        self._declared = replace(declared, sources=limited, conf={**(declared.conf or {}), **(conf or {})})
        bench.open(replace(self._declared, transform=began_as or declared.transform))
        self._is_edited = began_as is not None
        self._files: dict[str, Sequence[Row]] = {}

    def live(self, length: int, *, is_closed: bool = True) -> None:
        """Let rows arrive and runs happen, one of them killed, until nothing is left to do.

        Args:
            length: How often something arrives.
            is_closed: Whether time passes, and rows from far ahead come: what waits for the clock or for the watermark
                is over then.
        """
        names = list(self.bench.stream.sources)
        killed = self.chance.randrange(length)
        edited = self.chance.randrange(length)
        for number in range(length):
            for source in self.chance.sample(names, k=len(names)):
                for _ in range(self.chance.randint(1, 4 - len(names))):
                    self.add(source, self.traffic.file(source))
            self.bench.advance(timedelta(minutes=self.chance.choice((1, 30, 90))))
            run_or_die(self.bench, self.chance, is_killed=number == killed)
            if self._is_edited and number == edited:
                self.bench = self.bench.open(self._declared)
        self.bench.advance("90 minutes")
        for source in names if is_closed else ():
            self.add(source, [*self.traffic.file(source), far(source)])
            if self.chance.random() < 0.5:
                self.bench.run()
        self.bench.run()
        assert self.bench.run().status == "skipped"

    def add(self, source: str, rows: Sequence[Row]) -> None:
        """Let a file of a source arrive."""
        self.bench.add(source, [{name: value for name, value in row.items() if name != "at"} for row in rows])
        folder = Path(self.bench.stream.sources[source].location or "")
        (new,) = {str(file) for file in folder.iterdir()} - self._files.keys()
        self._files[new] = rows

    @property
    def checkpoint(self) -> Path:
        """Where Spark's logs are."""
        return bench_root(self.bench) / "home" / self.bench.stream.name / "generations" / "0001"

    def batches(self) -> list[Batch]:
        """What each batch had, with the watermark that its predecessors' rows make."""
        policy = max if "max" in (self.bench.stream.conf or {}).values() else min
        newest: dict[str, datetime] = {}
        found, watermark, late_at = list[Batch](), EPOCH, EPOCH
        for rows, clock in self._read():
            found.append(Batch(rows, late_at, watermark, clock))
            for source, read in rows.items():
                newest[source] = max([newest.get(source, EPOCH + LATENESS), *(row["at"] for row in read)])
            late_at, watermark = watermark, max(watermark, policy(newest.values()) - LATENESS)
        return found

    def watermarks(self) -> list[datetime]:
        """The watermark of each batch, as the offset log has it."""
        return [EPOCH + timedelta(milliseconds=said["batchWatermarkMs"]) for said in self._offsets()]

    def state(self, **view: Any) -> list[dict[str, Any]]:
        """What `sluice state` shows."""
        opened = self.bench._opened
        checkpoint, _ = stateful_operators(StreamHome(opened.home.location, opened.home.storage))
        found = state_document(
            opened.project, opened.stream, checkpoint, StateView(**view), most=1000, session=opened.session
        )
        rows: list[dict[str, Any]] = found["rows"]
        return rows

    def _read(self) -> list[tuple[dict[str, list[Row]], datetime]]:
        sources = list(self.bench.stream.sources)
        logs = {source: log_of(self.checkpoint, number) for number, source in enumerate(sources)}
        done, found = dict.fromkeys(sources, -1), []
        for lines, said in zip(offset_lines(self.checkpoint).values(), self._offsets(), strict=True):
            rows: dict[str, list[Row]] = {}
            for source, line in zip(sources, lines, strict=True):
                end = -1 if line is None else line["logOffset"]
                uris = [uri for log_id in range(done[source] + 1, end + 1) for uri in logs[source][log_id]]
                rows[source] = [row for uri in uris for row in self._files[unquote(urlsplit(uri).path)]]
                done[source] = max(end, done[source])
            found.append((rows, EPOCH + timedelta(milliseconds=said["batchTimestampMs"])))
        return found

    def _offsets(self) -> list[dict[str, Any]]:
        files = log_files(self.checkpoint / "offsets")
        return [json.loads(file.read_text("utf-8").split("\n")[1]) for file in files]


def run_or_die(bench: Bench, chance: random.Random, *, is_killed: bool) -> None:
    """One run of a history: killed at some moment, stopped behind a batch, or whole."""
    if is_killed:
        bench.crash(at=chance.choice(get_args(Moment)))
        if chance.random() < 0.5:
            bench.restart()
    elif chance.random() < 0.5:
        bench.stop(after=1)
    else:
        bench.run()


def bench_root(bench: Bench) -> Path:
    """The folder of a bench."""
    return Path(bench._shared.folder)


def examples(root: Path) -> Project:
    """The project of the examples, with its data below a folder."""
    return Project(
        root=str(root),
        name="operators",
        home=str(root / "home"),
        stream_folders=(str(REPOSITORY / "include" / "demo" / "operators" / "streams"),),
        import_roots=(str(REPOSITORY),),
        spark_master="local[2]",
    )
