"""What a stream of a history reads, file by file and version by version, and which of its batches has read what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.spark.lab import log_of, names, offset_lines, write_files

DAYS = [date(2026, 1, day) for day in (1, 2)]


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
    versions: dict[int, list[int]] = field(default_factory=dict)
    """The rows of each version of the table that is the second source."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Files that have another name since they were read."""
    lost: set[str] = field(default_factory=set)
    """Files that vanished in the last moment: their rows came once more, in other files."""
    drained: set[str] = field(default_factory=set)
    """Files that Spark took by itself: nobody knows how large they were then."""
    _written: int = 0

    def begin(self, *, has_table: bool) -> None:
        """Make what is read."""
        self.file("").mkdir(parents=True)
        if has_table:
            self.write_table([])

    def make_rows(self, days: Sequence[int]) -> list[int]:
        """New rows, of days by their number."""
        numbers = list(range(self.made, self.made + len(days)))
        self.made += len(numbers)
        self.days |= {number: DAYS[day] for number, day in zip(numbers, days, strict=True)}
        return numbers

    def write_file(self, numbers: Sequence[int], *, is_same_time: bool = False) -> None:
        """Write a file with a name of its own, and with a time of its own or that of the one before."""
        lines = [json.dumps({"n": n, "day": self.days[n].isoformat()}) for n in numbers]
        before = self._written
        self._written += 1
        name = f"{self._written:04d}.json"
        time = before if is_same_time else self._written
        write_files(self.file(""), {name: "\n".join(lines)}, first=time)
        self.files[name] = list(numbers)

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
        """Give a file another name: one that was read is held back under it."""
        found = sorted(self.files.keys() - self.renamed.keys() - self.lost - self.drained)
        name = found[pick % len(found)] if found else None
        if name is not None:
            other = f"renamed-{name}"
            self.file(name).rename(self.file(other))
            if name in self.logged():
                self.renamed[name] = other
            else:
                self.files[other] = self.files.pop(name)
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

    def bring_back(self) -> list[str]:
        """Give files that were read their names back; tells which."""
        for name, other in self.renamed.items():
            self.file(other).rename(self.file(name))
        brought, self.renamed = [*self.renamed], {}
        return brought

    def is_held_back(self) -> bool:
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

    def newest(self, log: str) -> int:
        """The newest batch in a log of the checkpoint; -1 for none."""
        folder = self.checkpoint / log
        return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1) if folder.exists() else -1

    def query_id(self) -> str:
        """The query that writes the tables; nothing where none has begun."""
        file = self.checkpoint / "metadata"
        return str(json.loads(file.read_bytes())["id"]) if file.exists() else ""

    def batches(self) -> dict[int, list[int]]:
        """The rows of every batch, by its offsets; a row that comes again is the first one's."""
        found: dict[int, list[int]] = {}
        before: set[int] = set()
        for batch_id, offsets in sorted(offset_lines(self.checkpoint).items()):
            read = {number for name in self._files_to(offsets) for number in self.files[name]}
            for offset in offsets:
                if offset and "reservoirVersion" in offset:
                    assert offset["index"] < 0, offset
                    taken = (n for version, n in self.versions.items() if version < offset["reservoirVersion"])
                    read.update(*taken)
            found[batch_id] = sorted(read - before)
            before |= read
        return found

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
