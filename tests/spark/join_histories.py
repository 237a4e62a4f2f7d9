"""Histories of joins on a schedule: arrivals by side, runs, stops and kills; and the one query that never stopped.

The query that never stops is plain Spark, in one start over as many batches as Sluice made. It finds each of them as
one file per source, with the rows that Sluice's batch took; an empty file where it took none. So it has the same
batches, batches without data among them, and has seen every event in one start.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import duckdb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.planning.planner import Limits
from tests.spark.lab import (
    NO_LIMITS,
    Lab,
    available_now,
    log_files,
    log_of,
    offset_lines,
    reader,
    rows,
    touch,
    uncommit,
)

SCHEMA = "k bigint, t bigint"
"""An event: its key, and its time in seconds."""
Event = tuple[int, int]
Kill = Literal["before Spark's commit", "after Spark's commit"]
DAY = 86_400
FAR = 100 * DAY
"""The time of the events at the end of a history, which match nothing: everything before is due then."""

_MATCH = "ak = bk AND bt BETWEEN at - INTERVAL 5 SECONDS AND at + INTERVAL 15 SECONDS"


def _side(frame: DataFrame, name: str, delay: str) -> DataFrame:
    events = frame.select(F.col("k").alias(f"{name}k"), F.timestamp_seconds("t").alias(f"{name}t"))
    return events.withWatermark(f"{name}t", delay)


def _joined(a: DataFrame, b: DataFrame, how: str) -> DataFrame:
    return _side(a, "a", "10 seconds").join(_side(b, "b", "20 seconds"), F.expr(_MATCH), how)


def _plain(frame: DataFrame) -> DataFrame:
    """Times as seconds."""
    return frame.select(
        *(F.unix_timestamp(name).alias(name) if name.endswith("t") else F.col(name) for name in frame.columns)
    )


def inner(a: DataFrame, b: DataFrame) -> DataFrame:
    return _plain(_joined(a, b, "inner"))


def left_outer(a: DataFrame, b: DataFrame) -> DataFrame:
    return _plain(_joined(a, b, "left_outer"))


def right_outer(a: DataFrame, b: DataFrame) -> DataFrame:
    return _plain(_joined(a, b, "right_outer"))


def full_outer(a: DataFrame, b: DataFrame) -> DataFrame:
    return _plain(_joined(a, b, "full_outer"))


def left_semi(a: DataFrame, b: DataFrame) -> DataFrame:
    return _plain(_joined(a, b, "left_semi"))


def join_then_window(a: DataFrame, b: DataFrame) -> DataFrame:
    """Counts, by window, what an outer join has let out."""
    counted = _joined(a, b, "left_outer").groupBy(F.window("at", "20 seconds")).agg(F.count("bk"), F.count("*"))
    return counted.toDF("window", "matched", "ended").select(
        F.unix_timestamp("window.start").alias("start"), "matched", "ended"
    )


def windows_of_windows(a: DataFrame, b: DataFrame) -> DataFrame:
    """Two aggregations, one above the other, over a union of two watermarks."""
    both = _side(a, "a", "10 seconds").toDF("k", "t").union(_side(b, "b", "20 seconds").toDF("k", "t"))
    small = both.groupBy(F.window("t", "10 seconds")).agg(F.count("*").alias("events"))
    large = small.groupBy(F.window("window", "40 seconds")).agg(F.sum("events").alias("events"))
    return large.select(F.unix_timestamp("window.start").alias("start"), "events")


def with_itself(a: DataFrame) -> DataFrame:
    """A self-join whose two uses have watermarks of their own."""
    return _plain(_joined(a, a, "left_outer"))


def watermark_of_windows(a: DataFrame) -> DataFrame:
    """A watermark on what an aggregation has let out: it moves in batches without data, too."""
    small = _side(a, "a", "10 seconds").groupBy(F.window("at", "10 seconds")).agg(F.count("*").alias("events"))
    ended = small.select(F.window_time("window").alias("ended"), "events").withWatermark("ended", "3 seconds")
    large = ended.groupBy(F.window("ended", "40 seconds")).agg(F.sum("events").alias("events"))
    return large.select(F.unix_timestamp("window.start").alias("start"), "events")


JOINS = {"inner": inner, "left_outer": left_outer, "right_outer": right_outer, "full_outer": full_outer}
JOINS |= {"left_semi": left_semi}
CHAINS = {"join_then_window": join_then_window, "windows_of_windows": windows_of_windows}
OF_ONE_SOURCE = {"with_itself": with_itself, "watermark_of_windows": watermark_of_windows}
TRANSFORMS: Mapping[str, Callable[..., DataFrame]] = {**JOINS, **CHAINS, **OF_ONE_SOURCE}


@dataclass(frozen=True)
class Step:
    """What arrives, and one run."""

    arrivals: Mapping[str, Sequence[Sequence[Event]]]
    """By source, the files that arrive, each a list of events."""
    stop_after: int | None = None
    """After how many batches somebody stops the run."""
    kill: Kill | None = None
    """Where the driver dies in the run's last batch."""
    strategy: Literal["drain"] | None = None


