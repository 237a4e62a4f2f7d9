"""Sluice plans the files that Spark's own file source takes: the same files, in the same batches and order.

Where Spark loses rows, doubles them or fails for ever, Sluice differs on purpose; each of these has a test of its own
that shows both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError
from sluice.planning.planner import Limits
from sluice.running.query_starts import QueryStarts
from sluice.sources.contract import Available, Bound, Position
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from tests.spark.lab import (
    FIRST_MTIME,
    Lab,
    available_now,
    ids,
    log_of,
    names,
    reader,
    rows,
    touch,
    write_files,
    write_numbers,
)

pytestmark = pytest.mark.spark

SPARK_NAMES = {
    "max_files_per_batch": "maxFilesPerTrigger",
    "max_bytes_per_batch": "maxBytesPerTrigger",
    "latest_first": "latestFirst",
    "file_name_only": "fileNameOnly",
    "recursive_file_lookup": "recursiveFileLookup",
    "path_glob_filter": "pathGlobFilter",
    "base_path": "basePath",
}
SEVEN = tuple(f"{number}.json" for number in range(7))


@dataclass(frozen=True)
class Case:
    """Files below a folder, and how a source is declared on it."""

    files: tuple[str, ...]
    taken: int
    """How many of them Spark takes."""
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "plain folder": Case(("a.json", "b.json", "c", "folder/d.json", "folder/deep/e.json"), 3),
    "hidden names": Case(("a.json", "_b.json", ".c.json", "d.json._COPYING_", "_e=1.json", "._f", ".g/h.json"), 2),
    "hidden folders": Case(("_f/x.json", ".h/z.json", "_g=1/y.json"), 1),
    "hidden files in partitions": Case(("p=1/a.json", "p=1/_b.json", "p=2/.c.json", ".d", "_e.json"), 1),
    "partitions of hidden files": Case(("a.json", "p=1/_b.json"), 1),
    "one level of partitions": Case(("d=1/a.json", "d=2/b.json", "d=2/c.json"), 3),
    "two levels of partitions": Case(("d=1/h=1/a.json", "d=1/h=2/b.json", "d=2/h=1/c.json"), 3),
    "folders in partitions": Case(("d=1/sub/a.json", "d=1/sub/sub/b.json", "d=1/_sub/c.json", "d=1/d.json"), 3),
    "partitions in a folder": Case(("x/y/d=1/a.json", "x/y/d=2/b.json"), 2),
    "values of partitions": Case(
        tuple(f"d={value}/a.json" for value in ("a b", "ü", "x%3Ay", "a,b", "a#b", "a=b", "日 本", "x:y", "[1]", "a*")),
        10,
    ),
    "unicode and spaces": Case(
        ("ü.json", "é e.json", "a\u2013b.json", "日本.json", "100% #1.json"), 5, "日本 語/a%20b"
    ),
    "glob of files": Case(("a.json", "b.json", "c.csv", "d/e.json"), 2, "*.json"),
    "glob with ?": Case(("a1.json", "a2.json", "a33.json"), 2, "a?.json"),
    "glob with a set": Case(("a.json", "b.json", "c.json", "d.json"), 2, "[bc].json"),
    "glob with a range": Case(("a.json", "b.json", "c.json", "d.json"), 3, "[a-c].json"),
    "glob with a negated set": Case(("a.json", "b.json", "c.json"), 2, "[^a].json"),
    "glob with alternatives": Case(("a.json", "b.json", "c.json", "d1.json"), 3, "{a,b,d[0-9]}.json"),
    "glob with nested alternatives": Case(("ab.json", "ac.json", "d.json", "a.json"), 3, "{a{b,c},d}.json"),
    "glob with characters of regular expressions": Case(("a.b+c(1)$^|.json", "aXb+c(1)$^|.json"), 1, "a.b+c(1)$^|*"),
    "glob of folders": Case(("x/a.json", "y/b.json", "c.json", "x/deep/d.json"), 3, "*"),
    "glob of files in folders": Case(("x/a.json", "y/b.json", "c.json", "x/y/d.json"), 2, "*/*.json"),
    "glob in the middle": Case(("x/in/a.json", "y/in/b.json", "y/out/c.json", "z.json"), 2, "*/in"),
    "glob that matches hidden folders": Case(("_x/a.json", ".y/b.json", "z/c.json"), 3, "*"),
    "glob that matches hidden files": Case(("_x.json", "y.json"), 0, "_*"),
    "glob of partitions": Case(("d=1/a.json", "d=2/b.json", "d=3/c.json"), 2, "d=[12]"),
    "glob with a base path": Case(("d=1/a.json", "d=1/sub/b.json", "d=2/c.json"), 3, "d=*", {"base_path": "."}),
    "glob in odd names": Case(("sp ace/ü.json", "sp%20ace/b.json", "x#y/c.json"), 3, "*/*.json"),
    "glob with an escape": Case(("a*.json", "ab.json"), 1, "a\\*.json"),
    "every folder": Case(
        ("a.json", "s/b.json", "s/t/c.json", "_s/d.json", "d=1/e.json", "s/_f.json", "g[1]/g.json"),
        5,
        options={"recursive_file_lookup": True},
    ),
    "filter": Case(("a.json", "b.csv", "_c.json"), 1, options={"path_glob_filter": "*.json"}),
    "filter in partitions": Case(("d=1/a.json", "d=1/b.csv", "c.csv"), 1, options={"path_glob_filter": "*.json"}),
    "files per batch": Case(SEVEN, 7, options={"max_files_per_batch": 3}),
    "newest first": Case(SEVEN, 7, options={"latest_first": True}),
    "files per batch, newest first": Case(SEVEN, 7, options={"latest_first": True, "max_files_per_batch": 3}),
    "bytes per batch": Case(SEVEN, 7, options={"max_bytes_per_batch": 200}),
    "fewer bytes than a file": Case(SEVEN, 7, options={"max_bytes_per_batch": 1}),
    "bytes per batch, newest first": Case(SEVEN, 7, options={"latest_first": True, "max_bytes_per_batch": 350}),
    "names only": Case(("x/a.json", "y/a.json", "x/b.json"), 3, "*", {"file_name_only": True}),
    "names only, in several batches": Case(
        ("x/a.json", "y/a.json", "x/b.json", "y/b.json", "y/c.json"),
        3,
        "*",
        {"file_name_only": True, "max_files_per_batch": 1},
    ),
}


def land(lab: Lab, files: tuple[str, ...], below: str = "") -> Path:
    """Write the files, of 50 to 110 bytes each; the row of file N is `{"id": N}`."""
    folder = lab.root / "land" / below
    padded = {name: json.dumps({"id": number}).ljust(50 + number % 3 * 30) for number, name in enumerate(files)}
    write_files(folder, padded)
    return folder


def by_spark(lab: Lab, path: str, **options: Any) -> dict[int, list[str]]:
    """What Spark's own source takes, by batch."""
    given = {SPARK_NAMES[name]: value for name, value in options.items()}
    checkpoint = lab.root / f"spark {sorted(given.items())}"
    available_now(reader(lab.spark, **given).json(path), checkpoint)
    return log_of(checkpoint)


