"""Feeds of changes applied to a Delta table: the newest rows, or all of them, in whatever order changes arrive."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.planning.planner import Limits
from tests.campaign import CAMPAIGN, in_campaigns
from tests.spark.lab import Lab, rows, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import cut_run

pytestmark = pytest.mark.spark

Change = tuple[str, int, str | None, bool]
"""A key, a sequence, a value, and whether it is a delete."""
Kept = Literal[1, 2]


def same(feed: DataFrame) -> DataFrame:
    return feed


def declared(kept: Kept, **its: Any) -> Stream:
    fixed = {"keys": ["id"], "sequence_by": "ts", "apply_as_deletes": "op = 'D'", "except_columns": ["op"]}
    changes = sinks.changes(**fixed | {"stored_as_scd_type": kept} | its.pop("changes", {}))
    schema = "id string, ts bigint, v string, op string"
    return Stream(
        **{
            "name": "s",
            "sources": {"feed": sources.files("in", format="json", schema=schema, max_files_per_batch=1)},
            "transform": f"{__name__}:same",
            "sink": sinks.delta("out", changes=changes),
        }
        | its
    )


def arrive(lab: Lab, first: int, *batches: Iterable[Change]) -> None:
    """One file for each batch."""
    contents = {}
    for number, batch in enumerate(batches, first):
        lines = [
            json.dumps({"id": key, "ts": ts, "v": v, "op": "D" if is_delete else "U"})
            for key, ts, v, is_delete in batch
        ]
        contents[f"{number:04d}.json"] = "\n".join(lines)
    write_files(lab.root / "in", contents, first=first)


def expected(kept: Kept, changes: Iterable[Change]) -> list[tuple[Any, ...]]:
    """What one batch over all of them leaves, computed by a plain loop."""
    by_key = defaultdict[str, dict[int, Change]](dict)
    for change in changes:
        there = by_key[change[0]].get(change[1])
        by_key[change[0]][change[1]] = change if there is None else max(there, change, key=_rank)
    found: list[tuple[Any, ...]] = []
    for key, known in by_key.items():
        order = sorted(known)
        for sequence, after in zip(order, [*order[1:], None], strict=True):
            _, _, value, is_delete = known[sequence]
            if is_delete or (kept == 1 and after is not None):
                continue
            found.append((key, sequence, value) if kept == 1 else (key, sequence, value, sequence, after))
    return sorted(found, key=repr)


def _rank(change: Change) -> tuple[bool, bool, str]:
    """A delete counts before others; of these, the greater: a null is less than any."""
    return change[3], change[2] is not None, change[2] or ""


def held(lab: Lab) -> list[tuple[Any, ...]]:
    return rows(lab.table("out"))


@pytest.mark.parametrize("kept", [1, 2])
def test_late_changes(lab: Lab, kept: Kept) -> None:
    """Over batches and runs: updates and deletes that are older than what is there, ties, and a key that comes back."""
    feed: list[list[Change]] = [
        [("a", 5, "five", False), ("a", 3, "three", False), ("b", 4, "b", False)],
        [("a", 4, "four", False), ("b", 6, None, True), ("c", 9, None, True)],
        [("b", 5, "late", False), ("c", 8, "late", False), ("a", 5, "fifth", False), ("a", 5, None, False)],
        [("b", 7, "back", False), ("a", 4, None, True), ("c", 9, "as old as its delete", False)],
        [("a", 4, "four", False), ("b", 6, None, True)],
    ]
    arrive(lab, 0, *feed[:3])
    lab.run(declared(kept))
    assert held(lab) == expected(kept, [change for batch in feed[:3] for change in batch])
    arrive(lab, 3, *feed[3:])
    record = lab.run(declared(kept))
    assert held(lab) == expected(kept, [change for batch in feed for change in batch])
    assert not [warning for batch in record.batches for warning in batch.warnings]


def check_history(lab: Lab, seed: int) -> None:
    """Random changes, batches, cuts and runs of either strategy: the table is the batch over what was read."""
    chance = random.Random(seed)
    kept: Kept = chance.choice([1, 2])
    stream, feed = declared(kept), list[list[Change]]()
    (lab.root / "in").mkdir()
    for _ in range(chance.randint(3, 5)):
        some = [
            [
                (chance.choice("abc"), chance.randint(1, 8), chance.choice(["x", "y", None]), chance.random() < 0.3)
                for _ in range(chance.randint(1, 6))
            ]
            for _ in range(chance.randint(0, 2))
        ]
        arrive(lab, len(feed), *some)
        feed += some
        limits = Limits(strategy=chance.choice(["drain", None]))
        if chance.random() < 0.6:
            match = chance.choice(["", "Delta's merge", "Spark's commit", "Spark's save"])
            cut_run(
                lab,
                stream,
                Cut(match, chance.randint(1, 12 if not match else 3), chance.choice(["before", "middle", "after"])),
                limits,
            )
        else:
            lab.run(stream, limits)
            assert not feed or held(lab) == expected(kept, [change for batch in feed for change in batch]), (seed, feed)
    lab.run(stream)
    assert not feed or held(lab) == expected(kept, [change for batch in feed for change in batch]), (seed, feed)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_history(lab: Lab, seed: int) -> None:
    check_history(lab, seed)


@in_campaigns
@pytest.mark.parametrize("seed", range(3, 3 + max(30, CAMPAIGN)))
def test_random_histories(lab: Lab, seed: int) -> None:
    check_history(lab, seed)
