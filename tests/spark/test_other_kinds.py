"""Sources and sinks that only Spark knows, and rows that are handed to somebody's class."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.planning.planner import Limits
from sluice.running.check import check_project
from sluice.sinks.other import OtherSink
from tests.builders import put
from tests.spark.lab import Lab, bounded, ids, uncommit, write_numbers

pytestmark = pytest.mark.spark


class Counting(SimpleDataSourceStreamReader):
    """Three numbers a read, from 0 on."""

    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        first = start["next"]
        return iter([(number,) for number in range(first, first + 3)]), {"next": first + 3}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(start["next"], end["next"])])


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads."""

    number: int


class Parts(DataSourceStreamReader):
    """Two numbers of each part that a folder has, each part read by a task of its own."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def initialOffset(self) -> dict[str, int]:
        return {"parts": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"parts": len(list(self.folder.iterdir()))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
        return [Part(number) for number in range(start["parts"], end["parts"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        from pyspark import TaskContext

        assert isinstance(partition, Part)
        context = TaskContext.get()
        task = -1 if context is None else context.partitionId()
        yield from ((2 * partition.number + row, task) for row in range(2))

    def commit(self, end: dict[str, int]) -> None:
        pass


class InParts(DataSource):
    """A Python data source whose reader divides what it reads."""

    @classmethod
    def name(cls) -> str:
        return "in_parts"

    def schema(self) -> str:
        return "id bigint, task int"

    def streamReader(self, schema: Any) -> Parts:
        return Parts(self.options["folder"])


class Appending(DataSourceStreamWriter):
    """Writes each partition of a batch into a file of its own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        from pyspark import TaskContext

        found = [row.id for row in iterator]
        context = TaskContext.get()
        if found and context is not None:
            Path(self.folder, f"{context.taskAttemptId()}.json").write_text(json.dumps(found))
        return WriterCommitMessage()


class Own(DataSource):
    """A Python data source, as a user brings one."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "id bigint"

    def simpleStreamReader(self, schema: Any) -> Counting:
        return Counting()

    def streamWriter(self, schema: Any, overwrite: bool) -> Appending:  # noqa: FBT001
        return Appending(self.options["folder"])


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def with_file(numbers: DataFrame) -> DataFrame:
    return numbers.select("id", F.col("_metadata.file_path").alias("file"))


class Noting:
    """Writes the rows of each partition of a batch into a file beside the folder where they came from, once."""

    def open(self, partition_id: int, batch_id: int) -> bool:
        self.name = f"{batch_id}-{partition_id}.txt"
        self.rows: list[Row] = []
        return True

    def process(self, row: Row) -> None:
        self.rows.append(row)

    def close(self, error: Exception | None) -> None:
        for row in self.rows[:1] if error is None else ():
            file = Path(row.file.removeprefix("file:")).parents[1] / "noted" / self.name
            if not file.exists():
                file.write_text(json.dumps([found.id for found in self.rows]))


class WithoutProcess:
    pass


class WithArgument(Noting):
    def __init__(self, folder: str, *, size: int, depth: int = 1) -> None:
        self.folder = folder


class Failing(Noting):
    def __init__(self) -> None:
        raise ValueError("no connection")


@pytest.fixture
def own(spark: SparkSession) -> None:
    """The data source, known to the session."""
    spark.dataSource.register(Own)


def written(folder: Path) -> list[int]:
    return sorted(number for file in folder.iterdir() for number in json.loads(file.read_text()))


@pytest.mark.usefixtures("own")
def test_a_source_that_only_spark_knows(lab: Lab) -> None:
    """Spark decides the batches of each run, and the next one goes on."""
    source = sources.other("counting")
    made = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sinks.delta("out"))

    assert lab.plan(made).strategy == "drain"
    assert "format `counting`" in lab.plan(made).reason
    for _ in range(2):
        lab.run(made)

    found = ids(lab.table("out"))
    assert found == list(range(len(found)))
    assert len(found) >= 6
    for limits in (Limits(strategy="exact"), bounded("2026-01-01T00:00:00Z")):
        with pytest.raises(DeclarationError, match="can't be drained"):
            lab.plan(made, limits)


def test_a_source_that_divides_what_it_reads(lab: Lab) -> None:
    """Each of its partitions is read by a task of its own, and once; the next run goes on with the new ones."""
    lab.spark.dataSource.register(InParts)
    folder = lab.root / "parts"
    folder.mkdir()
    source = sources.other("in_parts", folder=str(folder))
    made = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sinks.delta("out"))
    found = []
    for parts in (3, 5):
        for number in range(parts):
            (folder / f"{number}").touch()
        lab.run(made)
        found.append([tuple(row) for row in lab.table("out").orderBy("id").collect()])

    assert found[0] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert found[1] == [*found[0], (6, 0), (7, 0), (8, 1), (9, 1)]
    assert sum(batch.input_rows for batch in lab.run(made).batches) == 0


def test_the_generator_of_rows(lab: Lab) -> None:
    """Spark's `rate` takes its options as Spark spells them, and a run ends."""
    source = sources.other("rate", rowsPerSecond=50)
    made = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sinks.delta("out"))

    records = [lab.run(made) for _ in range(3)]

    assert [record.status for record in records] == ["succeeded"] * 3
    values = sorted(row.value for row in lab.table("out").collect())
    assert values == list(range(len(values)))