@dataclass
class History:
    """One stream, and everything that has arrived for it."""

    lab: Lab
    name: str
    limit: int | None = None
    """How many files a batch takes of each source."""
    arrived: dict[str, list[Event]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sources = ("a",) if self.name in OF_ONE_SOURCE else ("a", "b")
        declared = {
            name: sources.files(name, format="json", schema=SCHEMA, max_files_per_batch=self.limit)
            for name in self.sources
        }
        transform = f"{__name__}:{self.name}"
        self.stream = Stream(name="joined", sources=declared, transform=transform, sink=sinks.delta("joined"))
        self._files = 0
        for name in self.sources:
            (self.lab.root / name).mkdir(parents=True)

    @property
    def checkpoint(self) -> Path:
        return self.lab.checkpoint(self.stream)

    @property
    def watermark_file(self) -> Path:
        return self.lab.root / "home" / "joined" / "watermarks" / "0001.json"

    def arrive(self, source: str, *files: Sequence[Event]) -> None:
        for events in files:
            _write(self.lab.root / source / f"{self._files:04d}.json", events, self._files)
            self.arrived.setdefault(source, []).extend(events)
            self._files += 1

    def run(self, step: Step) -> None:
        """Let a step's files arrive, and run; a kill leaves on disk what it leaves."""
        for source, files in step.arrivals.items():
            self.arrive(source, *files)
        limits = Limits(strategy=step.strategy) if step.strategy else NO_LIMITS
        if step.kill is None:
            self.lab.run(self.stream, limits, stop_after=step.stop_after)
            return
        before = self.watermark_file.read_bytes() if self.watermark_file.exists() else None
        record = self.lab.run(self.stream, limits, stop_after=1)
        if not record.batches:
            return
        if before is None:
            # Begun before the first batch.
            document = json.loads(self.watermark_file.read_bytes())
            inputs = [known | {"event_ms": None} for known in document["inputs"]]
            before = json.dumps(document | {"measured": -1, "inputs": inputs}).encode()
        self.watermark_file.write_bytes(before)
        if step.kill == "before Spark's commit":
            uncommit(self.checkpoint, record.batches[-1].batch_id)

    def finish(self) -> None:
        """Bring one event from far ahead on every side, one side per run, and what is left."""
        for number, source in enumerate(self.sources, 1):
            self.run(Step({source: [[(-number, FAR)]]}))
        self.lab.run(self.stream)
        assert self.lab.plan(self.stream).verdict == "skip"

    def emitted(self) -> list[tuple[Any, ...]]:
        return rows(self.lab.table("joined"))

    def watermarks(self) -> list[int]:
        """The watermark that every batch ran with."""
        return batch_watermarks(self.checkpoint)

    def never_stopped(self) -> tuple[list[tuple[Any, ...]], list[int]]:
        """What the one query that never stopped emits, and the watermark that each of its batches ran with."""
        root = self.lab.root / "plain"
        for batch_id, taken in enumerate(self._batches()):
            for source, events in taken.items():
                _write(root / source / f"{batch_id:04d}.json", events, batch_id)
        frames = {
            name: reader(self.lab.spark, SCHEMA, maxFilesPerTrigger=1).json(str(root / name)) for name in self.sources
        }
        frame = TRANSFORMS[self.name](**frames)
        available_now(frame, root / "checkpoint", root / "out", sink="parquet")
        return rows(self.lab.spark.read.schema(frame.schema).parquet(str(root / "out"))), batch_watermarks(
            root / "checkpoint"
        )

    def _batches(self) -> Iterator[dict[str, list[Event]]]:
        """The events that each batch took, by source."""
        logs = {name: log_of(self.checkpoint, number) for number, name in enumerate(self.sources)}
        done = dict.fromkeys(self.sources, -1)
        for lines in offset_lines(self.checkpoint).values():
            taken: dict[str, list[Event]] = {}
            for name, line in zip(self.sources, lines, strict=False):
                end = -1 if line is None else line["logOffset"]
                uris = [uri for log_id in range(done[name] + 1, end + 1) for uri in logs[name][log_id]]
                taken[name] = [event for uri in uris for event in _read(Path(unquote(urlsplit(uri).path)))]
                done[name] = end
            yield taken


def batch_watermarks(checkpoint: Path) -> list[int]:
    """The watermark in each `offsets/N`, in milliseconds."""
    files = log_files(checkpoint / "offsets")
    return [json.loads(file.read_text("utf-8").split("\n")[1])["batchWatermarkMs"] for file in files]


_ON = "ak = bk AND b_t BETWEEN a_t - 5 AND a_t + 15"
SQL = {
    "inner": f"SELECT * FROM a JOIN b ON {_ON}",
    "left_outer": f"SELECT * FROM a LEFT JOIN b ON {_ON}",
    "right_outer": f"SELECT * FROM a RIGHT JOIN b ON {_ON}",
    "full_outer": f"SELECT * FROM a FULL JOIN b ON {_ON}",
    "left_semi": f"SELECT * FROM a SEMI JOIN b ON {_ON}",
    "join_then_window": f"SELECT a_t // 20 * 20, count(bk), count(*) FROM a LEFT JOIN b ON {_ON} GROUP BY ALL",
    "windows_of_windows": "SELECT t // 40 * 40, count(*) FROM (SELECT a_t AS t FROM a UNION ALL SELECT b_t FROM b)"
    " GROUP BY ALL",
    "with_itself": f"SELECT * FROM a LEFT JOIN (SELECT ak AS bk, a_t AS b_t FROM a) AS b ON {_ON}",
}
"""By transform. `watermark_of_windows` is not among them: its second watermark waits for rows that wait for it."""


def computed_at_once(name: str, arrived: Mapping[str, Sequence[Event]]) -> list[tuple[Any, ...]]:
    """What DuckDB makes of all events at once, but for those that no history ever ends for; none may be late."""
    with duckdb.connect() as connection:
        for source in "ab":
            connection.execute(f"CREATE TABLE {source} ({source}k BIGINT, {source}_t BIGINT)")
            if ended := [event for event in arrived.get(source, []) if event[1] < FAR]:
                connection.executemany(f"INSERT INTO {source} VALUES (?, ?)", ended)
        return sorted(connection.execute(SQL[name]).fetchall(), key=repr)


def draw_steps(seed: int, source_names: Sequence[str], *, is_late: bool, length: int = 8) -> list[Step]:
    """Any interleaving of arrivals by side, files, runs, stops and kills; by the seed, a side is idle for days."""
    draw = random.Random(seed)
    clock = dict.fromkeys(source_names, 100)
    idle, begins, ends = draw.choice(source_names), draw.randint(1, length // 2), draw.randint(length // 2, length)
    if seed % 4 < 2:
        ends = begins
    steps = []
    for number in range(length):
        is_idle = begins <= number < ends
        arrivals: dict[str, list[list[Event]]] = {}
        for name in source_names:
            if draw.random() < 0.35 or (is_idle and name == idle):
                continue
            arrivals[name] = []
            for _ in range(draw.randint(1, 2)):
                clock[name] += draw.randint(1, 3) * DAY if is_idle else draw.choice((0, 4, 15, 60))
                # Late is what comes behind the watermark of its own side.
                earliest = clock[name] - (60 if is_late else 9)
                count = draw.randint(0, 3)
                arrivals[name].append([(draw.randint(0, 4), draw.randint(earliest, clock[name])) for _ in range(count)])
        kill = draw.choice((None, None, "before Spark's commit", "after Spark's commit"))
        steps.append(Step(arrivals, stop_after=draw.choice((None, None, 0, 1)), kill=kill))
    return steps


def _write(file: Path, events: Sequence[Event], seconds: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"k": key, "t": second}) + "\n" for key, second in events), "utf-8")
    touch(file, seconds)


def _read(file: Path) -> list[Event]:
    return [(event["k"], event["t"]) for line in file.read_text("utf-8").splitlines() if (event := json.loads(line))]
