"""Sources of files whose declaration is edited while the stream goes on: no row is lost, or read as another."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, functions

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, RefusedError, SluiceError
from sluice.interval import Interval
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, append_outside, bounded, uncommit, write_files

pytestmark = pytest.mark.spark

TEN_EACH = {0: 10, 10: 10, 20: 10}


def in_windows(numbers: DataFrame) -> DataFrame:
    timed = numbers.withColumn("at", functions.timestamp_seconds("id")).withWatermark("at", "2 seconds")
    counted = timed.groupBy(functions.window("at", "10 seconds")).count()
    return counted.select(functions.unix_timestamp("window.start").alias("start"), "count")


def first_of_day(numbers: DataFrame) -> DataFrame:
    """Spark refuses this in a batch, so a backfill runs it as a stream."""
    timed = numbers.selectExpr("id", "DATE'2026-01-02' AS day", "TIMESTAMP'2026-01-02' AS at")
    return timed.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id", "day"])


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def both(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.union(b)


def windows(sink: Any = None, **options: Any) -> Stream:
    path = options.pop("path", "land")
    source = sources.files(path, **{"format": "json", "schema": "id bigint", "max_files_per_batch": 1} | options)
    return Stream(
        name="s",
        sources={"numbers": source},
        transform=f"{__name__}:in_windows",
        sink=sink or sinks.delta("out"),
    )


def arrive(lab: Lab, first: int, end: int) -> None:
    write_files(
        lab.root / "land",
        {f"{first:03d}.json": "\n".join(json.dumps({"id": number}) for number in range(first, end))},
        first=first,
    )


def counts(lab: Lab) -> dict[int, int]:
    rows = DeltaTable(str(lab.root / "out")).to_pyarrow_table().to_pylist()
    assert len({row["start"] for row in rows}) == len(rows)
    return {row["start"]: row["count"] for row in rows if row["start"] in TEN_EACH}


EDITS: dict[str, dict[str, Any]] = {
    "another glob": {"path_glob_filter": "9*"},
    "a narrower path": {"path": "land/00*"},
    "every folder": {"recursive_file_lookup": True},
    "an age": {"max_file_age": "1s"},
    "missing ones passed over, and another glob": {"path_glob_filter": "9*", "ignore_missing_files": True},
}


@pytest.mark.parametrize("edit", ["another glob", *rarely(*(name for name in EDITS if name != "another glob"))])
def test_a_batch_that_the_sink_has_and_a_state_needs(lab: Lab, edit: str) -> None:
    """What is declared by now does not keep its rows from the state: they are read, or the run is refused."""
    arrive(lab, 0, 14)
    lab.run(windows())
    arrive(lab, 14, 17)
    uncommit(lab.checkpoint(windows()), lab.run(windows(), stop_after=1).batches[-1].batch_id)

    if "path_glob_filter" in EDITS[edit]:
        with pytest.raises(RefusedError, match="it is the state that") as refused:
            lab.run(windows(**EDITS[edit]))
        read_remedy(refused.value, "INPUT_LEFT_OUT", "declare `path_glob_filter` as it was, run the stream once")
        assert lab.plan(windows(**EDITS[edit])).verdict == "refuse"
    else:
        lab.run(windows(**EDITS[edit]))
    lab.run(windows())
    arrive(lab, 17, 60)
    lab.run(windows())

    assert counts(lab) == TEN_EACH


def test_a_batch_with_a_name_that_is_a_pattern_by_now(lab: Lab) -> None:
    """Below every folder, Spark takes names as they are; else it would read `ab.json` for `a*.json`, too."""
    arrive(lab, 0, 14)
    lab.run(windows())
    several = {"max_files_per_batch": 3, "recursive_file_lookup": True}
    lines = {name: json.dumps({"id": number}) for number, name in enumerate(["a*.json", "ab.json", "b.json"], 14)}
    write_files(lab.root / "land", lines, first=14)
    uncommit(lab.checkpoint(windows()), lab.run(windows(**several), stop_after=1).batches[-1].batch_id)

    with pytest.raises(RefusedError, match=r"this file and 2 more.*/land/a\*\.json") as refused:
        lab.run(windows())
    read_remedy(refused.value, "INPUT_IS_PATTERN", "declare `recursive_file_lookup=True`, run the stream once")
    assert lab.plan(windows()).verdict == "refuse"
    lab.run(windows(**several))
    arrive(lab, 17, 60)
    lab.run(windows())

    assert counts(lab) == TEN_EACH


@pytest.mark.parametrize("options", [{}, *rarely({"ignore_missing_files": True})])
def test_a_batch_that_the_sink_does_not_have(lab: Lab, options: dict[str, Any]) -> None:
    """It is refused before Spark starts, and run as it was declared."""
    arrive(lab, 0, 2)
    arrive(lab, 2, 4)
    stream = windows(sink=sinks.noop())
    uncommit(lab.checkpoint(stream), lab.run(stream, stop_after=2).batches[-1].batch_id)
    edited = windows(sink=sinks.noop(), path_glob_filter="000*", **options)

    plan = lab.plan(edited)

    assert plan.problem is not None
    assert (plan.problem.code, plan.problem.file) == ("INPUT_LEFT_OUT", f"file://{lab.root}/land/002.json")
    assert [batch.kind for batch in lab.run(stream).batches][:1] == ["uncommitted"]
    assert lab.plan(edited).problem is None


def test_a_batch_that_nobody_needs_any_more(lab: Lab) -> None:
    """The sink has it, and there is no state: it is committed unread, with a warning."""
    arrive(lab, 0, 2)
    stream = plain()
    lab.run(stream)
    uncommit(lab.checkpoint(stream), 0)
    edited = plain(path_glob_filter="9*")

    assert [(found.code, found.is_blocking) for found in lab.plan(edited).warnings] == [("INPUT_LEFT_OUT", False)]
    assert [batch.was_in_sink for batch in lab.run(edited).batches] == [True]


def plain(**options: Any) -> Stream:
    source = sources.files("land", **{"format": "json", "schema": "id bigint", **options})
    return Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sinks.delta("out"))


def test_a_backfill_as_a_stream(lab: Lab) -> None:
    """What the stream has read, and a glob of today leaves out, is not passed over: the refusal says what to do."""
    arrive(lab, 0, 3)

    def declared(**options: Any) -> Stream:
        return Stream(
            name="s",
            sources={"numbers": sources.files("land", format="json", schema="id bigint", **options)},
            transform=f"{__name__}:first_of_day",
            sink=sinks.delta("out", partition_by=["day"]),
            interval_column="day",
        )

    lab.run(declared())
    day = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))

    with pytest.raises(SluiceError, match=r"`path_glob_filter` is '9\*' now") as refused:
        backfill(lab, declared(path_glob_filter="9*"), day)
    assert "declare `path_glob_filter` so that it takes the file" in str(refused.value)

    backfill(lab, declared(), day)
    assert numbers(lab) == Counter(range(3))


def backfill(lab: Lab, stream: Stream, interval: Interval) -> None:
    backfill_stream(lab.project, BackfillRequest(lab.project.resolve(stream), interval), session=lab.spark)


def numbers(lab: Lab) -> Counter[int]:
    return Counter(DeltaTable(str(lab.root / "out")).to_pyarrow_table()["id"].to_pylist())


def of_two(a: dict[str, Any], b: dict[str, Any], transform: str = "both") -> Stream:
    declared = {
        name: sources.files(**{"path": "land", "format": "json", "schema": "id bigint"} | its)
        for name, its in (("a", a), ("b", b))
    }
    return Stream(name="s", sources=declared, transform=f"{__name__}:{transform}", sink=sinks.delta("out"))


EXCHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "globs": ({"path_glob_filter": "a*"}, {"path_glob_filter": "b*"}),
    "paths": ({"path": "land/a*"}, {"path": "land/b*"}),
    "schemas": (
        {"max_files_per_batch": 1, "path_glob_filter": "a*"},
        {"schema": "id bigint, b bigint", "path_glob_filter": "a*"},
    ),
    "formats": ({"format": "json"}, {"format": "csv"}),
    "options": ({"mode": "PERMISSIVE"}, {"mode": "DROPMALFORMED"}),
}


def ids_of(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.select("id").union(b.select("id"))


def lines(name: str, *ids: int) -> dict[str, str]:
    return {name: "\n".join(json.dumps({"id": number}) for number in ids)}


@pytest.mark.parametrize("what", ["globs", *rarely(*(name for name in EXCHANGED if name != "globs"))])
def test_two_sources_that_are_exchanged(lab: Lab, what: str) -> None:
    """Each would read what the other has read: it is refused before Spark starts, and goes on as it was."""
    a, b = EXCHANGED[what]
    write_files(lab.root / "land", lines("a1", 1) | lines("b1", 101))
    lab.run(of_two(a, b, "ids_of"))
    write_files(lab.root / "land", lines("a2", 2), first=4)
    before = numbers(lab)

    plan = lab.plan(of_two(b, a, "ids_of"))
    with pytest.raises(RefusedError) as refused:
        lab.run(of_two(b, a, "ids_of"))
    assert plan.problem == read_remedy(refused.value, "SOURCES_EXCHANGED", "declare each source as it was")
    assert numbers(lab) == before

    lab.run(of_two(a, b, "ids_of"))
    if what in {"globs", "paths"}:
        assert numbers(lab) == Counter([1, 101, 2])


def test_files_that_another_source_has_read(lab: Lab) -> None:
    """Each source has a log of its own: it reads those files, too, and the plan says so beforehand."""
    a, b = EXCHANGED["globs"]
    write_files(lab.root / "land", lines("a1", 1) | lines("b1", 101))
    lab.run(of_two(a, b))

    wider = of_two({}, b)
    (warning,) = lab.plan(wider).warnings
    read_remedy(warning, "READ_BY_ANOTHER_SOURCE", "declare `a` as it was, if they are not to be read by it")
    assert lab.plan(of_two(a, b)).warnings == ()
    lab.run(wider)

    assert numbers(lab) == Counter([1, 101, 101])
    assert lab.plan(wider).warnings == ()


def test_sources_of_a_table_that_are_exchanged(lab: Lab) -> None:
    """The same of tables: which of the two leaves out what was rewritten is part of what it is."""

    def declared(skipping: str) -> Stream:
        tables = {name: sources.delta("table", skip_change_commits=name == skipping) for name in "ab"}
        return Stream(name="s", sources=tables, transform=f"{__name__}:both", sink=sinks.delta("out"))

    append_outside(lab.root / "table", [1])
    lab.run(declared("b"))

    problem = lab.plan(declared("a")).problem

    assert problem is not None
    assert problem.code == "SOURCES_EXCHANGED"


def in_folders(**options: Any) -> Stream:
    source = sources.files("land", **{"format": "json", "schema": "id bigint, day date", **options})
    return Stream(
        name="s",
        sources={"numbers": source},
        transform=f"{__name__}:{'keyed' if options.get('format') == 'text' else 'same'}",
        sink=sinks.delta("out", partition_by=["day"]),
        interval_column="day",
        lateness="12 hours",
    )


def keyed(numbers: DataFrame) -> DataFrame:
    read = functions.from_json("value", "id bigint, day date")
    return numbers.select(read.alias("read"), "k").select("read.*", "k")


def put(lab: Lab, folder: str, number: int, at: datetime, kind: str = "json") -> None:
    row = {"id": number, "day": f"{at:%Y-%m-%d}"}
    text = f"{number},{row['day']}" if kind == "csv" else json.dumps(row)
    file = lab.root / "land" / folder / f"{number}.{kind}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (at.timestamp(), at.timestamp()))


def keys(lab: Lab) -> dict[int, Any]:
    return {row["id"]: row["k"] for row in DeltaTable(str(lab.root / "out")).to_pyarrow_table().to_pylist()}


FIRST, SECOND = datetime(2026, 1, 1, 10, tzinfo=UTC), datetime(2026, 1, 2, 10, tzinfo=UTC)


@pytest.mark.parametrize("kind", ["json", *rarely("csv", "text")])
def test_values_of_folders(lab: Lab, kind: str) -> None:
    """They keep the type that the first run found, whichever folders are there later."""
    stream = in_folders(format=kind, **{"schema": None} if kind == "text" else {})
    put(lab, "k=abc", 1, FIRST, kind)
    put(lab, "k=007", 2, FIRST, kind)
    lab.run(stream)
    for folder in ("k=abc", "k=007"):
        shutil.move(lab.root / "land" / folder, lab.root / f"archived-{folder}")
    put(lab, "k=009", 3, SECOND, kind)

    (batch,) = lab.run(stream).batches

    assert keys(lab) == {1: "abc", 2: "007", 3: "009"}
    assert not any(batch.malformed_rows.values())


@pytest.mark.parametrize("transform", ["same", "first_of_key"])
def test_values_of_folders_in_a_backfill(lab: Lab, transform: str) -> None:
    """It reads those of the interval alone, and as the stream did: also where it runs as a stream."""
    stream = replace(in_folders(), transform=f"{__name__}:{transform}")
    put(lab, "k=abc", 1, FIRST)
    put(lab, "k=007", 2, SECOND)
    lab.run(stream)
    before = keys(lab)
    shutil.move(lab.root / "land" / "k=abc", lab.root / "archived")

    day = datetime(2026, 1, 2, tzinfo=UTC)
    backfill(lab, stream, Interval(day, day + timedelta(days=1)))

    assert keys(lab) == before == {1: "abc", 2: "007"}


def first_of_key(numbers: DataFrame) -> DataFrame:
    """Spark refuses this in a batch, so a backfill runs it as a stream."""
    timed = numbers.withColumn("at", functions.col("day").cast("timestamp")).withWatermark("at", "9 days")
    return timed.dropDuplicatesWithinWatermark(["id", "k", "day"])


def test_values_of_folders_that_are_of_another_type(lab: Lab) -> None:
    """A value that the type of the first run does not have is refused, with the way to say which type it is."""
    put(lab, "k=7", 1, FIRST)
    lab.run(in_folders())
    put(lab, "k=abc", 2, SECOND)

    with pytest.raises(
        DeclarationError, match="the column `k` of its folders was int when the stream began"
    ) as refused:
        lab.run(in_folders())
    assert "put `k` with its type into `schema`" in str(refused.value)
    shutil.move(lab.root / "land" / "k=abc", lab.root / "land" / "k=8")
    lab.run(in_folders())

    assert keys(lab) == {1: 7, 2: 8}


def test_values_of_folders_before_the_first_batch(lab: Lab) -> None:
    """What was found before anything was planned binds nobody; and what is declared comes before what was found."""
    put(lab, "k=7", 1, FIRST)
    lab.run(in_folders(), bounded(max_batches=0))
    put(lab, "k=abc", 2, SECOND)
    lab.run(in_folders())
    assert keys(lab) == {1: "7", 2: "abc"}
    put(lab, "k=009", 3, SECOND + timedelta(hours=1))
    lab.run(in_folders(schema="id bigint, day date, k string"))
    shutil.move(lab.root / "land" / "k=abc", lab.root / "archived")
    put(lab, "k=010", 4, SECOND + timedelta(hours=2))
    lab.run(in_folders())

    assert keys(lab) == {1: "7", 2: "abc", 3: "009", 4: "010"}


@pytest.mark.parametrize(
    ("first", "later", "is_taken"),
    [
        ("2026-01-01", "2026-05", False),
        ("2026-01-01", "2026", False),
        ("2026-01-01", "2026-01-03 10%3A30%3A00", False),
        ("1", "1.5", False),
        ("1", "3000000000", False),
        ("3000000000", "7", True),
        ("1.5", "7", True),
        ("1.5", "3000000000", True),
        ("1.5", "9007199254740993", False),
        ("1.5", "100000000000000000000", True),
        ("1.5", "123456789012345678901", False),
        ("1234567890123456789012345", "12345678901234567890", True),
        ("12345678901234567890", "1234567890123456789012345", False),
        ("12345678901234567890", "7.5", False),
        ("7", "__HIVE_DEFAULT_PARTITION__", True),
        ("abc", "2026-01-01", True),
    ],
)
def test_names_of_folders_that_are_no_values(lab: Lab, first: str, later: str, *, is_taken: bool) -> None:
    """Spark would cut off what is too much for the type that the stream began with, without a word."""
    write_files(lab.root / "in" / f"k={first}", {"a.json": '{"id": 1}'})
    source = sources.files("in", format="json", schema="id bigint")
    stream = Stream(name="s", sources={"a": source}, transform=f"{__name__}:whole", sink=sinks.delta("out"))
    lab.run(stream)
    shutil.move(lab.root / "in" / f"k={first}", lab.root / "archived")
    write_files(lab.root / "in" / f"k={later}", {"b.json": '{"id": 2}'}, first=1)

    if is_taken:
        lab.run(stream)
        read = keys(lab)
        assert read[2] == (None if later.startswith("__") else type(read[1])(later))
    else:
        with pytest.raises(DeclarationError, match="whose names are none"):
            lab.run(stream)
        assert lab.table("out").count() == 1


@pytest.mark.parametrize(
    ("later", "is_taken"),
    [("3000000000", True), ("1e3", True), ("5.", True), ("9007199254740993", False), ("abc", False)],
)
def test_whole_numbers_beside_doubles(lab: Lab, later: str, *, is_taken: bool) -> None:
    """Spark takes both for texts; those that are doubles are read as such."""
    source = sources.files("in", format="json", schema="id bigint")
    stream = Stream(name="s", sources={"a": source}, transform=f"{__name__}:whole", sink=sinks.delta("out"))
    write_files(lab.root / "in" / "k=1.5", {"a.json": '{"id": 1}'})
    lab.run(stream)
    write_files(lab.root / "in" / f"k={later}", {"b.json": '{"id": 2}'}, first=1)

    if is_taken:
        lab.run(stream)
        assert keys(lab) == {1: 1.5, 2: float(later)}
    else:
        with pytest.raises(DeclarationError, match="whose names are none"):
            lab.run(stream)


@pytest.mark.parametrize("sink", [sinks.delta("out"), sinks.noop()], ids=["delta", "noop"])
def test_a_folder_of_rows_without_a_value_alone(lab: Lab, sink: Any) -> None:
    """It tells no type that the stream could keep: told before anything is planned, and the remedy does."""
    default = lab.root / "in" / "k=__HIVE_DEFAULT_PARTITION__"
    write_files(default, {"a.json": '{"id": 1}'})
    source = sources.files("in", format="json", schema="id bigint")
    stream = Stream(name="s", sources={"a": source}, transform=f"{__name__}:whole", sink=sink)

    with pytest.raises(DeclarationError, match="the column `k` of its folders has no type yet"):
        lab.run(stream)
    assert not (lab.checkpoint(stream) / "offsets").exists()
    declared = replace(stream, sources={"a": replace(source, schema="id bigint, k int")})
    lab.run(declared)
    write_files(lab.root / "in" / "k=7", {"b.json": '{"id": 2}'}, first=1)
    lab.run(declared)

    if sink.kind == "delta":
        assert keys(lab) == {1: None, 2: 7}


def whole(a: DataFrame) -> DataFrame:
    return a
