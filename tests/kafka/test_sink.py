"""A topic as a sink: each row once for each try of its batch, which the batch's header tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, NotThereError
from tests.kafka.topics import Kafka
from tests.spark.lab import Lab, rows, uncommit, write_numbers
from tests.spark.power_cuts import Cut, power_cut

pytestmark = pytest.mark.spark


def records(n: DataFrame) -> DataFrame:
    return n.select(F.col("id").cast("string").alias("key"), F.to_json(F.struct("id")).alias("value"))


def with_headers(n: DataFrame) -> DataFrame:
    own = F.expr("array(struct('own' as key, binary('x') as value))")
    return records(n).withColumn("headers", F.when(F.col("key") == "0", own))


def with_keyless_header(n: DataFrame) -> DataFrame:
    return records(n).withColumn("headers", F.expr("array(struct(cast(null as string) as key, binary('x') as value))"))


def with_other_case(n: DataFrame) -> DataFrame:
    return with_headers(n).withColumnsRenamed({"key": "Key", "value": "VALUE", "headers": "Headers"})


def passed(n: DataFrame) -> DataFrame:
    return n.select("key", "value", "headers")


def by_topic(n: DataFrame) -> DataFrame:
    return records(n).withColumn("topic", F.concat(F.lit("by-topic-"), F.expr("cast(key as int) % 2")))


def no_value(n: DataFrame) -> DataFrame:
    return n.select(F.col("id").cast("string").alias("key"))


def plain(n: DataFrame) -> DataFrame:
    return n


def numeric(n: DataFrame) -> DataFrame:
    return n.select(F.col("id").alias("value"))


def stream(kafka: Kafka, topic: str | None, transform: str = "records", **changes: Any) -> Stream:
    known: dict[str, Any] = {
        "name": "out",
        "sources": {"n": sources.files("in", format="json", schema="id bigint")},
        "transform": f"{__name__}:{transform}",
        "sink": sinks.kafka(kafka.bootstrap, topic=topic),
    }
    return Stream(**known | changes)


def sent(kafka: Kafka, topic: str) -> list[tuple[str | None, str, dict[str, str]]]:
    """Key, value and headers of every record of a topic with one partition."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "tests", "enable.partition.eof": False})
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=60)
    consumer.assign([place])
    found = []
    while len(found) < end:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        key, value = message.key(), message.value()
        told = [(name, content.decode()) for name, content in message.headers() or []]
        headers = dict(told)
        assert len(headers) == len(told)
        assert len(headers.pop("sluice.query")) == 36
        found.append((key.decode() if key is not None else None, value.decode(), headers))
    consumer.close()
    return found


def test_rows_become_records(lab: Lab, kafka: Kafka) -> None:
    """With the id of their batch."""
    topic = kafka.topic()
    made = stream(kafka, topic)
    write_numbers(lab.root / "in", 1)
    lab.run(made)
    write_numbers(lab.root / "in", 1, first=1)
    lab.run(made)

    assert sent(kafka, topic) == [
        ("0", '{"id":0}', {"sluice.batch": "0"}), ("1", '{"id":1}', {"sluice.batch": "1"}),
    ]  # fmt: skip


def test_a_batch_that_came_again(lab: Lab, kafka: Kafka) -> None:
    """Kafka does not know what it has: at least once, told by the header."""
    topic = kafka.topic()
    made = stream(kafka, topic)
    write_numbers(lab.root / "in", 2)
    lab.run(made)
    uncommit(lab.checkpoint(made), 0)

    lab.run(made)

    found = sent(kafka, topic)
    assert len(found) == 4
    assert len({(key, headers["sluice.batch"]) for key, _, headers in found}) == 2


def into_both(n: DataFrame) -> dict[str, DataFrame]:
    return {"table": n.where("id % 2 = 0"), "topic": records(n.where("id % 2 = 1"))}


def into_the_table(n: DataFrame) -> dict[str, DataFrame]:
    """As if somebody had edited it."""
    return {"table": n, "topic": records(n.where("false"))}


def test_beside_a_table(lab: Lab, kafka: Kafka) -> None:
    """What the topic was sent of a batch, it is sent again when the table has not got its part; and nothing else."""
    topic = kafka.topic()
    known = {"sink": None, "sinks": {"table": sinks.delta("table"), "topic": sinks.kafka(kafka.bootstrap, topic=topic)}}
    write_numbers(lab.root / "in", 4)
    with power_cut(Cut("commit table", 1, "before"), lab.root) as writes, pytest.raises(BaseException):  # noqa: B017, PT011
        lab.run(stream(kafka, None, "into_both", **known))
    assert writes.at is not None
    for leases in (lab.root / "home").rglob("leases"):
        leases.rename(leases.with_name("earlier"))

    record = lab.run(stream(kafka, None, "into_the_table", **known))

    assert sorted(sent(kafka, topic)) == [
        (key, f'{{"id":{key}}}', {"sluice.batch": "0"}) for key in ("1", "1", "3", "3")
    ]  # fmt: skip
    assert rows(lab.spark_table("table")) == [(0,), (2,)]
    assert [batch.rows_by_sink for batch in record.batches] == [{"table": 2, "topic": 2}]


