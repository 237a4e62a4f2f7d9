"""A Delta table's change feed as the source: batches that are planned version by version, equal to what Spark reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.planning.planner import Limits
from tests.remedies import read_remedy
from tests.spark.lab import Lab, available_now, bounded, offset_lines, uncommit

pytestmark = pytest.mark.spark

FEED = "delta.enableChangeDataFeed"
_COLUMNS = ("id", "v", "_change_type", "_commit_version")
_CHANGES = (
    "INSERT INTO {t} SELECT id, 'a' FROM range(6)",
    "UPDATE {t} SET v = 'b' WHERE id < 2",
    "DELETE FROM {t} WHERE id = 5",
    "OPTIMIZE {t}",
    "MERGE INTO {t} t USING (SELECT id, 'c' AS v FROM range(4, 8)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
    "MERGE INTO {t} t USING (SELECT 9L AS id, 'm' AS v) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "INSERT INTO {t} VALUES (20, 'd')",
    "RESTORE {t} TO VERSION AS OF 2",
    "INSERT OVERWRITE {t} VALUES (7, 'o'), (8, 'p')",
    "DELETE FROM {t}",
)
"""The versions of the table, from 1 on."""
NEWEST = len(_CHANGES)


def changes(numbers: DataFrame) -> DataFrame:
    return numbers.select(*_COLUMNS)


def ids(rows: DataFrame) -> DataFrame:
    return rows.select("id")


def declared(**options: Any) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.delta("table", read_change_feed=True, **options)},
        transform=f"{__name__}:changes",
        sink=sinks.delta("out"),
    )


def begin(lab: Lab, *, feed: bool = True, vectors: bool = False) -> None:
    properties = {FEED: feed, "delta.enableDeletionVectors": vectors}
    told_to_spark = ", ".join(f"{name} = {str(value).lower()}" for name, value in properties.items())
    change(lab, f"CREATE TABLE {{t}} (id bigint, v string) USING delta TBLPROPERTIES ({told_to_spark})")


def change(lab: Lab, *statements: str) -> None:
    for statement in statements:
        lab.spark.sql(statement.format(t=f"delta.`{lab.root}/table`"))


def spark_reads(lab: Lab, spark: SparkSession, **options: Any) -> list[tuple[Any, ...]]:
    """What Spark's own stream of the feed has written by now."""
    reader = spark.readStream.format("delta").option("readChangeFeed", "true").options(**options)
    frame = changes(reader.load(str(lab.root / "table")))
    available_now(frame, lab.root / "plain" / "checkpoint", lab.root / "plain" / "out", sink="delta")
    return told(spark.read.format("delta").load(str(lab.root / "plain" / "out")))


def told(frame: DataFrame | Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[column] for column in _COLUMNS) for row in frame.collect())


@pytest.mark.parametrize("vectors", [False, True])
def test_every_kind_of_version_in_batches_of_one(lab: Lab, *, vectors: bool) -> None:
    """From the first version on, whatever a version does, in a run that is cut, done again and gone on with."""
    begin(lab, vectors=vectors)
    change(lab, *_CHANGES)
    stream = declared(starting_version=0, max_offsets_per_batch=1)

    plan = lab.plan(stream)
    assert (plan.verdict, plan.strategy, len(plan.batches)) == ("run", "exact", NEWEST + 1)
    lab.run(stream, bounded(max_batches=3))
    uncommit(lab.checkpoint(stream), 2)
    assert lab.plan(stream).verdict == "resume"
    lab.run(stream, bounded(to_version=5))
    lab.run(stream)

    ends = [lines[-1]["reservoirVersion"] for _, lines in sorted(offset_lines(lab.checkpoint(stream)).items())]
    assert ends == list(range(1, NEWEST + 2))
    assert told(lab.table("out")) == spark_reads(lab, lab.spark, startingVersion=0)
    assert (lab.plan(stream).verdict, lab.plan(stream).reason) == ("skip", "nothing new")


def test_the_table_first_then_its_changes(lab: Lab) -> None:
    """Without a start, all rows are inserts of the version in which the stream begins."""
    begin(lab)
    change(lab, *_CHANGES[:3])
    stream = declared(max_files_per_batch=1)
    assert len(lab.run(stream).batches) > 1
    first = spark_reads(lab, lab.spark)
    assert told(lab.table("out")) == first
    assert {row[2:] for row in first} == {("insert", 3)}

    change(lab, *_CHANGES[3:])
    lab.run(stream)
    assert told(lab.table("out")) == spark_reads(lab, lab.spark)


def test_what_was_drained_goes_on(lab: Lab) -> None:
    """Spark's own offset stays in a version that has files of changes; nothing of it is read again."""
    begin(lab)
    change(lab, *_CHANGES[:2])
    stream = declared(starting_version=0)
    lab.run(stream, Limits(strategy="drain"))
    assert lab.plan(stream).verdict == "skip"

    change(lab, *_CHANGES[2:])
    lab.run(stream)
    assert told(lab.table("out")) == spark_reads(lab, lab.spark, startingVersion=0)


