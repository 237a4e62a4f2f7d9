"""Amounts: how much waits, is planned or was taken, in the units that the kind of a source declares.

An amount has a count for every unit in which it is known: `{"files": 2, "bytes": 276}`, `{"offsets": 100}`. A unit that
it does not have is not known, which is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Amount = Mapping[str, int]
"""How many, by unit: each a plural of `UNITS`."""
UNITS = ("files", "offsets", "bytes", "rows")
"""In the order in which people are told of them."""
OF_EVERYTHING = ("bytes", "rows")
"""Units that whatever arrives could be counted in: they sum up only where each part is known in them."""


class Waiting(NamedTuple):
    """What waits in one partition: its offsets from one to before another."""

    read: int
    """How far it is read: the offset of the record that comes next."""
    end: int
    """How far it reaches."""

    @property
    def offsets(self) -> int:
        return self.end - self.read


def known(**counts: int | None) -> Amount:
    """The amount with these counts; None for what is not known."""
    return {unit: count for unit, count in counts.items() if count is not None}


def total(parts: Iterable[Amount]) -> Amount:
    """The sum of some amounts, in every unit in which it is known.

    Files of one part and offsets of another stand side by side. Bytes and rows are known where every part has them.
    """
    found = list(parts)
    units = [
        unit
        for unit in UNITS
        if any(unit in part for part in found)
        and (unit not in OF_EVERYTHING or all(unit in part or is_nothing(part) for part in found))
    ]
    return {unit: sum(part.get(unit, 0) for part in found) for unit in units}


def is_nothing(amount: Amount) -> bool:
    """Whether it is known to be empty."""
    return bool(amount) and not any(amount.values())


def count_in(amounts: Iterable[Amount], unit: str) -> int | None:
    """How much there is of a unit in some amounts together; None where one of them is not known in it."""
    counts = [0 if is_nothing(amount) else amount.get(unit) for amount in amounts]
    return known_sum(counts)


def known_sum(counts: Iterable[int | None]) -> int | None:
    """All counts together; None where one of them is not known."""
    found = list(counts)
    return None if None in found else sum(count for count in found if count is not None)


def least_in(amounts: Iterable[Amount], unit: str) -> int:
    """How much there is of a unit in some amounts together at least: what is not known in it counts as nothing."""
    return sum(amount.get(unit, 0) for amount in amounts)


def describe(amount: Amount) -> str:
    """In words: `2 files, 276 bytes`; empty where nothing is known."""
    return ", ".join(count_of(amount[unit], unit) for unit in UNITS if unit in amount)


def describe_count(amount: Amount, adjective: str = "") -> str:
    """In words, in the first unit that it has: `2 new files`; empty where nothing is known."""
    return next((count_of(amount[unit], unit, adjective) for unit in UNITS if unit in amount), "")


def count_of(count: int, unit: str, adjective: str = "") -> str:
    """A count of a unit, or of batches: `1 file`, `1,204 new rows`."""
    one = "batch" if unit == "batches" else unit.removesuffix("s")
    return f"{count:,} {adjective + ' ' if adjective else ''}{one if count == 1 else unit}"


def amount_json(amount: Amount) -> dict[str, int | None]:
    """As answers have it: `files`, `bytes` and `rows`, null where they are not known, and whatever else it has."""
    return {"files": None, "bytes": None, "rows": None, **amount}


def in_document(amount: Amount) -> dict[str, int]:
    """The same by the fields of a document, where `bytes` is a word of the language."""
    return {"size_bytes" if unit == "bytes" else unit: count for unit, count in amount.items()}
