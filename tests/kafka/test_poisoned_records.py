"""Records that nobody can read, and such without a key: they go where the suite says, are counted, and hold up none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import QualityFailedError
from tests.kafka.topics import Kafka, Row
from tests.spark.lab import Lab
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

AVRO = (
    '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": "string"}]}'
)
POISONED = 4


def read_as(orders: DataFrame, order: Any) -> DataFrame:
    """An order that can't be read has no `id`; where it is, the quarantine tells, too."""
    found = orders.select(F.col("key").cast("string").alias("key"), "partition", "offset", order.alias("order"))
    return found.select("key", "partition", "offset", "order.id", "order.by")


def from_json(orders: DataFrame) -> DataFrame:
    return read_as(orders, F.from_json(F.col("value").cast("string"), "id bigint, by string"))


def from_avro(orders: DataFrame) -> DataFrame:
    from pyspark.sql.avro.functions import from_avro as read

    return read_as(orders, read(F.col("value"), AVRO, {"mode": "PERMISSIVE"}))


def as_json(number: int) -> str:
    return f'{{"id": {number}, "by": "ada"}}'


def as_avro(number: int) -> bytes:
    """A small number is one byte, doubled; a text has its length before it."""
    return bytes([2 * number, 6]) + b"ada"


JSON_ROWS: tuple[Row, ...] = (("k", '{"id": 3, "by": '), ("k", None), ("k", '{"id": "three"}'), (None, as_json(4)))
AVRO_ROWS: tuple[Row, ...] = (("k", as_avro(3)[:3]), ("k", None), ("k", b"\xff"), (None, as_avro(4)))


def poisoned(kafka: Kafka, write: Callable[[int], str | bytes], rows: tuple[Row, ...], transform: str) -> Stream:
    topic = kafka.topic()
    kafka.send(topic, [("k", write(1)), ("k", write(2)), *rows, ("k", write(5))])
    return Stream(
        name="orders",
        sources={"orders": sources.kafka(kafka.bootstrap, topics=[topic])},
        transform=f"{__name__}:{transform}",
        sink=sinks.delta("orders"),
        quality="suite.json",
    )


def expect(lab: Lab, policy: str) -> None:
    columns = ("id", "key")
    rules = [row("expect_column_values_to_not_be_null", policy=policy, column=column) for column in columns]
    (lab.root / "suite.json").write_bytes(document(*rules))


def ids(lab: Lab, path: str) -> Counter[int | None]:
    return Counter(found["id"] for found in lab.table(path).select("id").collect())


@pytest.mark.parametrize(
    ("write", "rows", "transform"), [(as_json, JSON_ROWS, "from_json"), (as_avro, AVRO_ROWS, "from_avro")]
)
def test_the_quarantine_takes_them(
    lab: Lab, kafka: Kafka, write: Callable[[int], str | bytes], rows: tuple[Row, ...], transform: str
) -> None:
    """Broken, empty, of another type, without a key: each with its partition and offset, by which it is found again."""
    expect(lab, "quarantine")
    made = poisoned(kafka, write, rows, transform)
    done = lab.run(made)
    assert done.quality is not None
    assert (done.batches[0].input_rows, done.quality.quarantined) == (7, POISONED)
    assert ids(lab, "orders") == Counter([1, 2, 5])
    assert ids(lab, "orders_quarantine") == Counter([None, None, None, 4])
    assert {found["offset"] for found in lab.table("orders_quarantine").collect()} == {2, 3, 4, 5}
    assert lab.plan(made).verdict == "skip"


def test_they_are_dropped(lab: Lab, kafka: Kafka) -> None:
    """As somebody has declared; the record tells how many."""
    expect(lab, "drop")
    done = lab.run(poisoned(kafka, as_json, JSON_ROWS, "from_json"))
    assert done.quality is not None
    assert done.quality.dropped == POISONED
    assert ids(lab, "orders") == Counter([1, 2, 5])


def test_they_fail_the_run(lab: Lab, kafka: Kafka) -> None:
    """Nothing of the batch is published until somebody decides."""
    expect(lab, "fail")
    made = poisoned(kafka, as_json, JSON_ROWS, "from_json")
    with pytest.raises(QualityFailedError):
        lab.run(made)
    expect(lab, "quarantine")
    lab.run(made)
    assert ids(lab, "orders") + ids(lab, "orders_quarantine") == Counter([1, 2, 4, 5, None, None, None])
