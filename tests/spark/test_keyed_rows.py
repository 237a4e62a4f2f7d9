"""Rows that are found by keys, and told apart by their order, where values and names are not what they seem."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.sinks.contract import Sink
from sluice.sinks.delta import changed as changed_rows
from sluice.sinks.delta import merged
from sluice.spark.partition_times import has_hours_twice, is_fixed
from sluice.spark.python_zone import TIME_ZONE
from sluice.spark_setting import spark_setting
from tests.campaign import rarely
from tests.spark.lab import Lab, rows, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_expired_transactions import EXPIRES, forget, set_property
from tests.spark.test_mended_files import cut_run
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

FEED = "id string, ts double, v string, p string, x int, y int, op string"
Kept = Literal[1, 2]


def same(feed: DataFrame) -> DataFrame:
    return feed


def declared(sink: Sink, transform: str = "same", schema: str = FEED, **its: Any) -> Stream:
    read = sources.files("in", format="json", schema=schema, max_files_per_batch=1)
    fixed = {"name": "s", "sources": {"feed": read}, "transform": f"{__name__}:{transform}", "sink": sink}
    return Stream(**fixed | its)


def changed(kept: Kept, partition_by: Any = (), **its: Any) -> Sink:
    fixed = {"keys": ["id"], "sequence_by": "ts", "stored_as_scd_type": kept}
    return sinks.delta("out", changes=sinks.changes(**fixed | its), partition_by=partition_by)


def arrive(lab: Lab, first: int, *batches: Iterable[Mapping[str, Any]]) -> None:
    """One file for each batch."""
    contents = {f"{n:04d}.json": "\n".join(map(json.dumps, batch)) for n, batch in enumerate(batches, first)}
    write_files(lab.root / "in", contents, first=first)


def held(lab: Lab, *columns: str) -> list[tuple[Any, ...]]:
    table = lab.spark_table("out")
    return rows(table.selectExpr(*columns) if columns else table)


def let_begin(lab: Lab, name: str) -> None:
    """Let a stream begin with a table that another one has written."""
    (lab.root / "home" / name).mkdir(parents=True)
    (lab.root / "home" / name / "first-run").touch()


def is_planned(lab: Lab, batch_id: int = 0) -> bool:
    return (lab.root / "home" / "s" / "generations" / "0001" / "offsets" / str(batch_id)).exists()


# What is kept of deletes, when the table's columns are widened.


def narrow(feed: DataFrame) -> DataFrame:
    return feed.selectExpr("CAST(id AS int) id", "CAST(ts AS int) ts", "v", "op")


def wide(feed: DataFrame) -> DataFrame:
    return feed.selectExpr("CAST(id AS double) id", "ts", "v", "op")


def widen(lab: Lab, place: str, *columns: str) -> None:
    table = f"delta.`{lab.root / place}`"
    lab.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    for column in columns:
        lab.spark.sql(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE double")


def change(key: str, ts: float, v: str, *, is_delete: bool = False) -> dict[str, Any]:
    return {"id": key, "ts": ts, "v": v, "op": "D" if is_delete else "U"}


@pytest.mark.parametrize("kept", [2, *rarely(1)])
def test_columns_that_are_widened(lab: Lab, kept: Kept) -> None:
    """What Sluice keeps beside them must follow: refused with the way to do it, before a batch is planned."""
    sink = changed(kept, apply_as_deletes="op = 'D'", except_columns=["op"])
    # Where no delete is known, what has them follows by itself.
    deletes = [change("7", 1, "", is_delete=True)] if kept == 2 else []
    arrive(lab, 0, [change("1", 1, "first"), *deletes])
    lab.run(declared(sink, "narrow"))
    widen(lab, "out", "id", "ts", *(["__START_AT"] if kept == 2 else []))
    arrive(lab, 1, [change("1", 2.7, "second"), change("1.5", 3.9, "", is_delete=True)], [change("1.5", 3.5, "late")])
    for place, columns in {"out": ["__END_AT"], "out_tombstones": ["id", "__SEQUENCE"]}.items() if deletes else ():
        said = rf"`{columns[0]}` is int in .*{place}, and is to have values of double"
        with pytest.raises(DeclarationError, match=said):
            lab.run(declared(sink, "wide"))
        assert not is_planned(lab, 1)
        widen(lab, place, *columns)
    lab.run(declared(sink, "wide"))
    first, late = (1.0, 1.0, "first", 1.0, 2.7), (1.5, 3.5, "late", 3.5, 3.9)
    assert held(lab) == ([(1.0, 2.7, "second")] if kept == 1 else [first, (1.0, 2.7, "second", 2.7, None), late])
    tombstones = rows(lab.spark_table("out_tombstones").select("id", "__SEQUENCE"))
    assert tombstones == [(1.5, 3.9), *([(7.0, 1.0)] if deletes else [])]


# Deletes of a batch that never counted.


@pytest.mark.parametrize("kept", [1, *rarely(2)])
def test_deletes_of_a_batch_that_never_counted(lab: Lab, kept: Kept) -> None:
    """Killed behind the deletes and before the table: they are nothing to another stream, until that batch is done."""
    its: dict[str, Any] = {"except_columns": ["op", "p", "x", "y"]}
    sink, wrong = changed(kept, apply_as_deletes="op = 'D'", **its), changed(kept, apply_as_deletes="op <> 'D'", **its)
    arrive(lab, 0, [change("a", 1, "one"), change("b", 5, "", is_delete=True)])
    lab.run(declared(sink))
    arrive(lab, 1, [change("a", 9, "nine"), change("b", 4, "late")])
    assert cut_run(lab, declared(wrong), Cut("Delta's merge out", 2, "before")) is not None
    # Of another project, or of one whose checkpoint was lost: here it is the first of its name.
    let_begin(lab, "n")
    lab.run(declared(sink, name="n"))
    one, nine, late = ("a", 1.0, "one"), ("a", 9.0, "nine"), ("b", 4.0, "late")
    assert held(lab, "id", "ts", "v") == ([nine] if kept == 1 else [one, nine, late])
    # It was no dead one: what it has noted of its batch is there yet, and counts from now on.
    lab.run(declared(wrong))
    arrive(lab, 2, [change("a", 8, "eight"), change("b", 3, "older")])
    lab.run(declared(sink, name="n"))
    if kept == 1:
        assert held(lab, "id", "ts", "v") == []
    else:
        ends = [("a", 1.0, 8.0), ("a", 8.0, 9.0), ("b", 3.0, 4.0)]
        assert held(lab, "id", "__START_AT", "__END_AT") == ends


def test_deletes_of_a_stream_that_the_table_forgot(lab: Lab) -> None:
    """They count as long as they are kept, also once the table lets nothing expire any more."""
    sink = changed(1, apply_as_deletes="op = 'D'", except_columns=["op", "p", "x", "y"])
    for number, its in enumerate((change("a", 1, "one"), change("b", 5, "", is_delete=True))):
        arrive(lab, number, [its])
        lab.run(declared(sink))
    forget(lab, "out")
    set_property(lab, "out", EXPIRES, None)
    for file in (lab.root / "in").iterdir():
        file.unlink()
    let_begin(lab, "n")
    arrive(lab, 2, [change("b", 4, "late"), change("c", 1, "new")])
    lab.run(declared(sink, name="n"))
    assert held(lab, "id") == [("a",), ("c",)]


def test_deletes_of_the_first_batch_over_a_table(lab: Lab) -> None:
    """Killed behind them: what the batch has noted itself is no end of a row that the table must know of."""
    sink = changed(2, apply_as_deletes="op = 'D'", except_columns=["op", "p", "x", "y"])
    begun = {"id": ["a"], "ts": [1.0], "v": ["one"], "__START_AT": [1.0], "__END_AT": pa.array([None], pa.float64())}
    write_deltalake(str(lab.root / "out"), pa.table(begun))
    arrive(lab, 0, [change("a", 9, "", is_delete=True)])
    assert cut_run(lab, declared(sink), Cut("Delta's merge out", 2, "before")) is not None
    assert rows(lab.spark_table("out_tombstones").select("id")) == [("a",)]
    lab.run(declared(sink))
    assert held(lab, "id", "__START_AT", "__END_AT") == [("a", 1.0, 9.0)]


# Texts that Delta keeps as nulls.


@pytest.mark.parametrize("kind", ["merge_on", "changes"])
def test_texts_that_a_partition_has_not(lab: Lab, kind: str) -> None:
    """Their rows would never be found again, so they count as nulls; also where the table was partitioned before."""
    transform, lost = ("with_bytes", 4) if kind == "merge_on" else ("same", 3)
    if kind == "merge_on":
        sink: Sink = sinks.delta("out", merge_on=["id", "p"], partition_by="p")
    else:
        columns = "id STRING, ts DOUBLE, v STRING, p STRING, x INT, y INT, op STRING"
        lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'out'}` ({columns}) USING delta PARTITIONED BY (p)")
        sink = changed(1, keys=["id", "p"])
    texts = ["a", "", "__HIVE_DEFAULT_PARTITION__", None]
    arrive(lab, 0, [{"id": "a", "ts": 1, "p": text} for text in texts])
    with pytest.raises(DeclarationError, match=rf"{lost} of 4 rows .* null in `id`, `p` \(or an empty text, .* in `p`"):
        lab.run(declared(sink, transform))


def with_bytes(feed: DataFrame) -> DataFrame:
    return feed.selectExpr("id", "CASE WHEN p = 'a' THEN X'ff' ELSE CAST(p AS binary) END AS p")


# Fields of structs, in another order.


def xy(feed: DataFrame) -> DataFrame:
    return _nested(feed, "named_struct('x', x, 'y', y)")


def yx(feed: DataFrame) -> DataFrame:
    return _nested(feed, "named_struct('y', y, 'x', x)")


def xz(feed: DataFrame) -> DataFrame:
    return _nested(feed, "named_struct('x', x, 'z', y)")


def with_map(feed: DataFrame) -> DataFrame:
    return feed.selectExpr("id", "from_json(v, 'map<string, struct<x: int, y: int>>') AS m")


def with_turned_map(feed: DataFrame) -> DataFrame:
    return feed.selectExpr("id", "from_json(v, 'map<string, struct<y: int, x: int>>') AS m")


def _nested(feed: DataFrame, pair: str) -> DataFrame:
    values = (
        f"{pair} a",
        f"map('k', {pair}) b",
        f"array(array({pair})) c",
        f"map('k', array(named_struct('o', {pair}))) d",
    )
    return feed.selectExpr("id", "ts", *values)


READ = ("id", "a.x AS a", "b['k'].x AS b", "c[0][0].x AS c", "d['k'][0].o.x AS d")


@pytest.mark.parametrize("kind", ["merge_on", "type 2", *rarely("type 1")])
def test_fields_in_another_order(lab: Lab, kind: str) -> None:
    """Each is found by its name, wherever it lies; of equal changes, the same counts; other names are refused."""
    sink = sinks.delta("out", merge_on="id") if kind == "merge_on" else changed(1 if kind == "type 1" else 2)
    arrive(lab, 0, [{"id": "a", "ts": 1, "x": 1, "y": 2}, {"id": "c", "ts": 1, "x": 1, "y": 9}])
    lab.run(declared(sink, "xy"))
    # By places, (1, 9) would be less than (2, 0) here, and greater there.
    arrive(lab, 1, [{"id": "b", "ts": 1, "x": 1, "y": 2}, {"id": "c", "ts": 1, "x": 2, "y": 0}])
    lab.run(declared(sink, "yx"))
    assert held(lab, *READ) == [("a", 1, 1, 1, 1), ("b", 1, 1, 1, 1), ("c", 2, 2, 2, 2)]
    arrive(lab, 2, [{"id": "b", "ts": 2, "x": 1, "y": 2}])
    with pytest.raises(DeclarationError, match=r"b\.value\.z: not in the table"):
        lab.run(declared(sink, "xz"))
    assert not is_planned(lab, 2)


def test_maps_with_a_key_twice(lab: Lab) -> None:
    """Spark reads such a map of JSON, and makes none: that other fields stand first in its values fails no batch."""
    sink = sinks.delta("out", merge_on="id")
    arrive(lab, 0, [{"id": "a", "v": '{"k": {"x": 1, "y": 2}}'}])
    lab.run(declared(sink, "with_map"))
    arrive(lab, 1, [{"id": "b", "v": '{"k": {"x": 3, "y": 4}, "k": {"x": 5, "y": 6}}'}])
    lab.run(declared(sink, "with_turned_map"))
    assert held(lab, "id", "map_values(m).x AS x", "map_values(m).y AS y") == [("a", [1], [2]), ("b", [3, 5], [4, 6])]


def no_y(feed: DataFrame) -> DataFrame:
    return _nested(feed, "named_struct('x', x)")


def narrow_yx(feed: DataFrame) -> DataFrame:
    return _nested(feed, "named_struct('y', CAST(y AS smallint), 'x', CAST(x AS tinyint))")


@pytest.mark.parametrize("kind", ["merge_on", "type 2", *rarely("type 1")])
def test_fields_that_only_the_table_has(lab: Lab, kind: str) -> None:
    """A struct is one value: without a word the result must have all of it; with one, what it lacks is null."""
    kept: Kept = 1 if kind == "type 1" else 2
    plain = sinks.delta("out", merge_on="id") if kind == "merge_on" else changed(kept)
    arrive(lab, 0, [{"id": name, "ts": 1, "x": 1, "y": 2} for name in "ab"])
    lab.run(declared(sinks.delta("out") if kind == "merge_on" else plain, "xy"))
    arrive(lab, 1, [{"id": name, "ts": 2, "x": 3, "y": 4} for name in "bc"])
    if kind == "merge_on":
        let_begin(lab, "n")
        # What a stream itself has written before, it is told of as gone; this one is another.
        with pytest.raises(DeclarationError, match=r"the table has a field `a\.y`, and the result has not"):
            lab.run(declared(plain, "no_y", name="n"))
        assert not (lab.root / "home" / "n" / "generations" / "0001" / "offsets" / "0").exists()
    follows = replace(plain, schema_evolution="add")
    lab.run(declared(follows, "no_y", name="n" if kind == "merge_on" else "s"))
    every = ("id", *(f"{value}.{name}" for value in ("a", "b['k']", "c[0][0]", "d['k'][0].o") for name in "xy"))
    first, second = (1, 2) * 4, (3, None) * 4
    older = [("b", *first)] if kept == 2 and kind != "merge_on" else []
    # The other stream has read the first file, too.
    untouched = ("a", *((1, None) * 4 if kind == "merge_on" else first))
    assert held(lab, *every) == [untouched, *older, ("b", *second), ("c", *second)]


@pytest.mark.parametrize("kind", ["merge_on", *rarely("type 1")])
def test_fields_that_the_table_gains_meanwhile(lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A struct is whole or not by the table as it is when a batch is written: nothing becomes null for that."""
    sink, writer = (sinks.delta("out", merge_on="id"), merged) if kind == "merge_on" else (changed(1), changed_rows)
    arrive(lab, 0, [{"id": "a", "ts": 1, "x": 1, "y": 2}])
    lab.run(declared(sink, "xy"))
    check = writer.check_keys

    def beside(*args: Any, **how: Any) -> int:
        lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` ADD COLUMNS (a.z int)")
        return check(*args, **how)

    monkeypatch.setattr(writer, "check_keys", beside)
    arrive(lab, 1, [{"id": "a", "ts": 2, "x": 3, "y": 4}])
    with pytest.raises(DeclarationError, match=r"the table has a field `a\.z`, and the result has not"):
        lab.run(declared(sink, "xy"))
    assert held(lab, *READ) == [("a", 1, 1, 1, 1)]
    monkeypatch.undo()
    lab.run(declared(replace(sink, schema_evolution="add"), "xy"))
    assert held(lab, *READ) == [("a", 3, 3, 3, 3)]


@pytest.mark.parametrize("kind", ["merge_on", "type 1", "dropped rows"])
def test_narrower_fields_in_another_order(lab: Lab, kind: str) -> None:
    """They are put in order, and then cast: each value is found under its name."""
    its: dict[str, Any] = {}
    if kind == "dropped rows":
        check = row("expect_column_values_to_not_be_null", policy="drop", column="id")
        (lab.root / "suite.json").write_bytes(document(check))
        its["quality"] = "suite.json"
    sink = {"merge_on": sinks.delta("out", merge_on="id"), "type 1": changed(1), "dropped rows": sinks.delta("out")}[
        kind
    ]
    for number, (name, transform) in enumerate({"a": "xy", "b": "narrow_yx"}.items()):
        arrive(lab, number, [{"id": name, "ts": 1, "x": 1, "y": 2}])
        lab.run(declared(sink, transform, **its))
    assert held(lab, *READ) == [("a", 1, 1, 1, 1), ("b", 1, 1, 1, 1)]


def test_fields_of_rows_that_are_appended(lab: Lab) -> None:
    """By their names as well, where a suite drops rows: then Spark writes a batch, and no stream."""
    check = row("expect_column_values_to_be_in_set", policy="drop", column="id", value_set=["a"])
    (lab.root / "suite.json").write_bytes(document(check))
    for number, transform in enumerate(["xy", "yx"]):
        arrive(lab, number, [{"id": name, "ts": 1, "x": 1, "y": 2} for name in "ab"])
        lab.run(declared(sinks.delta("out"), transform, quality="suite.json"))
    assert held(lab, *READ) == [("a", 1, 1, 1, 1)] * 2


# Changes of one key and one sequence.


def of_each_type(feed: DataFrame) -> DataFrame:
    """A column for each type, which only the keys of its name have."""
    kinds = {
        "time": "map('k', CAST(v AS timestamp))",
        "clock": "map('k', CAST(v AS timestamp_ntz))",
        "zero": "CAST(v AS double)",
        "narrow": "array(named_struct('f', CAST(v AS float)))",
        "binary": "map(CAST(v AS binary), 1)",
        "within": "array(map('k', CAST(v AS double)))",
        "variant": "to_variant_object(array(CAST(v AS decimal(2, 1))))",
        "numbers": "CASE WHEN v = '1' THEN parse_json('1.5') ELSE CAST(1.5D AS variant) END",
    }
    made = [f"CASE WHEN id LIKE '{name} %' THEN {value} END `{name}`" for name, value in kinds.items()]
    return feed.selectExpr("id", "ts", "x", "CASE WHEN id LIKE 'text %' THEN p END p", *made)


EQUAL: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "time": ({"v": "2026-01-01T00:00:00.123456Z"}, {"v": "2026-01-01T00:00:00.123999Z"}),
    "clock": ({"v": "2026-01-01T00:00:00.123456"}, {"v": "2026-01-01T00:00:00.123999"}),
    "zero": ({"v": "-0.0", "x": 9}, {"v": "0.0", "x": 1}),
    "narrow": ({"v": "-0.0", "x": 9}, {"v": "0.0", "x": 1}),
    "binary": ({"v": "a"}, {"v": "b"}),
    "within": ({"v": "NaN"}, {"v": "1e308"}),
    "variant": ({"v": "0.1"}, {"v": "0.2"}),
    "numbers": ({"v": "1"}, {"v": "2"}),
    "text": ({"p": "", "x": 1}, {"p": None, "x": 2}),
    "sequence": ({"ts": -0.0, "x": 1}, {"ts": 0.0, "x": 2}),
}
"""Two changes each that are not the same, and that something takes for equal."""


@pytest.mark.parametrize("kept", [1, *rarely(2)])
def test_whichever_arrives_first(lab: Lab, kept: Kept) -> None:
    """Of two changes with one sequence, the same one counts in either order; also a row of before the stream."""
    told = [
        [{"ts": 1, "id": f"{name} {way}"} | pair[(way + batch) % 2] for name, pair in EQUAL.items() for way in (0, 1)]
        for batch in (0, 1)
    ]
    arrive(lab, 0, *told)
    lab.run(declared(changed(kept, partition_by="p"), "of_each_type"))
    six = "yyyy-MM-dd HH:mm:ss.SSSSSS"
    told_as = f"map('timestampFormat', '{six}', 'timestampNTZFormat', '{six}')"
    shown = lab.spark_table("out").selectExpr(
        "split(id, ' ')[0] AS name",
        f"to_json(struct(* EXCEPT (id, binary)), {told_as}) AS row",
        "schema_of_variant(numbers) AS kind",
        "CAST(map_keys(binary)[0] AS string) AS key",
    )
    found = shown.collect()
    assert len(found) == 2 * len(EQUAL)
    counts = {name: {tuple(each) for each in found if each.name == name} for name in EQUAL}
    assert {name: len(ways) for name, ways in counts.items()} == dict.fromkeys(EQUAL, 1)


# Names of columns.


def test_any_name_of_a_column(lab: Lab) -> None:
    """None is one that a merge uses itself, also over a table that was here before the stream."""
    names = ["newest", "is_row", "count", "rows", "s", "t", "k0", "each0"]
    known = {name: pa.array(["k"]) for name in names}
    schema = ", ".join(f"`{name}` string" for name in names)
    write_deltalake(str(lab.root / "out"), pa.table(known | {"ts": pa.array([1.0])}))
    history = known | {"__START_AT": pa.array([1.0]), "__END_AT": pa.array([None], pa.float64())}
    write_deltalake(str(lab.root / "history"), pa.table(history))
    arrive(lab, 0, [dict.fromkeys(names, "k") | {"ts": 2.0}])
    lab.run(declared(sinks.delta("out", merge_on=names), schema=f"{schema}, ts double"))
    assert rows(lab.table("out")) == [(*["k"] * len(names), 2.0)]
    changes = sinks.changes(keys=names, sequence_by="ts", stored_as_scd_type=2, except_columns=["ts"])
    lab.run(declared(sinks.delta("history", changes=changes), schema=f"{schema}, ts double", name="h"))
    assert [found[-2:] for found in rows(lab.table("history"))] == [(1.0, 2.0), (2.0, None)]


# Times that partition.


def times(feed: DataFrame) -> DataFrame:
    return feed.selectExpr("id", "CAST(v AS timestamp) AS p")


def test_hours_that_come_twice(lab: Lab) -> None:
    """Where a zone has them, a time partitions neither a table, nor one that was here before, nor files."""
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'old'}` (id STRING, p TIMESTAMP) USING delta PARTITIONED BY (p)")
    at = ["2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z"]
    arrive(lab, 0, [{"id": text, "v": text} for text in at])
    check = row("expect_column_values_to_not_be_null", policy="quarantine", column="id")
    (lab.root / "suite.json").write_bytes(document(check))
    refused = (
        *(sinks.delta("new", partition_by="P"), sinks.delta("old"), sinks.delta("old", merge_on="id")),
        sinks.files("files", format="parquet", partition_by="p"),
    )
    with spark_setting(lab.spark, TIME_ZONE, "Europe/Berlin"):
        for sink in refused:
            with pytest.raises(DeclarationError, match=r"by `p`, of type timestamp, .* zone is Europe/Berlin"):
                lab.run(declared(sink, "times"))
        kept = declared(sinks.delta("out"), "times", quality="suite.json", quarantine=sinks.delta("old"))
        with pytest.raises(DeclarationError, match=r"by `p`, of type timestamp, .* zone is Europe/Berlin"):
            lab.run(kept)
        assert not is_planned(lab)
    with spark_setting(lab.spark, TIME_ZONE, "+05:30"):
        lab.run(declared(sinks.delta("out", merge_on="p", partition_by="p"), "times"))
    assert {
        found.id: found.at for found in lab.spark_table("out").selectExpr("id", "unix_seconds(p) AS at").collect()
    } == {at[0]: 1761438600, at[1]: 1761442200}