@pytest.mark.usefixtures("own")
def test_a_sink_that_only_spark_knows(lab: Lab) -> None:
    """It gets every batch, and one that a driver died behind once more."""
    folder = lab.root / "written"
    folder.mkdir()
    source = sources.files("in", format="json", schema="id bigint")
    sink = sinks.other("counting", folder=str(folder))
    made = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sink)
    write_numbers(lab.root / "in", 3)
    lab.run(made)
    assert written(folder) == [0, 1, 2]

    uncommit(lab.checkpoint(made), 0)
    lab.run(made)
    assert written(folder) == [0, 0, 1, 1, 2, 2]


def into(sink: OtherSink) -> Stream:
    source = sources.files("in", format="json", schema="id bigint")
    return Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sink, declared_at="s.py:4")


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        (sinks.other("jdbc", url="jdbc:postgresql://there/db", dbtable="t"), "does not support streamed writing"),
        (sinks.other("hive"), "you can not write files of Hive data source directly"),
        (sinks.other("no_such"), "DATA_SOURCE_NOT_FOUND.*no_such"),
    ],
)
def test_a_sink_that_takes_no_stream(lab: Lab, sink: OtherSink, words: str) -> None:
    """Spark's words, the stream's line and what to do, and nothing is planned; the mended one begins as a new one."""
    write_numbers(lab.root / "in", 2)
    with pytest.raises(DeclarationError, match=words) as refused:
        lab.run(into(sink))
    assert refused.value.problem.startswith(f"Spark does not stream into `{sink.format}`: ")
    assert refused.value.where == "s.py:4: stream `s`, sink"
    assert "sinks.foreach_batch" in str(refused.value.remedy)
    assert not (lab.checkpoint(into(sink)) / "offsets").exists()


def test_check_tells_of_such_a_sink(lab: Lab) -> None:
    """As a run does."""
    put(
        lab.root / "streams" / "s.py",
        "from sluice import Stream, sinks, sources\n"
        "numbers = {'numbers': sources.files('in', format='json', schema='id bigint')}\n"
        f"s = Stream(name='s', sources=numbers, transform='{__name__}:same', sink=sinks.other('jdbc'))\n",
    )
    write_numbers(lab.root / "in", 1)
    (found,) = check_project(replace(lab.project, stream_folders=(str(lab.root / "streams"),)))
    assert "Data source jdbc does not support streamed writing" in str(found.error)


@pytest.mark.parametrize(
    ("format", "words"), [("jdbc", "does not support streamed reading"), ("no_such", "DATA_SOURCE_NOT_FOUND")]
)
def test_a_source_that_gives_no_stream(lab: Lab, format: str, words: str) -> None:  # noqa: A002 - Spark's word
    """Spark's words and the stream's line, before anything is planned."""
    made = Stream(
        name="s",
        sources={"numbers": sources.other(format, url="jdbc:postgresql://there/db", dbtable="t")},
        transform=f"{__name__}:same",
        sink=sinks.noop(),
        declared_at="s.py:4",
    )
    with pytest.raises(DeclarationError, match=words) as refused:
        lab.run(made)
    assert str(refused.value.where).startswith("s.py:4: stream `s`, ")
    assert not (lab.checkpoint(made) / "offsets").exists()


def test_rows_for_a_class(lab: Lab) -> None:
    """By partition and batch, so that one which comes again can be passed over."""
    folder = lab.root / "noted"
    folder.mkdir()
    source = sources.files("in", format="json", schema="id bigint")
    made = Stream(
        name="s",
        sources={"numbers": source},
        transform=f"{__name__}:with_file",
        sink=sinks.foreach(f"{__name__}:Noting"),
    )
    for batch in range(2):
        write_numbers(lab.root / "in", 2, first=2 * batch)
        lab.run(made)
    uncommit(lab.checkpoint(made), 1)
    lab.run(made)

    assert written(folder) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "told", "is_planned"),
    [
        ("WithoutProcess", "has no method `process`", False),
        ("WithArgument", "can't be made without arguments: it wants `folder`, `size`", False),
        ("Failing", "no `.*:Failing` can be made: ValueError: no connection", True),
    ],
)
def test_a_class_that_takes_no_rows(lab: Lab, name: str, told: str, *, is_planned: bool) -> None:
    write_numbers(lab.root / "in", 1)
    source = sources.files("in", format="json", schema="id bigint")
    sink = sinks.foreach(f"{__name__}:{name}")
    made = Stream(name="s", sources={"numbers": source}, transform=f"{__name__}:same", sink=sink)

    with pytest.raises(DeclarationError, match=told):
        lab.run(made)
    assert (lab.checkpoint(made) / "offsets").exists() == is_planned
