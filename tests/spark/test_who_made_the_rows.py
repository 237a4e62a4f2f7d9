"""A batch that one declaration has planned, and another computes: what comes behind it goes by who made its rows."""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError, RefusedError
from tests.remedies import read_remedy
from tests.spark.lab import Lab, ids, rows, write_files
from tests.spark.power_cuts import Cut, killed, let_leases_run_out
from tests.spark.test_resumed_state import stop_stores

pytestmark = pytest.mark.spark

BEFORE, BEHIND = Cut("commit out", moment="before"), Cut("commit out", moment="after")
"""Its rows count nowhere yet; they are in the table, and Spark has not committed the batch."""
TABLE: list[str] = []


def once(numbers: DataFrame) -> DataFrame:
    return numbers.dropDuplicates(["id"])


def small_once(numbers: DataFrame) -> DataFrame:
    return numbers.where("id < 200").dropDuplicates(["id"])


def known_once(numbers: DataFrame) -> DataFrame:
    known = numbers.sparkSession.read.format("delta").load(TABLE[0])
    return numbers.join(known, "id").dropDuplicates(["k"]).select(F.col("k").alias("id"))


def narrow(numbers: DataFrame) -> DataFrame:
    return numbers


def wide(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("tens", F.col("id") * 10)


def declared(transform: str) -> Stream:
    return Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("out"),
    )


def arrive(lab: Lab, number: int, *found: int) -> None:
    write_files(lab.root / "in", {f"{number}.json": "\n".join(f'{{"id": {one}}}' for one in found)}, first=number)


def die(lab: Lab, transform: str, cut: Cut, *, is_gone: bool) -> None:
    """A driver dies; it is known to be gone, or may stand still and wake up."""
    killed(lab, declared(transform), cut)
    if is_gone:
        for leases in (lab.root / "home").rglob("leases"):
            shutil.rmtree(leases)
    else:
        let_leases_run_out(lab.root / "home")
    stop_stores(lab)


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("goes_back", [False, True])
def test_edited_and_killed_twice(lab: Lab, *, goes_back: bool, is_gone: bool) -> None:
    """The code that made the rows goes on with the batch; the one that planned it is refused, with a way out."""
    arrive(lab, 0, 1)
    lab.run(declared("once"))
    arrive(lab, 1, 2, 250)
    die(lab, "once", BEFORE, is_gone=is_gone)
    die(lab, "small_once", BEHIND, is_gone=is_gone)
    if goes_back:
        with pytest.raises(RefusedError, match="would be read by another transform") as refused:
            lab.run(declared("once"))
        read_remedy(refused.value, "READ_OTHERWISE", "set it back, run the stream once")
    (batch,) = lab.run(declared("small_once")).batches
    assert (batch.batch_id, batch.changed) == (1, ())
    arrive(lab, 2, 250, 3, 2)
    lab.run(declared("once"))
    assert ids(lab.table("out")) == [1, 2, 3, 250]


def test_rows_that_come_while_a_run_begins(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a driver that wakes up just then: the run with the edited code does not count as who made them."""
    arrive(lab, 0, 1)
    lab.run(declared("once"))
    arrive(lab, 1, 2, 250)
    die(lab, "once", BEHIND, is_gone=False)
    with monkeypatch.context() as patch:
        # As it was when that was looked at.
        patch.setattr("sluice.planning.survey.sink_has_newest", lambda _: False)
        with pytest.raises(BatchFailedError, match="written by the driver of a try before, which had stood still"):
            lab.run(declared("small_once"))
    with pytest.raises(RefusedError, match="would be read by another transform"):
        lab.run(declared("small_once"))
    lab.run(declared("once"))
    arrive(lab, 2, 250, 3, 2)
    lab.run(declared("once"))
    assert ids(lab.table("out")) == [1, 2, 3, 250]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_joined_table_that_changes(lab: Lab, *, is_gone: bool) -> None:
    """The state of a driver that died behind the sink's commit stays, and goes on with the rows that it has made."""
    TABLE[:] = [str(lab.root / "known")]

    def know(*pairs: tuple[int, int]) -> None:
        known = lab.spark.createDataFrame([*pairs], "id bigint, k bigint")
        known.write.format("delta").mode("overwrite").save(TABLE[0])

    know((1, 1), (2, 2))
    arrive(lab, 0, 1)
    lab.run(declared("known_once"))
    arrive(lab, 1, 2)
    die(lab, "known_once", BEFORE, is_gone=is_gone)
    die(lab, "known_once", BEHIND, is_gone=is_gone)
    know((1, 1), (2, 7), (3, 7), (4, 2))
    lab.run(declared("known_once"))
    arrive(lab, 2, 3, 4)
    lab.run(declared("known_once"))
    assert ids(lab.table("out")) == [1, 2, 7]


def test_a_joined_table_and_a_driver_that_wakes_up(lab: Lab) -> None:
    """Its state is taken back, and computed anew of the table that the rows were made with, which is to be set back."""
    TABLE[:] = [str(lab.root / "known")]
    known = lab.spark.createDataFrame([(1, 1), (2, 2)], "id bigint, k bigint")
    known.write.format("delta").save(TABLE[0])
    arrive(lab, 0, 1)
    lab.run(declared("known_once"))
    arrive(lab, 1, 2)
    die(lab, "known_once", BEFORE, is_gone=False)
    die(lab, "known_once", BEHIND, is_gone=False)
    first = sorted((lab.root / "home").rglob("leases/**/*.json"))[1]
    first.write_text(json.dumps(json.loads(first.read_bytes()) | {"expires_at": "2026-01-01T00:00:10Z"}))
    lab.spark.sql(f"UPDATE delta.`{TABLE[0]}` SET k = 7 WHERE id = 2")
    for _ in range(2):
        with pytest.raises(RefusedError, match="would be read by another") as refused:
            lab.run(declared("known_once"))
    read_remedy(refused.value, "READ_OTHERWISE", "set it back, run the stream once, and change it then")
    lab.spark.sql(f"RESTORE delta.`{TABLE[0]}` TO VERSION AS OF 0")
    lab.run(declared("known_once"))
    lab.spark.sql(f"RESTORE delta.`{TABLE[0]}` TO VERSION AS OF 1")
    lab.spark.sql(f"INSERT INTO delta.`{TABLE[0]}` VALUES (3, 7), (4, 2)")
    arrive(lab, 2, 3, 4)
    lab.run(declared("known_once"))
    assert ids(lab.table("out")) == [1, 2, 7]


@pytest.mark.parametrize("is_killed", [False, True])
def test_columns_that_are_gone(lab: Lab, *, is_killed: bool) -> None:
    """Told of by who wrote the table last: no nulls come into a column that the batch before has filled."""
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'out'}` (id bigint, tens bigint) USING delta")
    arrive(lab, 0, 1)
    lab.run(declared("narrow"))
    arrive(lab, 1, 2)
    if is_killed:
        die(lab, "narrow", Cut("offsets/", moment="after"), is_gone=True)
    (batch,) = lab.run(declared("wide")).batches
    assert batch.changed == (("transform",) if is_killed else ())
    arrive(lab, 2, 3)
    with pytest.raises(DeclarationError, match="tens: bigint in the table, no longer in the result"):
        lab.run(declared("narrow"))
    lab.run(declared("wide"))
    assert rows(lab.table("out")) == [(1, None), (2, 20), (3, 30)]