def test_zones_with_hours_that_come_twice(lab: Lab) -> None:
    """Java, by which Spark names the folders, says the same of each zone that Python knows."""
    java: Any = lab.spark._jvm
    own = {"+05:30", "GMT-3", "UTC+01:00", "Z", "SystemV/AST4", "Asia/Nowhere"}
    known = {str(zone) for zone in java.java.time.ZoneId.getAvailableZoneIds()} | own - {"Asia/Nowhere"}
    taken = {zone for zone in known | own if not has_hours_twice(zone)}
    rules = {zone: java.java.time.ZoneId.of(zone).getRules() for zone in known}
    put_back = {zone for zone in known if is_put_back(rules[zone], java.java.time.Instant.EPOCH)}
    assert taken & put_back == set()
    assert known - taken - put_back == {zone for zone in known if zone.startswith("SystemV/")} - put_back
    assert {zone for zone in known if is_fixed(zone) and not rules[zone].isFixedOffset()} == set()
    assert {"UTC", "Etc/UTC", "GMT", "Etc/GMT+5", "+05:30", "GMT-3", "UTC+01:00", "Z", "Asia/Kolkata"} <= taken
    assert {
        "Europe/Berlin",
        "Asia/Pyongyang",
        "America/Sao_Paulo",
        "Africa/Casablanca",
        "Asia/Nowhere",
    } & taken == set()


def is_put_back(rules: Any, since: Any) -> bool:
    while (change := rules.nextTransition(since)) is not None:
        if change.isOverlap():
            return True
        since = change.getInstant()
    return False
