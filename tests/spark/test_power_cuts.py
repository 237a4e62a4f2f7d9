"""The power that histories cut is gone for good, and leaves what a kill does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from sluice.storage import Storage
from tests.spark.history_inputs import Inputs
from tests.spark.history_streams import WIDE, Declared
from tests.spark.lab import Lab
from tests.spark.power_cuts import Cut, Moment, PowerCutError, let_leases_run_out, power_cut


@pytest.mark.parametrize(("moment", "is_there"), [("before", False), ("middle", False), ("after", True)])
def test_a_document(tmp_path: Path, moment: Moment, *, is_there: bool) -> None:
    """It is there whole or not at all; the middle leaves a half of it under another name."""
    storage, file = Storage(), tmp_path / "runs" / "7.json"
    with power_cut(Cut("runs/*.json", 2, moment), tmp_path) as writes:
        storage.replace(str(file), b"first")
        storage.replace(str(tmp_path / "gate.json"), b"gate")
        with pytest.raises(PowerCutError):
            storage.replace(str(file), b"second")
        with pytest.raises(PowerCutError):
            storage.delete(str(file))

    assert writes.at == "replace runs/*.json"
    assert file.read_bytes() == (b"second" if is_there else b"first")
    halves = [found.read_bytes() for found in file.parent.glob(".*.tmp")]
    assert halves == ([b"sec"] if moment == "middle" else [])


def test_a_lease_is_written_until_the_power_is_gone(tmp_path: Path) -> None:
    """It is written by the clock, so that no history would be the same twice."""
    storage, lease = Storage(), str(tmp_path / "home" / "leases" / "0001" / "1.json")
    with power_cut(Cut(), tmp_path):
        storage.replace(lease, b"{}")
        with pytest.raises(PowerCutError):
            storage.replace(str(tmp_path / "a.json"), b"{}")
        with pytest.raises(PowerCutError):
            storage.replace(lease, b"{}")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_of_metadata(tmp_path: Path, moment: Moment) -> None:
    """What delta-rs commits is there, or is not."""
    table = tmp_path / "out"
    write_deltalake(str(table), pa.table({"n": [1]}))
    opened = DeltaTable(str(table))
    with power_cut(Cut("out", 1, moment), tmp_path) as writes, pytest.raises(PowerCutError):
        opened.create_write_transaction(list[AddAction](), "append", opened.schema())

    assert writes.at == "commit out"
    assert DeltaTable(str(table)).version() == (moment == "after")


@pytest.mark.spark
@pytest.mark.parametrize(("moment", "files"), [("before", 0), ("middle", 1), ("after", 2)])
def test_a_folder_that_spark_writes(lab: Lab, moment: Moment, files: int) -> None:
    """The middle leaves some of its files."""
    frame = lab.spark.range(10).repartition(2)
    with power_cut(Cut("aside", 1, moment), lab.root) as writes, pytest.raises(PowerCutError):
        frame.write.parquet(str(lab.root / "aside"))

    assert writes.at == "Spark's parquet aside"
    assert len([*(lab.root / "aside").glob("part-*")]) == files


@pytest.mark.spark
@pytest.mark.parametrize(("moment", "rows", "files"), [("before", 1, 1), ("middle", 1, 2), ("after", 2, 2)])
def test_a_table_that_spark_writes(lab: Lab, moment: Moment, rows: int, files: int) -> None:
    """The middle leaves a file of no commit."""
    place = str(lab.root / "out")
    lab.spark.range(1).repartition(1).write.format("delta").save(place)
    frame = lab.spark.range(1).repartition(1)
    with power_cut(Cut("out", 1, moment), lab.root) as writes, pytest.raises(PowerCutError):
        frame.write.format("delta").mode("append").save(place)

    assert writes.at == "Spark's save out"
    assert DeltaTable(place).to_pyarrow_table().num_rows == rows
    assert len([*(lab.root / "out").glob("part-*")]) == files


@pytest.mark.spark
@pytest.mark.parametrize(
    ("what", "moment", "commits", "files"),
    [
        ("Spark's stream", "before", (1, 1), 1),
        ("Spark's stream", "middle", (1, 1), 2),
        ("Spark's stream", "after", (2, 1), 2),
        ("Spark's commit", "before", (2, 1), 2),
        ("Spark's commit", "after", (2, 2), 2),
    ],
)
def test_a_batch_that_spark_s_own_writer_writes(
    lab: Lab, what: str, moment: Moment, commits: tuple[int, int], files: int
) -> None:
    """The middle leaves its data files without Delta's commit, and the next run repeats it."""
    declared = Declared(transform=WIDE, policy="none")
    stream = declared.stream()
    inputs = Inputs(lab.root, lab.checkpoint(stream))
    inputs.begin(has_table=False, has_watermark=False)
    inputs.write_file(inputs.make_rows([0]))
    lab.run(stream)
    inputs.write_file(inputs.make_rows([0]))
    with power_cut(Cut(what, 1, moment), lab.root) as writes, pytest.raises(PowerCutError):
        lab.run(stream)

    assert writes.at is not None
    table = lab.root / "out"
    assert (len([*table.glob("_delta_log/*.json")]), inputs.newest("commits") + 1) == commits
    assert len([*table.glob("part-*")]) == files
    let_leases_run_out(lab.root / "home")
    lab.run(stream)
    assert sorted(row["n"] for row in lab.table("out").collect()) == [0, 1]
