"""Random lives of rows that are found by keys, while their structs are given other fields in another order."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.sinks.contract import Sink
from tests.campaign import CAMPAIGN, in_campaigns, rarely
from tests.spark.lab import Lab, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import cut_run

pytestmark = pytest.mark.spark

SCHEMA = "id string, k string, m string, ts double, x int, y int, op string"
SHAPES: Mapping[str, str] = {
    "as_first": "named_struct('x', x, 'y', y, 'in', named_struct('p', x, 'q', array(y)))",
    "turned": "named_struct('in', named_struct('q', array(y), 'p', x), 'y', y, 'x', x)",
    "narrower": "named_struct('Y', y::smallint, 'in', named_struct('p', x::tinyint, 'q', array(y)), 'x', x)",
    "fewer": "named_struct('in', named_struct('q', array(y)), 'x', x)",
    "more": "named_struct('z', x + y, 'in', named_struct('p', x, 'r', y, 'q', array(y)), 'x', x, 'y', y)",
}
"""What the transforms give: such a struct, and some within a map and within an array of arrays."""
Row = Mapping[str, Any]
Key = tuple[str, str, str]


def as_first(feed: DataFrame) -> DataFrame:
    return _shaped(feed, "as_first")


def turned(feed: DataFrame) -> DataFrame:
    return _shaped(feed, "turned")


def narrower(feed: DataFrame) -> DataFrame:
    return _shaped(feed, "narrower")


def fewer(feed: DataFrame) -> DataFrame:
    return _shaped(feed, "fewer")


def more(feed: DataFrame) -> DataFrame:
    return _shaped(feed, "more")


def _shaped(feed: DataFrame, shape: str) -> DataFrame:
    pair = f"CASE WHEN x <> 0 THEN {SHAPES[shape]} END"
    keys = "id", "CAST(k AS double) k", "CAST(m AS decimal(5, 2)) m"
    nested = f"{pair} a", f"map('k', {pair}) b", f"array(array({pair}), array()) c"
    return feed.selectExpr(*keys, "ts", "op", *nested, f"'{shape}' AS shape")


def structs(row: Row, shape: str) -> tuple[Any, ...]:
    """The fields `x`, `y`, `z`, `in.p`, `in.q`, `in.r` of a row of some shape."""
    x, y = row["x"], row["y"]
    is_whole, is_more = shape != "fewer", shape == "more"
    p, r = x if is_whole else None, y if is_more else None
    return (x, y if is_whole else None, x + y if is_more else None, p, [y], r)


def declared(kind: str, transform: str) -> Stream:
    keys = ["id", "k", "m"]
    sink: Sink
    if kind == "merge_on":
        sink = sinks.delta("out", merge_on=keys, schema_evolution="add")
    else:
        changes = sinks.changes(
            keys=keys,
            sequence_by="ts",
            apply_as_deletes="op = 'D'",
            stored_as_scd_type=1 if kind == "type 1" else 2,
            except_columns=["op"],
        )
        sink = sinks.delta("out", changes=changes, schema_evolution="add")
    read = sources.files("in", format="json", schema=SCHEMA, max_files_per_batch=1)
    return Stream(name="s", sources={"feed": read}, transform=f"{__name__}:{transform}", sink=sink)


def key_of(id_: str, k: float, m: Any) -> Key:
    """As Spark compares it: one NaN, one zero, and a number however many places it was written with."""
    return id_, "nan" if math.isnan(k) else repr(k + 0.0), f"{float(m):.2f}"


def draw(chance: random.Random, kind: str, count: int) -> list[Row]:
    drawn: dict[Key, Row] = {}
    for number in range(count):
        row = {
            "id": chance.choice(["", " ", "a", "A", "a "]),
            "k": chance.choice(["NaN", "-0.0", "0.0", "1.5"]),
            "m": chance.choice(["1", "1.0", "1.00", "-0.5"]),
            "ts": chance.choice([-0.0, 0.0, 1.0, 2.0, 3.0, 4.5]),
            "x": chance.randint(0, 3),
            "y": chance.randint(0, 3),
            "op": chance.choice("UUUD"),
        }
        key = key_of(row["id"], float(row["k"]), row["m"])
        # A merge takes each key once.
        drawn[key if kind == "merge_on" else (*key[:2], f"{number}")] = row
    return list(drawn.values())


def check(lab: Lab, kind: str, batches: Sequence[Sequence[Row]]) -> None:
    """Compare the table with all that has arrived: of each of its rows, its shape is told by itself."""
    arrived = defaultdict[Key, list[Row]](list)
    for row in (row for batch in batches for row in batch):
        arrived[key_of(row["id"], float(row["k"]), row["m"])].append(row)
    table = lab.spark_table("out")
    found = [
        json.loads(text)
        for (text,) in table.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect()
    ]
    rows_of = defaultdict[Key, list[Row]](list)
    for row in found:
        rows_of[key_of(row["id"], float(row["k"]), row["m"])].append(row)
    for key, rows in arrived.items():
        _check_key(kind, rows, rows_of.pop(key, []))
    assert rows_of == {}


def _check_key(kind: str, arrived: Sequence[Row], found: Sequence[Row]) -> None:
    if kind == "merge_on":
        assert len(found) == 1
        assert is_of(found[0], arrived[-1])
        return
    ends = sorted({row["ts"] + 0.0 for row in arrived})
    deleted = {row["ts"] for row in arrived if row["op"] == "D"}
    if kind == "type 1":
        kept = [] if ends[-1] in deleted else ends[-1:]
    else:
        kept = [ts for ts in ends if ts not in deleted]
        until = {ts: next((end for end in ends if end > ts), None) for ts in kept}
        assert {row["__START_AT"] + 0.0: row["__END_AT"] for row in found} == until
    assert len(found) == len(kept)
    for row in found:
        # Of equal changes, any; which, other tests tell.
        assert any(is_of(row, one) for one in arrived if one["ts"] == row.get("ts", row.get("__START_AT")))


def is_of(found: Row, row: Row) -> bool:
    """Whether a row of the table is what its shape makes of a row that arrived."""

    def fields(struct: Any) -> Any:
        if struct is None:
            return None
        inner = struct["in"]
        return (struct["x"], struct["y"], struct.get("z"), inner["p"], inner["q"], inner.get("r"))

    made = structs(row, found["shape"])
    pair = made if row["x"] else None
    return [fields(found["a"]), fields(found["b"]["k"]), [list(map(fields, each)) for each in found["c"]]] == [
        pair,
        pair,
        [[pair], []],
    ]


def live(lab: Lab, kind: str, seed: int, rounds: int = 5) -> None:
    chance, batches = random.Random(f"{kind} {seed}"), list[list[Row]]()
    (lab.root / "in").mkdir()
    transform = "as_first"
    for round_ in range(rounds):
        some = [draw(chance, kind, chance.randint(1, 7)) for _ in range(chance.randint(1, 2))]
        contents = {
            f"{number:04d}.json": "\n".join(map(json.dumps, batch)) for number, batch in enumerate(some, len(batches))
        }
        write_files(lab.root / "in", contents, first=len(batches))
        batches += some
        if round_ and chance.random() < 0.5:
            transform = chance.choice([*SHAPES])
            match = chance.choice(["Delta's merge", "Spark's commit", "Delta's merge out"])
            cut = Cut(match, chance.randint(1, 4), chance.choice(["before", "middle", "after"]))
            cut_run(lab, declared(kind, transform), cut)
        # Also another one than that which planned the batch.
        transform = chance.choice([*SHAPES]) if round_ else "as_first"
        lab.run(declared(kind, transform))
        check(lab, kind, batches)


@pytest.mark.parametrize("kind", ["type 2", *rarely("merge_on", "type 1")])
def test_a_life(lab: Lab, kind: str) -> None:
    live(lab, kind, 1, rounds=3)


@in_campaigns
@pytest.mark.parametrize("seed", range(2, 2 + CAMPAIGN))
@pytest.mark.parametrize("kind", ["merge_on", "type 1", "type 2"])
def test_more_lives(lab: Lab, kind: str, seed: int) -> None:
    live(lab, kind, seed)
