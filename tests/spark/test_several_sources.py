"""Streams of several sources: whose line is which, in Spark's plan and in the checkpoint.

Spark numbers sources by the analysed plan, not by the declaration; a wrong guess would read one source's offsets as
another's.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from tests.remedies import read_remedy
from tests.spark.lab import (
    Lab,
    append_rows,
    available_now,
    bounded,
    ids,
    log_bytes,
    log_of,
    names,
    offset_lines,
    reader,
    snapshot,
    write_numbers,
)

pytestmark = pytest.mark.spark


def a_then_b(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.union(b)


def b_then_a(a: DataFrame, b: DataFrame) -> DataFrame:
    return b.union(a)


def a_with_b(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.join(b, "id")


def b_with_a(a: DataFrame, b: DataFrame) -> DataFrame:
    return b.join(a, "id")


def only_a(a: DataFrame, b: DataFrame) -> DataFrame:
    return a


def a_twice(a: DataFrame) -> DataFrame:
    return a.union(a.selectExpr("id + 1000 AS id"))


def a_b_a(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.union(b).union(a.selectExpr("id + 1000 AS id"))


def a_with_a(a: DataFrame) -> DataFrame:
    return a.alias("left").join(a.alias("right"), "id")


def folder(lab: Lab, name: str, count: int, first: int = 0) -> sources.files:
    """A source of `count` files, one row each and one per batch."""
    (lab.root / name).mkdir(exist_ok=True)
    write_numbers(lab.root / name, count, first=first)
    return sources.files(name, format="json", schema="id bigint", max_files_per_batch=1)


def declared(transform: str, given: dict[str, Any], **others: Any) -> Stream:
    sink = sinks.files("out", format="parquet")
    return Stream(name="s", sources=given, transform=f"{__name__}:{transform}", sink=sink, **others)


def written(lab: Lab) -> list[int]:
    return ids(lab.spark.read.parquet(str(lab.root / "out")))


def plain(lab: Lab, name: str) -> DataFrame:
    return reader(lab.spark, maxFilesPerTrigger=1).json(str(lab.root / name))


@pytest.mark.parametrize(
    ("transform", "order", "expected"),
    [
        (a_then_b, "ab", [0, 1, 2, 2, 3]),
        (b_then_a, "ba", [0, 1, 2, 2, 3]),
        (a_with_b, "ab", [2]),
        (b_with_a, "ba", [2]),
    ],
)
def test_two_sources_of_files(lab: Lab, transform: Any, order: str, expected: list[int]) -> None:
    """Offsets and logs are byte for byte those that Spark writes for the same query, and the rows come once."""
    given = {"a": folder(lab, "a", 3), "b": folder(lab, "b", 2, first=2)}
    stream = declared(transform.__name__, given)
    lab.run(stream)
    available_now(transform(plain(lab, "a"), plain(lab, "b")), lab.root / "spark")
    for log in ("offsets", "sources/0", "sources/1"):
        assert log_bytes(lab.checkpoint(stream) / log) == log_bytes(lab.root / "spark" / log)
    assert f"/{order[0]}/" in log_of(lab.checkpoint(stream), 0)[0][0]
    assert written(lab) == expected


@pytest.mark.parametrize(("transform", "files_line"), [("a_then_b", 0), ("b_then_a", 1)])
def test_files_and_a_table(lab: Lab, transform: str, files_line: int) -> None:
    """A Delta table beside files keeps its own line, and the files keep the log that is numbered as theirs."""
    append_rows(lab.spark, lab.root / "table", [100, 101], files=2)
    stream = declared(transform, {"a": folder(lab, "a", 3), "b": sources.delta("table", max_files_per_batch=1)})
    record = lab.run(stream)
    lines = offset_lines(lab.checkpoint(stream))
    assert [line[files_line]["logOffset"] for line in lines.values()] == [0, 1, 2]
    versions = [line[1 - files_line]["reservoirVersion"] for line in lines.values()]
    assert versions == [0, 1, 1]
    assert [batch.input_rows for batch in record.batches] == [2, 2, 1]
    assert [path.name for path in (lab.checkpoint(stream) / "sources").iterdir()] == [str(files_line)]
    assert written(lab) == [0, 1, 2, 100, 101]


def test_a_source_that_has_nothing(lab: Lab) -> None:
    """A source without an offset yet has `-`; one that has nothing new repeats its offset."""
    stream = declared("a_then_b", {"a": folder(lab, "a", 1), "b": folder(lab, "b", 0)})
    lab.run(stream)
    folder(lab, "b", 2, first=10)
    lab.run(stream)
    folder(lab, "a", 1, first=1)
    lab.run(stream)
    offsets = [
        [line and line["logOffset"] for line in lines] for lines in offset_lines(lab.checkpoint(stream)).values()
    ]
    assert offsets == [[0, None], [0, 0], [0, 1], [1, 1]]
    assert written(lab) == [0, 1, 10, 11]


def test_a_source_that_is_not_used(lab: Lab) -> None:
    """A source that the transform leaves out has no line, and is not read."""
    stream = declared("only_a", {"a": folder(lab, "a", 2), "b": folder(lab, "b", 3, first=10)})
    lab.run(stream)
    assert offset_lines(lab.checkpoint(stream)) == {0: [{"logOffset": 0}], 1: [{"logOffset": 1}]}
    assert lab.run(stream).status == "skipped"
    assert written(lab) == [0, 1]


def test_a_source_twice_in_a_union(lab: Lab) -> None:
    """It has two lines and one log, as with Spark alone, and each of its rows comes once on each side."""
    stream = declared("a_twice", {"a": folder(lab, "a", 3)})
    record = lab.run(stream)
    available_now(a_twice(plain(lab, "a")), lab.root / "spark")
    assert record.status == "succeeded"
    for log in ("offsets", "sources/0"):
        assert log_bytes(lab.checkpoint(stream) / log) == log_bytes(lab.root / "spark" / log)
    assert written(lab) == [0, 1, 2, 1000, 1001, 1002]


def test_a_source_twice_around_another(lab: Lab) -> None:
    """Three lines, two logs: the third line is the first source's again."""
    stream = declared("a_b_a", {"a": folder(lab, "a", 2), "b": folder(lab, "b", 1, first=10)})
    record = lab.run(stream)
    available_now(a_b_a(plain(lab, "a"), plain(lab, "b")), lab.root / "spark")
    assert record.status == "succeeded"
    for log in ("offsets", "sources/0", "sources/1"):
        assert log_bytes(lab.checkpoint(stream) / log) == log_bytes(lab.root / "spark" / log)
    assert written(lab) == [0, 1, 10, 1000, 1001]


