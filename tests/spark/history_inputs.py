"""What a stream of a history reads, file by file and version by version, and which of its batches has read what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.spark.history_streams import DELAY_HOURS
from tests.spark.lab import log_of, names, offset_lines, write_files

DAYS = [date(2026, 1, day) for day in (1, 2)]


def hour_of(day: int, pick: int) -> int:
    """The hour of an event on a day, since the first one's midnight.

    Such that no row comes out twice: once the state forgets one, every further one of its day is late.
    """
    return pick % DELAY_HOURS if day == 0 else 24 + pick % 24


@dataclass
class Inputs:
    """The files and the table that one stream reads."""

    root: Path
    checkpoint: Path
    days: dict[int, date] = field(default_factory=dict)
    """The rows that arrived and are still there, and the day of each."""
    made: int = 0
    """How many rows there ever were."""
    files: dict[str, list[int]] = field(default_factory=dict)
    """The rows of each file, by the name under which it is read."""
    hours: dict[tuple[str, int], int] = field(default_factory=dict)
    """When each row of a file happened, in hours; where the stream has a watermark. A row that comes again may have
    happened at another time of its day."""
    versions: dict[int, list[int]] = field(default_factory=dict)
    """The rows of each version of the table that is the second source."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Files that have another name since they were read."""
    lost: set[str] = field(default_factory=set)
    """Files that vanished in the last moment: their rows came once more, in other files."""
    rotated: dict[str, dict[int, date]] = field(default_factory=dict)
    """The rows, and the day of each, of files that have taken the names of files that were read and are renamed."""
    drained: set[str] = field(default_factory=set)
    """Files that Spark took by itself: nobody knows how large they were then."""
    has_watermark: bool = False
    """Whether the stream drops what comes too late."""
    _written: int = 0

    def begin(self, *, has_table: bool, has_watermark: bool) -> None:
        """Make what is read."""
        self.file("").mkdir(parents=True)
        self.has_watermark = has_watermark
        if has_table:
            self.write_table([])

    def make_rows(self, days: Sequence[int]) -> list[int]:
        """New rows, of days by their number."""
        numbers = list(range(self.made, self.made + len(days)))
        self.made += len(numbers)
        self.days |= {number: DAYS[day] for number, day in zip(numbers, days, strict=True)}
        return numbers

    def write_file(
        self, numbers: Sequence[int], *, is_same_time: bool = False, hours: Sequence[int] = (), name: str | None = None
    ) -> str:
        """Write a file with a time of its own or that of the one before, and with a name of its own, unless told.

        Args:
            numbers: Its rows.
            is_same_time: Whether it has the time of the one before.
            hours: When they happened, to be taken round; where the stream has a watermark.
            name: Of a file that it takes the place of.
        """
        before = self._written
        self._written += 1
        name = name or f"{self._written:04d}.json"
        for n, hour in zip(numbers, cycle(hours or [0]), strict=False):
            self.hours[name, n] = hour_of(DAYS.index(self.days[n]), hour)
        time = before if is_same_time else self._written
        self._write(name, numbers, time)
        self.files[name] = list(numbers)
        return name

    def _write(self, name: str, numbers: Sequence[int], time: int) -> None:
        lines = []
        for n in numbers:
            happened = datetime.combine(DAYS[0], datetime.min.time(), UTC) + timedelta(hours=self.hours[name, n])
            at = f', "at": "{happened.isoformat()}"' if self.has_watermark else ""
            # As many rows, as many bytes: files look alike.
            lines.append(f'{{"n": {n:>4}, "day": "{self.days[n].isoformat()}"{at}}}')
        write_files(self.file(""), {name: "\n".join(lines)}, first=time)

    def write_table(self, numbers: Sequence[int]) -> None:
        """Write a version of the second source."""
        days = pa.array([self.days[number] for number in numbers], pa.date32())
        rows = pa.table({"n": pa.array(numbers, pa.int64()), "day": days})
        write_deltalake(str(self.root / "more"), rows, mode="append")
        self.versions[DeltaTable(str(self.root / "more")).version()] = list(numbers)

    def file(self, name: str) -> Path:
        """A file, or the folder."""
        return self.root / "land" / name

    def rename(self, pick: int) -> str | None:
        """Give a file another name: one that was read is set aside under it."""
        found = sorted(self.files.keys() - self.renamed.keys() - self.lost - self.drained)
        name = found[pick % len(found)] if found else None
        if name is not None:
            other = f"renamed-{name}"
            self.file(name).rename(self.file(other))
            if name in self.logged():
                self.renamed[name] = other
            else:
                self.files[other] = self.files.pop(name)
                self.hours |= {(other, n): self.hours[name, n] for n in self.files[other]}
        return name

    def vanish(self, pick: int) -> str | None:
        """Take a file away that was not read: it is not missed."""
        found = sorted(self.files.keys() - self.logged()) if len(self.files) > 1 else []
        name = found[pick % len(found)] if found else None
        if name is not None:
            self.file(name).unlink()
            gone = set(self.files.pop(name))
            for number in gone.difference(*self.files.values(), *self.versions.values()):
                del self.days[number]
        return name

    def mend(self, pick: int) -> str | None:
        """Write a file of the newest batch anew, as somebody does who has mended it."""
        found = sorted(name for name in self.newest_logged() if self.file(name).exists())
        name = found[pick % len(found)] if found else None
        if name is not None:
            self._written += 1
            self._write(name, self.files[name], self._written)
        return name

    def rotate(self, pick: int, days: Sequence[int], *, is_same_size: bool) -> str | None:
        """Give a file that was read another name, and its name to a new file: the rows of that one are yet to come."""
        found = sorted(self.logged().intersection(self.files) - self.renamed.keys() - self.lost - self.drained)
        name = found[pick % len(found)] if found else None
        if name is not None:
            self.renamed[name] = f"rotated-{name}"
            self.file(name).rename(self.file(self.renamed[name]))
            rows = self.files[name]
            numbers = self.make_rows([*islice(cycle(days), len(rows) + (0 if is_same_size else 1))])
            self.write_file(numbers, name=name)
            self.files[name] = rows
            self.rotated[name] = {number: self.days.pop(number) for number in numbers}
        return name

    def bring_back(self) -> list[str]:
        """Give files that were read their names back, and those that have these other ones; tells which."""
        for name, rows in self.rotated.items():
            self.file(name).unlink()
            self.days |= rows
            self.write_file([*rows])
        for name, other in self.renamed.items():
            self.file(other).rename(self.file(name))
        brought, self.renamed, self.rotated = [*self.renamed], {}, {}
        return brought

    def lose(self, name: str, aside: Path, *, is_copied: bool) -> None:
        """Take a file for lost, of which its batch has read nothing: its rows come once more."""
        rows, hours = self.files[name], [self.hours[name, number] for number in self.files[name]]
        self.lost.add(name)
        if is_copied:
            aside.unlink()
            self.write_file(rows, hours=hours)
        else:
            other = f"back-{name}"
            aside.rename(self.file(other))
            self.files[other] = rows
            self.hours |= {(other, number): hour for number, hour in zip(rows, hours, strict=True)}
        self.files[name] = []

    def is_set_aside(self) -> bool:
        """Whether a file that was not read looks like one that was, and has another name now."""
        read = {_looks(self.file(other)) for other in self.renamed.values()}
        return any(_looks(self.file(name)) in read for name in self.files.keys() - self.logged())

    def logged(self) -> set[str]:
        """The files that a batch has taken."""
        return {name for taken in self._log().values() for name in taken}

    def newest_logged(self) -> list[str]:
        """Those of the newest one."""
        log = self._log()
        return log[max(log)] if log else []

    def committed_files(self) -> set[str]:
        """Those of the batches that are committed."""
        return self._files_to(offset_lines(self.checkpoint).get(self.newest("commits"), []))

    def read_version(self) -> int:
        """The newest version of the second source whose rows are committed; -1 for none."""
        offsets = offset_lines(self.checkpoint).get(self.newest("commits"), [])
        return max((offset["reservoirVersion"] - 1 for offset in offsets if offset and "index" in offset), default=-1)

    def newest(self, log: str) -> int:
        """The newest batch in a log of the checkpoint; -1 for none."""
        folder = self.checkpoint / log
        return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1) if folder.exists() else -1

    def query_id(self) -> str:
        """The query that writes the tables; nothing where none has begun."""
        file = self.checkpoint / "metadata"
        return str(json.loads(file.read_bytes())["id"]) if file.exists() else ""

    def batches(self) -> dict[int, list[int]]:
        """The rows of every batch, by its offsets, but for late ones; a row that comes again is the first one's."""
        found: dict[int, list[int]] = {}
        before: set[int] = set()
        reached = -DELAY_HOURS
        for batch_id, watermark, taken, rows in self._reads():
            # By Spark's rule, what is late for a batch is behind the watermark of the one before.
            in_time = {row for row in taken if not self.has_watermark or self.hours[row] > reached}
            read = {number for _, number in in_time} | rows
            found[batch_id] = sorted(read - before)
            before |= read
            reached = watermark
        return found

    def read_to(self, batch_id: int) -> set[int]:
        """The rows that were read up to a batch, late or not."""
        reads = [(taken, rows) for at, _, taken, rows in self._reads() if at <= batch_id]
        return {number for taken, rows in reads for number in (*rows, *(number for _, number in taken))}

    def watermark_of(self, batch_id: int) -> int:
        """The watermark with which a batch ran, in hours."""
        return next((watermark for at, watermark, _, _ in self._reads() if at == batch_id), -DELAY_HOURS)

    def _reads(self) -> Iterator[tuple[int, int, list[tuple[str, int]], set[int]]]:
        """Of every batch: its watermark, what it has taken, file and row, and the rows of the table up to it."""
        done: set[str] = set()
        newest = 0
        for batch_id, offsets in sorted(offset_lines(self.checkpoint).items()):
            names, watermark = self._files_to(offsets) - done, newest - DELAY_HOURS
            done |= names
            taken = [(name, number) for name in sorted(names) for number in self.files[name]]
            rows: set[int] = set()
            for offset in offsets:
                if offset and "reservoirVersion" in offset:
                    assert offset["index"] < 0, offset
                    rows.update(*(n for version, n in self.versions.items() if version < offset["reservoirVersion"]))
            yield batch_id, watermark, taken, rows
            newest = max([newest, *(self.hours[row] for row in taken)])

    def late(self) -> set[int]:
        """The rows that were read, and too late each time."""
        batches = self.batches()
        return self.read_to(max(batches, default=-1)).difference(*batches.values())

    def _files_to(self, offsets: list[Any]) -> set[str]:
        last = max((offset["logOffset"] for offset in offsets if offset and "logOffset" in offset), default=-1)
        return {name for log_id, taken in self._log().items() if log_id <= last for name in taken}

    def _log(self) -> dict[int, list[str]]:
        """The names of the files that were taken, by log id."""
        found = (log_of(self.checkpoint, source) for source in (0, 1))
        return next(({log_id: names(uris) for log_id, uris in log.items()} for log in found if log), {})


def _looks(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size
