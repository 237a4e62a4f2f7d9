"""Files as a sink: what its manifest says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sluice import sinks
from sluice.errors import DeclarationError
from sluice.sinks.contract import SinkState
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from tests.builders import QUERY_ID, put


def test_declaration(tmp_path: Path) -> None:
    """Format, partitions and options are kept; the path is one of the project's."""
    sink = sinks.files("out", format="csv", partition_by=["day"], header=True).resolved(Surroundings(str(tmp_path)))

    assert (sink.location, sink.format, sink.partition_by) == (f"{tmp_path}/out", "csv", ("day",))
    assert sink.options == {"header": "true"}
    assert (sink.is_idempotent, sink.output_modes) == (True, ("append",))


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"format": "jsonl"}, "use one of: avro, binaryFile, csv, json, orc, parquet, text, xml"),
        ({"format": "csv", "heder": True}, "did you mean `header`?"),
        ({"format": "json", "partition_bye": ["day"]}, "did you mean `partition_by`?"),
        ({"format": "json", "compression": None}, "give a string, a number or a boolean"),
    ],
)
def test_refused(options: dict[str, Any], remedy: str) -> None:
    """A wrong option is refused where it is declared, with what to do."""
    with pytest.raises(DeclarationError) as caught:
        sinks.files("out", **options)

    assert (caught.value.where, caught.value.remedy) == ("sinks.files('out')", remedy)


@pytest.mark.parametrize(
    ("names", "state"),
    [
        (None, SinkState(exists=False, notes_every_batch=True)),
        ([], SinkState(exists=True, notes_every_batch=True)),
        (["part-0.json"], SinkState(exists=True, notes_every_batch=True)),
        (["_spark_metadata/0", "_spark_metadata/1"], SinkState(exists=True, last_batch=1, notes_every_batch=True)),
        (["_spark_metadata/9.compact"], SinkState(exists=True, last_batch=9, notes_every_batch=True)),
    ],
)
def test_state(tmp_path: Path, names: list[str] | None, state: SinkState) -> None:
    """The manifest's newest entry is the newest batch; Spark skips every id up to it, whichever the query."""
    out = tmp_path / "out"
    if names is not None:
        out.mkdir()
    for name in names or ():
        put(out / name, "v1")

    assert sinks.files(str(out), format="json").state(QUERY_ID, storage=Storage()) == state


def test_outcome(tmp_path: Path) -> None:
    """A manifest does not count rows, but files of Parquet do: those of the newest batch, where they can be read."""
    part = tmp_path / "a b.parquet"
    parquet.write_table(pa.table({"n": [1, 2, 3]}), part)
    uri = f"file://{tmp_path}/a%20b.parquet"
    line = json.dumps({"path": uri, "size": 1, "isDir": False, "modificationTime": 1, "blockReplication": 1,
                       "blockSize": 1, "action": "add"})  # fmt: skip
    put(tmp_path / "_spark_metadata" / "0", f"v1\n{line}")

    def rows(batch_id: int, file_format: str = "parquet") -> int | None:
        outcome = sinks.files(str(tmp_path), format=file_format).outcome(QUERY_ID, batch_id, storage=Storage())
        return None if outcome is None else outcome.output_rows

    assert (rows(0), rows(0, "json"), rows(1)) == (3, None, None)
    put(tmp_path / "_spark_metadata" / "1", "v1")
    assert (rows(0), rows(1)) == (None, 0)
    put(tmp_path / "_spark_metadata" / "2.compact", f"v1\n{line}\n{line.replace('a%20b', 'c')}")
    assert rows(2) is None
    parquet.write_table(pa.table({"n": [4]}), tmp_path / "c.parquet")
    assert rows(2) == 1
    (tmp_path / "_spark_metadata" / "1").unlink()
    assert rows(2) is None
    part.write_bytes(b"none")
    put(tmp_path / "_spark_metadata" / "3", f"v1\n{line}")
    assert rows(3) is None


@pytest.mark.parametrize("partitions", [(), ("k",), ("K",), ("a:b", "k"), ("a=b",)])
def test_the_layout_of_an_object_store(partitions: tuple[str, ...]) -> None:
    """The manifest has URIs, with escapes, and those of Spark's folders within them."""
    sink = sinks.files("s3://lake/a b/out", format="parquet", partition_by=partitions)
    folders = {"k": "k=1/", "K": "k=1/", "a=b": "a%253Db=1/", "a:b": "a%253Ab=x%2520y/"}
    published = f"s3a://lake/a%20b/out/{''.join(folders[column] for column in partitions)}part-0.parquet"

    sink._check_layout(published, "s")
    for other in (published.replace("lake", "pond"), published.replace("out/", "out/j=1/")):
        with pytest.raises(DeclarationError):
            sink._check_layout(other, "s")


def test_state_whose_name_is_in_the_commit() -> None:
    """Behind a driver that died, Spark passes over the batch in a files sink, and commits it without that name."""
    sink = sinks.files("out", format="parquet")
    key = "spark.sql.streaming.stateStore.checkpointFormatVersion"

    sink.check_settings({key: "1"}, place="stream `s`")
    with pytest.raises(DeclarationError, match="or write into a Delta table"):
        sink.check_settings({key: "2"}, place="stream `s`")