def by_sluice(path: str, **options: Any) -> tuple[dict[int, list[str]], Available]:
    """What Sluice plans, by batch."""
    source = sources.files(path, format="json", schema="id bigint", **options).resolved(Surroundings("/"))
    found = source.available(Position(None), Bound(), storage=Storage(), now=datetime.now(UTC))
    return {number: [entry.path for entry in step.added.entries] for number, step in enumerate(found.steps)}, found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_files_in_the_same_batches(lab: Lab, case: Case) -> None:
    """Sluice plans what Spark takes."""
    is_folder = case.path and not set(case.path) & set("*?[{\\")
    folder = str(land(lab, case.files, case.path if is_folder else ""))
    path = folder if is_folder or not case.path else f"{folder}/{case.path}"
    options = {**case.options}
    if "base_path" in options:
        options["base_path"] = folder
    taken = by_spark(lab, path, **options)
    planned, found = by_sluice(path, **options)
    assert planned == taken
    assert sum(len(files) for files in taken.values()) == case.taken
    assert found.problems == ()


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def declared(path: str, schema: str = "id bigint", **options: Any) -> Stream:
    source = sources.files(path, format="json", schema=schema, **options)
    sink = sinks.files("out", format="parquet")
    return Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sink)


def run(lab: Lab, path: str, schema: str = "id bigint", **options: Any) -> tuple[DataFrame, list[str]]:
    """Run Sluice over a path; gives what is in the sink, and the codes of what the plan warned of."""
    record = lab.run(declared(path, schema, **options))
    return lab.spark.read.parquet(str(lab.root / "out")), [problem.code for problem in record.plan.warnings]