def test_beside_a_table_into_no_topic(lab: Lab, kafka: Kafka) -> None:
    """It is asked for before anything is planned: corrected, the stream begins."""
    write_numbers(lab.root / "in", 2)
    for topic in ("nowhere-at-all", kafka.topic()):
        into = {"table": sinks.delta("table"), "topic": sinks.kafka(kafka.bootstrap, topic=topic)}
        made = stream(kafka, None, "into_both", sink=None, sinks=into)
        if topic.startswith("nowhere"):
            with pytest.raises(NotThereError, match="there is no topic `nowhere-at-all`"):
                lab.run(made)
    assert [batch.rows_by_sink for batch in lab.run(made).batches] == [{"table": 1, "topic": 1}]


def into_both_without_a_key(n: DataFrame) -> dict[str, DataFrame]:
    return {"table": n.where("id % 2 = 0"), "topic": with_keyless_header(n.where("id % 2 = 1"))}


def test_a_header_without_a_key_beside_a_table(lab: Lab, kafka: Kafka) -> None:
    """Found before anything is sent, or decided: the corrected transform decides."""
    topic = kafka.topic()
    known = {"sink": None, "sinks": {"table": sinks.delta("table"), "topic": sinks.kafka(kafka.bootstrap, topic=topic)}}
    write_numbers(lab.root / "in", 2)
    with pytest.raises(DeclarationError, match=r"a header of a row has no key .* give each one a key"):
        lab.run(stream(kafka, None, "into_both_without_a_key", **known))
    lab.run(stream(kafka, None, "into_both", **known))
    assert sent(kafka, topic) == [("1", '{"id":1}', {"sluice.batch": "0"})]


def test_headers_of_ones_own(lab: Lab, kafka: Kafka) -> None:
    """They stay, and a row may have none."""
    topic = kafka.topic()
    write_numbers(lab.root / "in", 2)
    lab.run(stream(kafka, topic, "with_headers"))

    assert {key: headers for key, _, headers in sent(kafka, topic)} == {
        "0": {"own": "x", "sluice.batch": "0"}, "1": {"sluice.batch": "0"},
    }  # fmt: skip


def test_a_header_without_a_key(lab: Lab, kafka: Kafka) -> None:
    """Kafka has none: the batch fails with a message, and nothing is left out without a word."""
    topic = kafka.topic()
    write_numbers(lab.root / "in", 1)

    with pytest.raises(DeclarationError, match=r"a header of a row has no key .* give each one a key"):
        lab.run(stream(kafka, topic, "with_keyless_header"))
    assert sent(kafka, topic) == []


def test_headers_of_another_stream(lab: Lab, kafka: Kafka) -> None:
    """What was read from a topic that another one wrote bears this one's batch."""
    first, second = kafka.topic(), kafka.topic()
    write_numbers(lab.root / "in", 1)
    lab.run(stream(kafka, first, "with_headers"))
    source = sources.kafka(kafka.bootstrap, topics=[first], include_headers=True)
    lab.run(stream(kafka, second, "passed", name="pass", sources={"n": source}))

    assert sent(kafka, second) == [("0", '{"id":0}', {"own": "x", "sluice.batch": "0"})]


def test_a_topic_for_each_row(lab: Lab, kafka: Kafka) -> None:
    """Where none is declared, the column says it."""
    topics = [kafka.topic(name=f"by-topic-{number}") for number in range(2)]
    write_numbers(lab.root / "in", 3)
    lab.run(stream(kafka, None, "by_topic"))

    assert [sorted(key or "" for key, _, _ in sent(kafka, topic)) for topic in topics] == [["0", "2"], ["1"]]


@pytest.mark.parametrize(
    ("transform", "topic", "told"),
    [
        ("plain", "t", "has a column `id`, which a record does not have"),
        ("numeric", "t", "column `value` of the result is bigint"),
        ("no_value", "t", "no column `value`"),
        ("with_other_case", "t", "has a column `Key`, and Spark's writer looks for `key`.*name it `key`"),
        ("records", None, "no topic is named"),
    ],
)
def test_a_result_that_is_no_record(lab: Lab, kafka: Kafka, transform: str, topic: str | None, told: str) -> None:
    """Told before a batch is planned."""
    made = stream(kafka, topic and kafka.topic(), transform)
    write_numbers(lab.root / "in", 1)

    with pytest.raises(DeclarationError, match=told):
        lab.run(made)
    assert not (lab.checkpoint(made) / "offsets").exists()


def test_a_topic_that_is_not_there(lab: Lab, kafka: Kafka) -> None:
    """Known by a plan; Spark would wait for a minute in every task."""
    write_numbers(lab.root / "in", 1)
    with pytest.raises(NotThereError, match="there is no topic `nowhere`"):
        lab.plan(stream(kafka, "nowhere"))


def test_one_stream_after_the_other(lab: Lab, kafka: Kafka) -> None:
    """What one writes, another reads: the lineage of a project knows it."""
    topic = kafka.topic()
    reads = sources.kafka(kafka.bootstrap, topics=[topic])
    writes = stream(kafka, topic).sink

    assert writes.location is not None
    assert reads.reads_from(writes.location)
    assert Path(writes.location).name == topic