def test_a_compaction_begins_no_run(lab: Lab) -> None:
    """It has no changes; the next version that has some takes it along."""
    begin(lab)
    change(lab, *_CHANGES[:3])
    stream = declared()
    lab.run(stream)
    change(lab, _CHANGES[3])
    assert lab.plan(stream).verdict == "skip"
    change(lab, _CHANGES[6])
    (batch,) = lab.run(stream).batches
    assert batch.input_rows == 1


def test_off_and_on_again_without_rows_in_between(lab: Lab) -> None:
    """Spark asks at the version that a batch begins with: none does where the table keeps no feed."""
    begin(lab)
    switch = f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FEED} = {{}})"
    off, on = (switch.replace("{}", kept) for kept in ("false", "true"))
    first, second, third = (f"INSERT INTO {{t}} VALUES ({number}, 'a')" for number in (1, 2, 3))
    change(lab, first, second, off, "OPTIMIZE {t}", on, third)
    stream = declared(starting_version=0, max_offsets_per_batch=1)
    lab.run(stream)
    ends = [lines[-1]["reservoirVersion"] for _, lines in sorted(offset_lines(lab.checkpoint(stream)).items())]
    assert ends == [1, 2, 5, 6, 7]
    assert told(lab.table("out")) == [(1, "a", "insert", 1), (2, "a", "insert", 2), (3, "a", "insert", 6)]


@pytest.mark.parametrize("feed", [False, True])
def test_a_table_that_was_replaced_among_the_versions(lab: Lab, *, feed: bool) -> None:
    """Spark reads none of them, whatever comes behind: the plan refuses them; who begins behind it reads."""
    options = {"read_change_feed": True} if feed else {"skip_change_commits": True}
    replaced = f"REPLACE TABLE {{t}} USING delta TBLPROPERTIES ({FEED} = true) AS SELECT 2L AS id, 'b' AS v"

    def stream(name: str, **start: Any) -> Stream:
        table = sources.delta("table", **options, **start)
        return Stream(name=name, sources={"rows": table}, transform=f"{__name__}:ids", sink=sinks.delta(name))

    def ids_of(stream: Stream) -> list[int]:
        lab.run(stream)
        return sorted(row.id for row in lab.table(stream.name).collect())

    begin(lab)
    change(lab, "INSERT INTO {t} VALUES (1, 'a')")
    begun, table_id = stream("begun"), DeltaTable(str(lab.root / "table")).metadata().id
    assert ids_of(begun) == [1]
    change(lab, replaced, "INSERT INTO {t} VALUES (3, 'c')")
    for version in (0, 1):
        older = stream("older", starting_version=version)
        problem = read_remedy(lab.plan(older).problem, "SOURCE_TABLE_REPLACED", "without `starting`")
        assert Path(problem.file).name == f"{2:020}.json"
        assert f"version {version}, which is to be read, is of table {table_id}; version 2 has" in problem.cause
    assert getattr(lab.plan(older, bounded(to_version=1)).problem, "code", None) == "SOURCE_TABLE_REPLACED"
    assert ids_of(stream("older")) == [2, 3]
    assert ids_of(stream("behind", starting_version=3)) == [3]

    change(lab, "RESTORE {t} TO VERSION AS OF 1", "INSERT INTO {t} VALUES (4, 'd')")
    with pytest.raises(RefusedError, match=f"version 4 has replaced it by table {table_id}") as refused:
        lab.run(begun)
    assert lab.plan(begun).problem == refused.value.finding
    assert refused.value.finding.code == "SOURCE_TABLE_REPLACED"


def test_versions_of_which_no_changes_are_kept(lab: Lab) -> None:
    """Spark fails of them in each run: the plan refuses them, and says how to go on."""
    begin(lab, feed=False)
    change(lab, "INSERT INTO {t} VALUES (1, 'a')")
    stream = declared()
    problem = read_remedy(lab.plan(stream).problem, "SOURCE_FEED_NOT_KEPT", "`delta.enableChangeDataFeed` to true")
    assert "in version 1 the table keeps no change feed" in problem.cause

    change(lab, f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FEED} = true)")
    older = declared(starting_version=1)
    assert getattr(lab.plan(older).problem, "code", None) == "SOURCE_FEED_NOT_KEPT"
    lab.run(stream)
    assert told(lab.table("out")) == [(1, "a", "insert", 2)]

    change(lab, f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FEED} = false)", "INSERT INTO {t} VALUES (2, 'a')")
    with pytest.raises(RefusedError, match="in version 3 the table keeps no change feed"):
        lab.run(stream)
    assert getattr(lab.plan(stream, bounded(to_version=2)).problem, "code", None) is None
    change(lab, f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FEED} = true)", "INSERT INTO {t} VALUES (3, 'a')")
    with pytest.raises(RefusedError, match="in version 3 the table keeps no change feed"):
        lab.run(stream)
