"""What batches of changes make of a table, without streams: values of odd kinds, ties, nulls and repetitions."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, Row

from sluice import sinks
from sluice.errors import DeclarationError
from sluice.sinks.contract import SinkBatch
from sluice.storage import Storage
from tests.campaign import CAMPAIGN, in_campaigns, rarely
from tests.spark.lab import Lab

pytestmark = pytest.mark.spark

Change = Mapping[str, Any]
Kept = Literal[1, 2]
KEY, FIELDS = "the.key", "a-struct"
COLUMNS = {KEY: "double", "ts": "struct<day: int, `n-th`: int>", "m": "map<string, int>", FIELDS: "struct<`x-y`: int>"}
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in {**COLUMNS, "v": "string", "op": "string"}.items())
KEYS, DAYS = [1.0, -0.0, 0.0, float("nan")], [None, 1, 2]


def drawn(chance: random.Random) -> Change:
    return {
        KEY: chance.choice(KEYS),
        "ts": (chance.choice(DAYS), chance.choice([None, 1, 2])),
        "m": chance.choice([None, {"a": 1}, {"a": 1, "b": 2}]),
        FIELDS: (chance.choice([None, 1]),),
        "v": chance.choice([None, "x", "y"]),
        "op": chance.choice([None, "D", "U", "U"]),
    }


def told(value: Any) -> tuple[Any, ...]:
    """A value such that a null is less than any, and zeros, and what is no number, are one."""
    if isinstance(value, tuple):
        return (1, tuple(map(told, value)))
    if isinstance(value, dict):
        return (1, json.dumps({"value": value}, separators=(",", ":")))
    if isinstance(value, float):
        return (2, 0.0) if value != value else (1, value + 0.0)  # noqa: PLR0124 - that is how it is known
    return (0, 0) if value is None else (1, value)


def rank(change: Change) -> tuple[Any, ...]:
    """Of two changes of one key and sequence, the greater counts: a delete, then the columns by their names."""
    return change["op"] == "D", *(told(change[name]) for name in sorted([*COLUMNS, "v"]))


def expected(kept: Kept, changes: Iterable[Change]) -> list[tuple[Any, ...]]:
    """What one batch over all of them leaves, computed by a plain loop."""
    known = defaultdict[Any, dict[Any, Change]](dict)
    for change in changes:
        of_key, sequence = known[told(change[KEY])], told(change["ts"])
        of_key[sequence] = max(of_key.get(sequence, change), change, key=rank)
    found = []
    for of_key in known.values():
        order = sorted(of_key)
        for sequence, after in zip(order, [*order[1:], None], strict=True):
            if of_key[sequence]["op"] != "D" and (kept == 2 or after is None):
                ends = () if kept == 1 else (None if after is None else of_key[after]["ts"],)
                found.append(shown(of_key[sequence], *ends))
    return sorted(found)


def shown(change: Change, *ends: Any) -> tuple[Any, ...]:
    return *(told(change[name]) for name in sorted([*COLUMNS, "v"])), *map(told, ends)


def plain(value: Any) -> Any:
    return tuple(map(plain, value)) if isinstance(value, Row) else value


class Feed:
    """A table to which batches are applied as a stream applies them."""

    def __init__(self, lab: Lab, kept: Kept, **its: Any) -> None:
        self.lab, self.kept, self.query_id = lab, kept, str(uuid4())
        fixed = {"keys": [KEY], "sequence_by": "ts", "apply_as_deletes": "op = 'D'", "except_columns": ["op"]}
        changes = sinks.changes(**{**fixed, "stored_as_scd_type": kept, **its})
        self.sink: Any = sinks.delta(str(lab.root / "out"), changes=changes)

    def apply(self, batch_id: int, changes: Sequence[Change], columns: Sequence[str] = ()) -> None:
        found = [tuple(change.values()) for change in changes]
        frame = self.lab.spark.createDataFrame(found, SCHEMA)
        if columns:
            frame = frame.select(*[f"`{name}`" for name in columns])
        self.apply_frame(batch_id, frame)

    def apply_frame(self, batch_id: int, frame: DataFrame) -> None:
        batch = SinkBatch(self.query_id, batch_id, "append", 1)
        self.sink.write_batch(frame.localCheckpoint(), batch, load_function=None, storage=Storage())

    def rows(self) -> list[tuple[Any, ...]]:
        found = [{name: plain(row[name]) for name in row.asDict()} for row in self.lab.spark_table("out").collect()]
        return sorted(shown(row, *([row["__END_AT"]] if self.kept == 2 else [])) for row in found)

    def version(self) -> int:
        return int(self.sink.state(self.query_id, storage=Storage()).version)


def check_batches(lab: Lab, seed: int) -> None:
    """Random batches, columns in any order, and batches that a driver which wakes up applies once more."""
    chance = random.Random(seed)
    kept: Kept = chance.choice([1, 2])
    feed, batches = Feed(lab, kept), list[list[Change]]()
    for number in range(chance.randint(2, 5)):
        batches.append([drawn(chance) for _ in range(chance.randint(0 if number else 1, 7))])
        columns = [*COLUMNS, "v", "op"]
        chance.shuffle(columns)
        feed.apply(number, batches[number], columns)
        if chance.random() < 0.3:
            before, again = feed.version(), chance.randint(0, number)
            feed.apply(again, batches[again])
            # A batch without rows may be done again, for nothing is known of it.
            assert feed.version() == before
        assert feed.rows() == expected(kept, [change for batch in batches for change in batch]), (seed, batches)


@pytest.mark.parametrize("seed", [2, *rarely(1)])
def test_random_batches(lab: Lab, seed: int) -> None:
    check_batches(lab, seed)


@in_campaigns
@pytest.mark.parametrize("seed", range(3, 3 + max(30, CAMPAIGN)))
def test_more_random_batches(lab: Lab, seed: int) -> None:
    check_batches(lab, seed)


def test_a_table_that_was_here_before(lab: Lab) -> None:
    """Its rows count as changes that have come; what nobody can explain is refused before anything is written."""
    row = {KEY: 1.0, "ts": (1, 1), "m": None, FIELDS: (1,), "v": "x", "op": "U"}
    first = Feed(lab, 2)
    first.apply(0, [row, {**row, "ts": (3, 1), "op": "D"}, {**row, "ts": (5, 1)}])
    seeded, late = Feed(lab, 2), {**row, "ts": (2, 1)}
    seeded.apply(0, [late])
    every = [row, late, {**row, "ts": (3, 1), "op": "D"}, {**row, "ts": (5, 1)}]
    assert seeded.rows() == expected(2, every)

    place = f"delta.`{lab.root / 'out'}`"
    lab.spark.sql(f"DELETE FROM delta.`{lab.root / 'out_tombstones'}`")
    with pytest.raises(DeclarationError, match="has 1 rows that do not end where the next one of their keys begins"):
        Feed(lab, 2).apply(0, [late])
    lab.spark.sql(f"INSERT INTO {place} SELECT * FROM {place}")
    with pytest.raises(DeclarationError, match=r"rows that share `the.key`, `__START_AT` \(3 keys\)"):
        Feed(lab, 2).apply(0, [late])
    assert len(seeded.rows()) == 6


def test_a_correction_beside_a_batch(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who deletes, or corrects, a row as a batch is applied is not undone: the batch ends it, and no more."""
    from sluice.sinks.delta import merge

    row = {KEY: 1.0, "ts": (1, 1), "m": None, FIELDS: (1,), "v": "x", "op": "U"}
    feed = Feed(lab, 2)
    feed.apply(0, [row, {**row, "ts": (2, 1)}])
    write = merge.merge

    def beside(rows: DataFrame, location: str, *args: Any, **how: Any) -> None:
        if not location.endswith("_tombstones"):
            place = f"delta.`{lab.root / 'out'}`"
            lab.spark.sql(f"DELETE FROM {place} WHERE ts.day = 1")
            lab.spark.sql(f"UPDATE {place} SET v = 'corrected' WHERE ts.day = 2")
        write(rows, location, *args, **how)

    monkeypatch.setattr(merge, "merge", beside)
    feed.apply(1, [{**row, "ts": (3, 1)}])
    assert feed.rows() == sorted(
        [shown({**row, "ts": (2, 1), "v": "corrected"}, (3, 1)), shown({**row, "ts": (3, 1)}, None)]
    )


def test_values_without_an_order(lab: Lab) -> None:
    """Which of two of one sequence counts does not depend on which came first; nor do two that look alike."""
    left = []
    for number, order in enumerate((("1", '"1"'), ('"1"', "1"))):
        feed = Feed(lab, 1, keys=["id"], apply_as_deletes=None, except_columns=[])
        feed.sink = sinks.delta(str(lab.root / f"out{number}"), changes=feed.sink.changes)
        for batch_id, value in enumerate(order):
            frame = lab.spark.createDataFrame([(1, 1, value)], "id int, ts int, v string")
            feed.apply_frame(batch_id, frame.selectExpr("id", "ts", "parse_json(v) AS v"))
        left.append([row[0] for row in lab.spark_table(f"out{number}").selectExpr("to_json(v)").collect()])
    assert left[0] == left[1]
    assert len(left[0]) == 1