def test_a_join_of_a_source_with_itself(lab: Lab) -> None:
    """Spark reads it as two sources, with two logs."""
    stream = declared("a_with_a", {"a": folder(lab, "a", 2)})
    lab.run(stream)
    available_now(a_with_a(plain(lab, "a")), lab.root / "spark")
    for log in ("offsets", "sources/0", "sources/1"):
        assert log_bytes(lab.checkpoint(stream) / log) == log_bytes(lab.root / "spark" / log)
    assert written(lab) == [0, 1]


def test_a_join_of_a_table_with_itself(lab: Lab) -> None:
    """What the table's log promises is read once per side."""
    append_rows(lab.spark, lab.root / "table", range(2))
    stream = declared("a_with_a", {"a": sources.delta("table")})
    record = lab.run(stream)
    assert (record.status, [batch.input_rows for batch in record.batches]) == ("succeeded", [4])
    assert written(lab) == [0, 1]


def test_a_changed_order_is_refused(lab: Lab) -> None:
    """A transform that reads its sources in another order is refused before anything is written."""
    given = {"a": folder(lab, "a", 2), "b": folder(lab, "b", 2, first=10)}
    stream = declared("a_then_b", given)
    lab.run(stream, bounded(max_batches=1))
    before = snapshot(lab.checkpoint(stream))
    with pytest.raises(RefusedError) as refused:
        lab.run(declared("b_then_a", given))
    problem = read_remedy(refused.value, "SOURCE_ORDER_CHANGED", r"restore the order in the transform \(of unions")
    assert "(b, a)" in problem.cause
    assert snapshot(lab.checkpoint(stream)) == before
    assert lab.records(stream)[-1]["status"] == "refused"
    lab.run(stream)
    assert written(lab) == [0, 1, 10, 11]


def test_a_checkpoint_of_a_query_by_hand(lab: Lab) -> None:
    """Of a checkpoint that Spark made, the order of several sources is read from the query, and the run goes on."""
    given = {"a": folder(lab, "a", 2), "b": folder(lab, "b", 2, first=10)}
    query = b_then_a(plain(lab, "a"), plain(lab, "b"))
    available_now(query, lab.root / "spark", lab.root / "out", sink="parquet")
    folder(lab, "a", 1, first=5)
    stream = declared("b_then_a", given, checkpoint=str(lab.root / "spark"))
    record = lab.run(stream)
    assert record.status == "succeeded"
    generation = json.loads((lab.root / "home" / "s" / "generations" / "0001.json").read_bytes())
    assert [line["source"] for line in generation["lines"]] == ["b", "a"]
    assert names(log_of(lab.root / "spark", 1)[2]) == ["0005.json"]
    assert written(lab) == [0, 1, 5, 10, 11]