@pytest.mark.parametrize("path", ["/./land", "//land", "/other/../land", "/land//"])
def test_a_path_is_normal_as_in_hadoop(lab: Lab, path: str) -> None:
    """However a path is written, its files are spelled as Spark does, so that neither reads the other's again."""
    land(lab, ("a.json", "b.json"))
    (lab.root / "other").mkdir()
    path = str(lab.root) + path
    assert by_sluice(path)[0] == by_spark(lab, path)


def test_a_folder_that_a_file_sink_wrote(lab: Lab) -> None:
    """Of a file sink's folder, only the files in its manifest count, not what lies beside them."""
    write_numbers(lab.root / "land", 2)
    frame = reader(lab.spark, maxFilesPerTrigger=1).json(str(lab.root / "land"))
    sink = lab.root / "sink"
    available_now(frame, lab.root / "first", sink, sink="json")
    (sink / "stray.json").write_text(json.dumps({"id": 99}))
    taken = by_spark(lab, str(sink))
    assert by_sluice(str(sink))[0] == taken
    assert len(taken[0]) == 2
    assert "stray.json" not in names(taken[0])
    one = f"*{names(taken[0])[1][10:]}"
    assert by_sluice(str(sink), path_glob_filter=one)[0] == by_spark(lab, str(sink), path_glob_filter=one)


@pytest.mark.parametrize("name", ["a*b", "a?b", "[1]", "{a,b}", "a\\b"])
def test_a_name_with_a_glob_character(lab: Lab, name: str) -> None:
    """Spark reads what shares a batch with such a file twice; Sluice gives it a batch of its own."""
    folder = str(land(lab, ("0.json", f"{name}.json", "2.json")))
    available_now(reader(lab.spark).json(folder), lab.root / "spark", lab.root / "spark-out", sink="parquet")
    assert ids(lab.spark.read.parquet(str(lab.root / "spark-out"))) == [0, 0, 1, 2, 2]
    assert ids(run(lab, folder)[0]) == [0, 1, 2]


def test_a_name_with_a_glob_character_in_a_drained_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is not drained; a file that comes just then is noticed once Spark has read the others twice."""
    drained = Limits(strategy="drain")
    folder = land(lab, ("0.json", "a*b.json"))
    stream = declared(str(folder))
    with pytest.raises(DeclarationError, match="rename it"):
        lab.run(stream, drained)

    late = folder / "a*b.json"
    late.rename(lab.root / "late")
    start = QueryStarts.start

    def after(starts: QueryStarts, query: Any, **how: Any) -> Any:
        (lab.root / "late").rename(late)
        return start(starts, query, **how)

    monkeypatch.setattr(QueryStarts, "start", after)
    with pytest.raises(BatchFailedError, match="rows that are there twice") as caught:
        lab.run(stream, drained)
    assert str(caught.value.where).endswith("a*b.json")
    assert [batch["batch_id"] for batch in lab.records(stream)[-1]["batches"]] == [0]
    assert ids(lab.spark.read.parquet(str(lab.root / "out"))) == [0, 0, 1]


def test_a_time_before_1970(lab: Lab) -> None:
    """Spark alone never reads such a file; a planned batch does, once, and so do the batches after it."""
    folder = land(lab, ("old.json", "new.json"))
    touch(folder / "old.json", -2 * FIRST_MTIME)
    plain = lab.spark.readStream.schema("id bigint").json(str(folder))
    available_now(plain, lab.root / "spark", lab.root / "spark-out", sink="parquet")
    assert ids(lab.spark.read.parquet(str(lab.root / "spark-out"))) == [1]

    assert ids(run(lab, str(folder))[0]) == [0, 1]
    (folder / "newer.json").write_text('{"id": 2}')
    assert ids(run(lab, str(folder))[0]) == [0, 1, 2]


def test_a_folder_with_a_glob_character(lab: Lab) -> None:
    """Also the files of a folder with such a name are read once each."""
    land(lab, ("a[1]/0.json", "a[1]/1.json", "b/2.json", "b/3.json"))
    frame, warnings = run(lab, str(lab.root / "land" / "*"))
    assert (ids(frame), warnings) == ([0, 1, 2, 3], [])


def test_partition_values_with_odd_characters(lab: Lab) -> None:
    """In partition folders no name is a pattern: the rows come once each, in one batch, with the folder's value."""
    values = ("a*b", "[1]", "{a,b}", "a:b", "a?b", "1")
    folder = land(lab, tuple(f"value={value}/x.json" for value in values))
    frame, warnings = run(lab, str(folder), "id bigint, value string")
    assert rows(frame) == sorted(enumerate(values))
    assert warnings == []


