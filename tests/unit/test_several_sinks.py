"""Several sinks of one stream: whoever asks where it writes is told all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice import Stream, sinks, sources
from sluice.declarations import Surroundings, resolve_stream
from sluice.errors import DeclarationError
from sluice.lineage.run_datasets import outputs_of
from sluice.planning.stream_order import upstreams
from sluice.runs.record import BatchRecord, describe_batch
from sluice.sinks.contract import Sink
from sluice.table_writers import written_tables
from tests.builders import make_stream
from tests.unit.lineage.records import make_record

BATCH = BatchRecord(
    batch_id=0, kind="data", input_rows=5, output_rows=5, watermark=None, rows_by_sink={"good": 3, "rest": 2}
)


def several(good: Sink, rest: Sink) -> Stream:
    return make_stream(sink=None, sinks={"good": good, "rest": rest})


def resolved(root: Path, good: Sink, rest: Sink, moving: str | None = None) -> Stream:
    return resolve_stream(several(good, rest), Surroundings(str(root), moving))


def test_who_reads_one_of_them_comes_after(tmp_path: Path) -> None:
    """Whichever it is."""
    writer = resolved(tmp_path, sinks.delta("good"), sinks.delta("rest"))
    assert written_tables(writer) == {"sink": f"{tmp_path}/good", "sink `rest`": f"{tmp_path}/rest"}
    for table in ("good", "rest"):
        declared = make_stream(name="after", sources={"n": sources.delta(table)}, sink=sinks.delta("out"))
        reader = resolve_stream(declared, Surroundings(str(tmp_path)))
        assert upstreams({"after": reader, "visits": writer}) == {"after": ["visits"], "visits": []}


def test_places_that_lie_in_each_other(tmp_path: Path) -> None:
    """What cleans up the outer table would delete the inner one; a topic is no folder."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    for inner in ("lake/a/b", "link/a/b"):
        with pytest.raises(DeclarationError, match="one place below the other's"):
            resolved(tmp_path, sinks.delta("lake/a"), sinks.delta(inner))
    several(sinks.delta("a"), sinks.kafka("host:9092", topic="t"))


def test_none_lies_where_the_next_version_of_a_bundle_has_another_folder(tmp_path: Path) -> None:
    """Nor the second."""
    with pytest.raises(DeclarationError, match="sink `rest` of stream `visits` is"):
        resolved(tmp_path, sinks.delta("/lake/good"), sinks.delta("moving/rest"), f"{tmp_path}/moving")


def test_what_a_run_has_written() -> None:
    """Each, with its own rows."""
    stream = several(sinks.delta("/lake/good"), sinks.delta("/lake/rest"))
    record = make_record(batches=(BATCH,))
    told = {found.name: found.outputFacets["outputStatistics"].rowCount for found in outputs_of(stream, record)}
    assert told == {"/lake/good": 3, "/lake/rest": 2}
    assert "5 rows in, 5 out, 3 into good, 2 into rest" in describe_batch(BATCH)
