"""What two lists of rows have not in common, in whatever order they are, and how that is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Mapping[str, Any]]
_MOST = 20
"""How many rows of each kind a message shows."""


class MapValue(dict[Any, Any]):
    """A value of a map: all of its keys count, where of a struct only the fields do that are named."""


@dataclass(frozen=True)
class Difference:
    """What was expected and is not there, and what is there and was not expected."""

    missing: Rows
    unexpected: Rows

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)

    def lines(self) -> list[str]:
        """One line for each row: `-` is missing, `+` was not expected; what is alike stands together."""
        left = list(self.unexpected)
        lines = []
        for row in self.missing[:_MOST]:
            lines.append(f"  - {described(row)}")
            alike = max(left, key=lambda other: _alikeness(row, other), default=None)
            if alike is not None and _alikeness(row, alike):
                left.remove(alike)
                lines.append(f"  + {described(alike)}")
        lines += [f"  + {described(row)}" for row in left[: max(0, _MOST - len(self.unexpected) + len(left))]]
        shown = {mark: sum(line.startswith(f"  {mark}") for line in lines) for mark in "-+"}
        hidden = len(self.missing) - shown["-"], len(self.unexpected) - shown["+"]
        return lines + [f"  ... and {hidden[0]:,} missing, {hidden[1]:,} unexpected"] * any(hidden)


def difference(expected: Rows, found: Rows) -> Difference:
    """Compare rows, each as often as it is there; only the columns that an expected row names count for it."""
    left = list(range(len(found)))
    by_text: dict[str, list[int]] = {}
    for number in left:
        by_text.setdefault(repr(_ordered(found[number])), []).append(number)
    taken: dict[int, int] = {}
    for number, row in enumerate(expected):
        if same := by_text.get(repr(_ordered(row))):
            taken[same.pop(0)] = number
    exact = set(taken.values())
    for number in range(len(expected)):
        if number not in exact:
            _match(number, lambda one, other: matches(expected[one], found[other]), len(found), taken, set())
    told = set(taken.values())
    return Difference(
        [row for number, row in enumerate(expected) if number not in told],
        [row for number, row in enumerate(found) if number not in taken],
    )


def matches(expected: Any, found: Any) -> bool:
    """Whether a value is the one that is expected; of rows and structs, only what is expected counts."""
    if isinstance(expected, MapValue) and isinstance(found, Mapping) and len(expected) != len(found):
        return False
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return all(name in found and matches(value, found[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(matches, expected, found))
    if isinstance(expected, float) and isinstance(found, float) and math.isnan(expected):
        return math.isnan(found)
    # 1 == True in Python.
    return isinstance(expected, bool) is isinstance(found, bool) and bool(expected == found)


def described(row: Mapping[str, Any]) -> str:
    """A row in one line."""
    return ", ".join(f"{name}={_text(value)}" for name, value in row.items())


def _text(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return "{" + described(value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return repr(value)


def _ordered(value: Any) -> Any:
    return sorted((str(name), _ordered(item)) for name, item in value.items()) if isinstance(value, Mapping) else value


def _match(number: int, fits: Callable[[int, int], bool], count: int, taken: dict[int, int], seen: set[int]) -> bool:
    """Find an expected row one that is there, if need be by giving another one its second choice."""
    for other in range(count):
        if other in seen or not fits(number, other):
            continue
        seen.add(other)
        if other not in taken or _match(taken[other], fits, count, taken, seen):
            taken[other] = number
            return True
    return False


def _alikeness(row: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    return sum(name in other and matches(value, other[name]) for name, value in row.items())