def test_a_file_beside_partitions(lab: Lab) -> None:
    """Spark loses the rows of a file beside partition folders; Sluice leaves it out, and says so."""
    folder = str(land(lab, ("d=1/a.json", "d=1/sub/b.json", "stray.json")))
    frame = reader(lab.spark, "id bigint, d int").json(folder)
    available_now(frame, lab.root / "spark", lab.root / "spark-out", sink="parquet")
    assert len(log_of(lab.root / "spark")[0]) == 3
    assert rows(lab.spark.read.parquet(str(lab.root / "spark-out"))) == [(0, 1), (1, 1)]
    frame, warnings = run(lab, folder, "id bigint, d int")
    assert (rows(frame), warnings) == ([(0, 1), (1, 1)], ["FILE_BESIDE_PARTITIONS"])


def test_a_colon_in_a_file_name(lab: Lab) -> None:
    """A file with a `:` in its name stops Spark for ever; Sluice leaves it out, and says so."""
    folder = str(land(lab, ("0.json", "10:30.json")))
    with pytest.raises(StreamingQueryException, match=r"10:30\.json"):
        by_spark(lab, folder)
    frame, warnings = run(lab, folder)
    assert (ids(frame), warnings) == ([0], ["NAME_UNREADABLE"])


def test_names_that_are_listed_and_never_read(lab: Lab) -> None:
    """Spark logs files whose names begin with `_metadata`, and reads no row of them; Sluice leaves them out."""
    folder = str(land(lab, ("_metadata.json", "_common_metadata", "2.json")))
    available_now(reader(lab.spark).json(folder), lab.root / "spark", lab.root / "spark-out", sink="parquet")
    assert len(log_of(lab.root / "spark")[0]) == 3
    assert ids(lab.spark.read.parquet(str(lab.root / "spark-out"))) == [2]
    assert names(by_sluice(folder)[0][0]) == ["2.json"]


def test_a_single_file(lab: Lab) -> None:
    """Spark starts a stream on a single file and fails every batch of it; Sluice refuses it."""
    folder = land(lab, ("a.json",))
    with pytest.raises(StreamingQueryException, match="basePath"):
        by_spark(lab, f"{folder}/a.json")
    with pytest.raises(DeclarationError, match="is a file"):
        by_sluice(f"{folder}/a.json")


def test_braces_around_a_slash(lab: Lab) -> None:
    """Hadoop expands braces that span folders; Sluice refuses them."""
    folder = land(lab, ("x/1/a.json", "y/2/b.json"))
    assert len(by_spark(lab, f"{folder}/{{x/1,y/2}}")[0]) == 2
    with pytest.raises(DeclarationError, match="braces"):
        by_sluice(f"{folder}/{{x/1,y/2}}")


def test_files_that_come_late(lab: Lab) -> None:
    """Spark passes over files a week older than the newest that it took; Sluice reads them, and so does Spark then."""
    folder = land(lab, ("new.json",))
    frame, _ = run(lab, str(folder))
    old = folder / "old.json"
    old.write_text(json.dumps({"id": 1}))
    touch(old, -8 * 24 * 3600)
    plain = lab.spark.readStream.schema("id bigint").json(str(folder))
    assert (
        available_now(plain, lab.root / "home" / "s" / "generations" / "0001", lab.root / "out", sink="parquet") == []
    )
    frame, warnings = run(lab, str(folder))
    assert (ids(frame), warnings) == ([0, 1], [])
