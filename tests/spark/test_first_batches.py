"""What is wrong with the shape of a query is told before its first batch is planned, which would pin it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, QueryRefusedError
from sluice.running.check import check_project
from sluice.spark.first_batch_check import ROCKSDB, STATE_STORE
from tests.builders import put
from tests.spark.lab import Lab, rows, write_numbers
from tests.spark.state_processors import Counter

pytestmark = pytest.mark.spark

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def counted(numbers: DataFrame) -> DataFrame:
    keyed = numbers.select((F.col("id") % 3).alias("id")).groupBy("id")
    return keyed.transformWithState(Counter(), "id bigint, count bigint", "Append", "None")


def updated(numbers: DataFrame) -> DataFrame:
    keyed = numbers.select((F.col("id") % 3).alias("id")).groupBy("id")
    return keyed.transformWithState(Counter(), "id bigint, count bigint", "Update", "None")


def unequal(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.join(others.withColumnRenamed("id", "other"), F.col("id") > F.col("other"))


def made(transform: str = "counted", **changes: Any) -> Stream:
    source = sources.files("in", format="json", schema="id bigint")
    known: dict[str, Any] = {
        "name": "numbers",
        "sources": {"numbers": source} | ({"others": source} if transform == "unequal" else {}),
        "transform": f"{__name__}:{transform}",
        "sink": sinks.delta("out"),
    }
    return Stream(**known | changes)


def assert_nothing_is_planned(lab: Lab, stream: Stream) -> None:
    assert not (lab.checkpoint(stream) / "offsets").exists()


def test_a_processor_has_the_store_that_it_needs(lab: Lab) -> None:
    """Nobody need declare it; the session is as it was afterwards, and the checkpoint has it for good."""
    before = lab.spark.conf.get(STATE_STORE, None)
    stream = made()
    for batch in range(2):
        write_numbers(lab.root / "in", 3, first=3 * batch)
        lab.run(stream)

    assert rows(lab.table("out")) == [(key, count) for key in range(3) for count in (1, 2)]
    assert f'"{STATE_STORE}":"{ROCKSDB}"' in (lab.checkpoint(stream) / "offsets" / "0").read_text()
    assert lab.spark.conf.get(STATE_STORE, None) == before
    assert lab.plan(stream).warnings == ()


def test_another_store_is_refused(lab: Lab) -> None:
    """Spark would fail in the first batch, and for ever then."""
    write_numbers(lab.root / "in", 1)
    stream = made(conf={STATE_STORE: HDFS})

    with pytest.raises(DeclarationError, match="keeps its state in RocksDB alone"):
        lab.run(stream)
    assert_nothing_is_planned(lab, stream)
    lab.run(replace(stream, conf={STATE_STORE: ROCKSDB}))
    assert rows(lab.table("out")) == [(0, 1)]


def test_a_processor_of_another_mode_is_refused(lab: Lab) -> None:
    """Spark takes it without a word, and never another one again."""
    write_numbers(lab.root / "in", 1)
    stream = made("updated")

    with pytest.raises(DeclarationError, match='write `outputMode="Append"` in the transform'):
        lab.run(stream)
    assert_nothing_is_planned(lab, stream)


def test_a_join_without_an_equality(lab: Lab) -> None:
    """It is told with Spark's words; the mended one begins as if nothing had been."""
    write_numbers(lab.root / "in", 1)
    stream = made("unequal")

    with pytest.raises(QueryRefusedError, match="without equality predicate"):
        lab.run(stream)
    assert_nothing_is_planned(lab, stream)


def test_check_tells_it_as_well(lab: Lab) -> None:
    """As `sluice check` asks: of a stream that nothing was planned of yet."""
    declares = (
        "from sluice import Stream, sinks, sources\n"
        "numbers = sources.files('in', format='json', schema='id bigint')\n"
        f"joined = Stream(name='joined', sources={{'numbers': numbers, 'others': numbers}}, sink=sinks.delta('a'),"
        f" transform='{__name__}:unequal')\n"
        f"updated = Stream(name='updated', sources={{'numbers': numbers}}, sink=sinks.delta('b'),"
        f" transform='{__name__}:updated')\n"
        f"counted = Stream(name='counted', sources={{'numbers': numbers}}, sink=sinks.delta('c'),"
        f" transform='{__name__}:counted')\n"
    )
    put(lab.root / "streams" / "numbers.py", declares)
    write_numbers(lab.root / "in", 1)
    project = replace(lab.project, stream_folders=(str(lab.root / "streams"),))

    found = {finding.stream: str(finding.error or "") for finding in check_project(project)}

    assert "without equality predicate" in found["joined"]
    assert 'write `outputMode="Append"`' in found["updated"]
    assert found["counted"] == ""
