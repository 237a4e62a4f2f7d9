"""The steps of a history as data: drawn from a seed before anything runs, and kept as JSON where one broke something.

A step has all that was drawn for it. What it picks out of what there is then, a file say, it picks by a number that is
taken round: so a list of steps means the same when a kind of step is added, which a seed does not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

from tests.spark.history_streams import Shape
from tests.spark.power_cuts import Moment

Step = tuple[str, dict[str, Any]]
"""The name of a method of `History`, and its arguments."""
Draw = random.Random

_KEPT = Path(__file__).parent / "kept_histories.json"
_OF_A_RUN = (
    "/offsets/*",
    "staged/*",
    "staged",
    "commit out",
    "save out",
    "Spark's commit",
    "Spark's stream",
    "Spark's stream",
    "audit",
    "gate",
    "runs/*",
)
_OF_A_BACKFILL = ("commit out", "save out", "save out_quarantine", "save elsewhere", "parquet out", "runs/*")
_OF_A_RELEASE = ("commit out", "save out", "by Delta", "by Delta", "releases")
"""Writes that matter most, by a part of their names; half of the cuts are at any of as many as there usually are."""


def draw_history(seed: int, length: int) -> list[Step]:
    """A history of so many steps, behind its beginning. In most, a stream is edited between a cut run and the next."""
    draw = random.Random(seed)
    steps = [draw.choice(_MOVES)(draw) for _ in range(length)]
    for at in range(0, length - 2, 5):
        if draw.random() < 0.6:
            start = at + draw.randint(0, min(2, length - at - 3))
            steps[start : start + 3] = [_cut_run(draw), _edit(draw), ("run", {})]
    shape = draw.choice([*get_args(Shape), "files"])
    begin = {"shape": shape, "is_partitioned": draw.random() < 0.5, "edit": _edit(draw)[1]}
    return [("begin", begin), _arrive(draw), *steps]


def kept_histories() -> list[dict[str, Any]]:
    """The histories that once broke something: `why`, their `steps`, and `is_open` where the fault is still there."""
    found: list[dict[str, Any]] = json.loads(_KEPT.read_bytes())
    return found


def as_json(steps: Iterable[Step]) -> str:
    """Steps as the file has them, one in a line."""
    return "[\n" + ",\n".join(f"  {json.dumps(step)}" for step in steps) + "\n]"


def _arrive(draw: Draw) -> Step:
    files = [
        {
            "days": [draw.randint(0, 1) for _ in range(draw.randint(1, 4))],
            "hours": [draw.randint(0, 99) for _ in range(6)],
            "again": [draw.randint(0, 99) for _ in range(draw.randint(0, 2))],
            "is_same_time": draw.random() < 0.3,
            "is_in_table": draw.random() < 0.5,
        }
        for _ in range(draw.randint(1, 3))
    ]
    return "arrive", {"files": files}


def _run(draw: Draw) -> Step:
    return "run", {"is_drained": True} if draw.random() < 0.2 else {}


def _cut_run(draw: Draw) -> Step:
    how: dict[str, Any] = {"days": [draw.randint(0, 1) for _ in range(4)], **_cut(draw, 25, _OF_A_RUN)}
    how["hours"] = [draw.randint(0, 99) for _ in range(4)]
    if draw.random() < 0.15:
        how["is_drained"] = True
    elif draw.random() < 0.4:
        how["max_batches"] = 1
    return "cut_run", how


def _edit(draw: Draw) -> Step:
    changes: list[dict[str, Any]] = [
        {"transform": draw.randint(1, 4)},
        {"transform": draw.randint(1, 3), "policy": "quarantine"},
        {"transform": 4, "policy": draw.choice(["none", "warn"])},
        {"policy": draw.choice(["none", "warn", "drop", "quarantine"])},
        {"policy": draw.choice(["fail", "hold"])},
        {"quarantine": draw.choice(["out_quarantine", "elsewhere"])},
        {"shift": draw.randint(0, 1)},
        draw.choice([{"sink": "moved"}, {"is_partitioned": True}, {"is_partitioned": False}]),
    ]
    return "edit", draw.choice(changes)


def _cut_backfill(draw: Draw) -> Step:
    edit = _edit(draw)[1] if draw.random() < 0.5 else {}
    how = {"day": draw.randint(0, 1), "then": draw.choice(["", "", "run", "clean", "vacuum"]), "edit": edit}
    return "cut_backfill", how | _cut(draw, 18, _OF_A_BACKFILL)


def _cut_release(draw: Draw) -> Step:
    edit = _edit(draw)[1] if draw.random() < 0.5 else {}
    how = {
        "then": draw.choice(["", "run", "backfill", "clean", "vacuum"]),
        "edit": edit,
        "is_corrected": draw.random() < 0.7,
    }
    return "cut_release", how | _cut(draw, 8, _OF_A_RELEASE)


def _maintain(draw: Draw) -> Step:
    return "maintain", {"pick": draw.randint(0, 99), "what": draw.choice(["compact", "vacuum", "clean"])}


def _write_by_others(draw: Draw) -> Step:
    return "write_by_others", {"what": draw.choice(["delete", "merge", "mend"]), "pick": draw.randint(0, 99)}


def _rotated(draw: Draw) -> dict[str, Any]:
    days = [draw.randint(0, 1) for _ in range(3)]
    return {"pick": draw.randint(0, 99), "days": days, "is_same_size": draw.random() < 0.5}


def _cut(draw: Draw, writes: int, matter: tuple[str, ...]) -> dict[str, Any]:
    moment = draw.choice(get_args(Moment))
    if draw.random() < 0.5:
        return {"match": "", "nth": draw.randint(1, writes), "moment": moment}
    return {"match": draw.choice(matter), "nth": draw.choice([1, 1, 1, 2]), "moment": moment}


_MOVES: list[Callable[[Draw], Step]] = [
    _arrive, _arrive, _run, _cut_run, _cut_run, _edit, _edit, _cut_backfill, _cut_release, _maintain, _write_by_others,
    lambda draw: ("read", {"day": draw.choice([None, None, 0, 1])}),
    lambda draw: ("cut_read", _cut(draw, 25, _OF_A_RUN)),
    lambda draw: ("backfill", {"day": draw.randint(0, 1)}),
    lambda draw: ("release", {"is_corrected": draw.random() < 0.7}),
    lambda _: ("let_go", {}),
    lambda draw: ("rename", {"pick": draw.randint(0, 99)}),
    lambda draw: ("rotate", _rotated(draw)),
    lambda draw: ("vanish", {"pick": draw.randint(0, 99)}),
    lambda draw: ("mend", {"pick": draw.randint(0, 99)}),
    lambda draw: ("run_short", {"pick": draw.randint(0, 99), "is_copied": draw.random() < 0.5}),
]  # fmt: skip
