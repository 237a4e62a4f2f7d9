"""Merges in every kind of run, and into tables of every kind: what they leave is what one batch over all would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, LeaseTakenError, RefusedError
from sluice.planning.planner import Limits
from sluice.runs.stop import StopEvent
from sluice.sinks.contract import Sink, SinkBatch
from sluice.spark.left_behind import forget_tables
from sluice.storage import Storage
from sluice.testing import Bench, Moment, bench
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, rows, write_files
from tests.spark.power_cuts import Cut, killed, let_leases_run_out
from tests.spark.test_live_runs import live, run_live

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

__all__ = ["bench"]

SCHEMA = "id string, ts bigint, v string, op string"
FEED: list[list[tuple[str, int, str, str]]] = [
    [("a", 5, "five", "U"), ("b", 4, "b", "U"), ("d", 1, "d", "U")],
    [("a", 7, "", "D"), ("b", 6, "six", "U"), ("c", 9, "", "D")],
    [("a", 6, "late", "U"), ("b", 5, "late", "U"), ("c", 8, "late", "U"), ("d", 2, "two", "U")],
    [("a", 8, "back", "U"), ("b", 4, "", "D")],
]
"""Of each batch, the changes: key, sequence, value, and whether it is a delete."""
NEWEST = [("a", 8, "back"), ("b", 6, "six"), ("d", 2, "two")]
EVER = [
    *[("a", 5, "five", 5, 6), ("a", 6, "late", 6, 7), ("a", 8, "back", 8, None)],
    *[("b", 5, "late", 5, 6), ("b", 6, "six", 6, None), ("c", 8, "late", 8, 9)],
    *[("d", 1, "d", 1, 2), ("d", 2, "two", 2, None)],
]
LAST = [("a", 8, "back", "U"), ("b", 4, "", "D"), ("c", 8, "late", "U"), ("d", 2, "two", "U")]
"""What is newest by its arrival."""


def changed(kept: int) -> Sink:
    return sinks.delta(
        "out",
        changes=sinks.changes(
            keys="id", sequence_by="ts", apply_as_deletes="op = 'D'", stored_as_scd_type=kept, except_columns="op"
        ),
    )


WAYS: Mapping[str, tuple[Sink, list[Any]]] = {
    "by keys": (sinks.delta("out", merge_on="id"), LAST),
    "type 1": (changed(1), NEWEST),
    "type 2": (changed(2), EVER),
}
SOME = ["type 2", *rarely("by keys", "type 1")]


def same(feed: DataFrame) -> DataFrame:
    return feed


def declared(sink: Sink, **its: Any) -> Stream:
    source = sources.files("in", format="json", schema=SCHEMA, max_files_per_batch=1)
    known: dict[str, Any] = {"name": "s", "sources": {"feed": source}, "sink": sink}
    return Stream(**known | ({"transform": f"{__name__}:same"} if "sql" not in its else {}) | its)


def arrive(lab: Lab, *numbers: int) -> None:
    """One file for each of these batches of the feed."""
    for number in numbers:
        lines = (dict(zip(("id", "ts", "v", "op"), change, strict=True)) for change in FEED[number])
        write_files(lab.root / "in", {f"{number:04d}.json": "\n".join(map(json.dumps, lines))}, first=number)


def held(lab: Lab) -> list[tuple[Any, ...]]:
    return rows(lab.spark_table("out"))


@pytest.mark.parametrize("way", ["by keys", "type 2", *rarely("type 1")])
@pytest.mark.parametrize("moment", ["after", *rarely("before", "middle")])
def test_live(lab: Lab, way: str, moment: Any) -> None:
    """What arrives while it is at work is merged; killed there, a planned run goes on, and a drained one."""
    sink, expected = WAYS[way]
    stream = declared(sink)
    arrive(lab, 0)
    stop = StopEvent()
    steps = {"after_1": lambda: arrive(lab, 1), "after_2": stop.set}
    record = run_live(lab, stream, live("2m", "processing-time=100ms"), stop, **steps)
    assert [batch.was_in_sink for batch in record.batches] == [False, False]
    arrive(lab, 2)
    killed(lab, stream, Cut("Delta's merge out", 1, moment), live("30s", "processing-time=0s"))
    for leases in (lab.root / "home").rglob("leases"):
        leases.rename(leases.with_name("earlier"))
    arrive(lab, 3)
    record = lab.run(stream, Limits(strategy="drain"))
    assert [batch.was_in_sink for batch in record.batches] == [moment == "after", False]
    assert held(lab) == expected


def test_a_trigger_that_passes_rows_on(lab: Lab) -> None:
    """It has no batches to merge: refused before anything is written."""
    numbers = {"feed": sources.other("rate")}
    with pytest.raises(DeclarationError, match="does not write a sink of kind `delta`"):
        lab.plan(declared(WAYS["by keys"][0], sources=numbers), live("30s", "continuous=1s"))


@pytest.mark.parametrize("way", SOME)
def test_in_a_bench(bench: Bench, way: str) -> None:
    """Killed at each of its moments, once for each batch."""
    sink, expected = WAYS[way]
    bench.open(declared(sink))
    moments: tuple[Moment, ...] = get_args(Moment)
    for batch, moment in zip(FEED, [*moments[:1], *moments[2:]], strict=True):
        bench.add("feed", batch)
        bench.crash(at=moment)
        bench.restart()
    assert bench.run().status == "skipped"
    bench.check_rows(expected)


KINDS = {
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
    "column mapping": {
        "delta.columnMapping.mode": "name",
        "delta.minReaderVersion": "2",
        "delta.minWriterVersion": "5",
    },
    "change feed and row ids": {"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"},
    "clean-up of transactions": {"delta.setTransactionRetentionDuration": "interval 1 days"},
}


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *[("deletion vectors", "type 2"), ("column mapping", "by keys")],
        *rarely(*((kind, way) for kind in KINDS for way in WAYS)),
    ],
)
def test_tables_of_every_kind(lab: Lab, kind: str, way: str) -> None:
    """They get the property between two runs; a kill behind a merge is known by each of them."""
    sink, expected = WAYS[way]
    stream = declared(sink)
    arrive(lab, 0)
    lab.run(stream)
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in KINDS[kind].items())
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` SET TBLPROPERTIES ({properties})")
    if kind == "column mapping":
        lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` RENAME COLUMN v TO w")
        lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` RENAME COLUMN w TO v")
    arrive(lab, 1)
    killed(lab, stream, Cut("Delta's merge out", 1 if way == "by keys" else 2, "after"))
    for leases in (lab.root / "home").rglob("leases"):
        leases.rename(leases.with_name("earlier"))
    arrive(lab, 2, 3)
    record = lab.run(stream)
    assert [batch.was_in_sink for batch in record.batches] == [True, False, False]
    assert held(lab) == expected


def test_declared_in_sql(lab: Lab) -> None:
    """Keys are looked at as those of a function are; and what may leave the result is."""
    counted = "SELECT id, count(*) AS n, max(ts) AS ts FROM stream(feed) GROUP BY id"
    query = f"WITH counted AS ({counted}) SELECT * FROM counted WHERE id <> 'z'"
    stream = declared(sinks.delta("out", merge_on="id"), sql=query, output_mode="update")
    arrive(lab, 0, 1)
    lab.run(stream)
    with pytest.raises(DeclarationError, match="reads what it computes: in output mode `update`, a row that is not in"):
        lab.run(replace(stream, name="t", sink=sinks.delta("t", merge_on="id"), sql=f"{counted} HAVING count(*) < 2"))
    arrive(lab, 2, 3)
    lab.run(stream)
    assert held(lab) == [("a", 4, 8), ("b", 4, 6), ("c", 2, 9), ("d", 2, 2)]


def test_a_driver_that_wakes_up(lab: Lab) -> None:
    """By keys, the table itself passes over what it writes; of changes, it is not given up while it may be at work."""
    stream = declared(WAYS["by keys"][0])
    arrive(lab, 0)
    killed(lab, stream, Cut("Spark's save out", 1, "before"))
    let_leases_run_out(lab.root / "home")
    record = lab.run(stream)
    arrive(lab, 1)
    lab.run(stream)
    before, version = held(lab), DeltaTable(str(lab.root / "out")).version()
    late = lab.spark.createDataFrame([("a", 0, "late", "U"), ("z", 0, "late", "U")], SCHEMA)
    sink: Any = lab.project.resolve(stream).sink
    for batch_id in (0, 1):
        batch = SinkBatch(record.query_id or "", batch_id, "append", 1)
        sink.write_batch(late, batch, load_function=None, storage=Storage())
    assert (held(lab), DeltaTable(str(lab.root / "out")).version()) == (before, version)

    other = declared(changed(1), name="t", sources={"feed": sources.files("in", format="json", schema=SCHEMA)})
    other = replace(other, sink=replace(changed(1), path="t"))  # type: ignore[type-var]
    killed(lab, other, Cut("Delta's merge t_tombstones", 1, "before"))
    let_leases_run_out(lab.root / "home")
    with pytest.raises(LeaseTakenError, match="it may still write, and this sink can't refuse a second writer"):
        lab.run(other)


@pytest.mark.parametrize("way", SOME)
def test_another_table_at_its_place(lab: Lab, way: str) -> None:
    """Refused, as of any table that a stream writes: made anew, and brought back from before its newest batch."""
    stream = declared(WAYS[way][0])
    arrive(lab, 0)
    lab.run(stream)
    arrive(lab, 1)
    lab.spark.sql(f"CREATE OR REPLACE TABLE delta.`{lab.root / 'out'}` USING delta AS SELECT 1 AS id")
    with pytest.raises((RefusedError, DeclarationError), match="there is another one now"):
        lab.run(stream)
    (lab.root / "out").rename(lab.root / "aside")
    forget_tables(lab.spark)
    with pytest.raises(RefusedError) as refused:
        lab.run(stream)
    read_remedy(refused.value, "SINK_REPLACED", "restore the table")


FOREIGN = {
    "shared keys": ("id STRING, ts BIGINT, v STRING", "by keys", "has rows that share `id`"),
    "spaces": (
        "id CHAR(3), ts BIGINT, v STRING",
        "by keys",
        r"`id`, which is string in the result and char\(3\) in the",
    ),
    "no column of the key": ("ts BIGINT, v STRING", "by keys", "by `id`, which is no column of the table"),
    "no history": ("id STRING, ts BIGINT, v STRING", "type 2", "by `__START_AT`, which is no column of the table"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_tables_that_were_here_before(lab: Lab, case: str) -> None:
    """What others have put into one may be no table by keys: nothing is merged."""
    columns, way, said = FOREIGN[case]
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'out'}` ({columns}) USING delta")
    names = columns.replace(" STRING", "").replace(" BIGINT", "").replace(" CHAR(3)", "")
    row = ", ".join({"id": "'a'", "ts": "1", "v": "'v'"}[name] for name in names.split(", "))
    lab.spark.sql(f"INSERT INTO delta.`{lab.root / 'out'}` ({names}) VALUES ({row}), ({row})")
    arrive(lab, 0)
    sink: Any = WAYS[way][0]
    with pytest.raises(DeclarationError, match=said):
        lab.run(declared(replace(sink, schema_evolution="add") if way == "by keys" else sink))
    assert len(held(lab)) == 2


@pytest.mark.parametrize("what", ["a table", "files"])
def test_what_lies_where_deletes_are_noted(lab: Lab, what: str) -> None:
    """Another's table, or files: neither is written over."""
    place = lab.root / "out_tombstones"
    if what == "a table":
        lab.spark.range(3).write.format("delta").save(str(place))
    else:
        write_files(place, {"notes.txt": "mine"})
    arrive(lab, 0)
    with pytest.raises((DeclarationError, RefusedError), match=r"another table is where|no Delta log"):
        lab.run(declared(changed(1)))
