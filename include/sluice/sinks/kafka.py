"""A topic of Kafka as a sink: each row of a batch becomes a record.

Kafka keeps no batch's id, so a batch that a driver died in is sent once more: at least once, never less. Each record
bears the ids of the query and of the batch as headers, by which whoever reads the topic tells what came again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from sluice.datasets import Dataset
from sluice.declaration_checks import declares
from sluice.errors import DeclarationError, NotThereError
from sluice.kafka.cluster import cluster
from sluice.kafka.settings import (
    check_names,
    check_servers,
    check_topic,
    expanded,
    for_planner,
    for_spark,
    named,
    topic_dataset,
)
from sluice.other_names import KAFKA_SINK_WORDS
from sluice.sinks.contract import FunctionLoader, SinkBatch, SinkUse
from sluice.sinks.row_contract import RowSink
from sluice.sinks.running_query import query_of
from sluice.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sluice.storage import Storage

BATCH_HEADER = "sluice.batch"
"""The header that bears a batch's id, in decimal digits."""
QUERY_HEADER = "sluice.query"
"""The header that tells whose batch it is: the id of the query, which each stream has for itself."""
_COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}
"""What Spark's writer takes, and what each column may be."""
_NO_KEY = "a header of a row has no key"


@dataclass(frozen=True)
class KafkaSink(RowSink):
    """Declared by `sinks.kafka`."""

    kind: ClassVar[str] = "kafka"
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time", "continuous", "real-time")

    servers: str
    topic: str | None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def needs_jars(self) -> bool:
        return True

    @property
    def location(self) -> str:
        return f"kafka://{self.servers}/{self.topic or ''}"

    @property
    def dataset(self) -> Dataset | None:
        return None if self.topic is None else topic_dataset(self.servers, self.topic)

    def resolved(self, around: Surroundings) -> KafkaSink:
        servers, settings = expanded(self.servers, self.settings, around.root, self._place)
        return replace(self, servers=servers, settings=settings)

    def check_table(self, use: SinkUse) -> None:
        """Spark would wait for a topic that is not there for a minute, in every task."""
        asked = cluster(for_planner(self.servers, self.settings, self._place))
        if self.topic is None:
            # Each row names its own: what can be known is whether the cluster lets this user in.
            asked.topic_names()
        elif not asked.topics([self.topic]):
            raise NotThereError(
                f"there is no topic `{self.topic}`",
                where=self.location,
                remedy="make it, or correct the name; nothing is made by writing to it",
            )

    def check_result(self, frame: DataFrame, use: SinkUse) -> None:
        types = {column.name: column.dataType.simpleString() for column in frame.schema.fields}
        where = f"{use.place}, {self._place}"
        for name, found in types.items():
            if name.lower() in _COLUMNS.keys() - {name}:
                raise DeclarationError(
                    f"the result has a column `{name}`, and Spark's writer looks for `{name.lower()}`",
                    where=where,
                    remedy=f"name it `{name.lower()}`",
                )
            if name not in _COLUMNS:
                raise DeclarationError(
                    f"the result has a column `{name}`, which a record does not have",
                    where=where,
                    remedy="put what is to be told into `value`, as by `to_json(struct(...))`; a record has "
                    + ", ".join(f"`{one}`" for one in _COLUMNS),
                )
            if found not in _COLUMNS[name]:
                raise DeclarationError(
                    f"column `{name}` of the result is {found}",
                    where=where,
                    remedy=f"cast it: a record's is {' or '.join(_COLUMNS[name])}",
                )
        if "value" not in types:
            raise DeclarationError(
                "the result has no column `value`",
                where=where,
                remedy="put what a record says into it, as by `to_json(struct(...))`",
            )
        if self.topic is None and "topic" not in types:
            raise DeclarationError(
                "no topic is named, and the result has no column `topic`",
                where=where,
                remedy='declare one, `sinks.kafka(SERVERS, topic="NAME")`, or give each row its own',
            )

    def batch_function(self, load_function: FunctionLoader) -> Callable[[DataFrame, int], None]:
        return self._send

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        return frame.writeStream.foreachBatch(self._send)

    def row_writer(self, frame: DataFrame) -> DataStreamWriter:
        """Without the headers of ours: there is no batch that they could tell of."""
        writer = frame.writeStream.format("kafka").option("includeHeaders", "true")
        writer = writer.options(**for_spark(self.servers, self.settings))
        return writer if self.topic is None else writer.option("topic", self.topic)

    def check_rows(self, frame: DataFrame, *, storage: Storage) -> None:
        if "headers" in frame.columns and not frame.where("exists(headers, one -> one.key IS NULL)").isEmpty():
            raise self._no_key()

    def _no_key(self) -> DeclarationError:
        return DeclarationError(
            _NO_KEY, where=self._place, remedy="give each one a key in the transform, or leave it out there"
        )

    def write_batch(
        self, frame: DataFrame, batch: SinkBatch, *, load_function: FunctionLoader, storage: Storage
    ) -> None:
        self._send(frame, batch.batch_id)

    def _send(self, frame: DataFrame, batch_id: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        ours = {QUERY_HEADER: query_of(frame), BATCH_HEADER: str(batch_id)}
        told = [(name, text) for name, text in ours.items() if text is not None]
        pairs = [F.struct(F.lit(name).alias("key"), F.lit(text).cast("binary").alias("value")) for name, text in told]
        own = F.array(*pairs)
        if "headers" in frame.columns:
            given = F.coalesce(F.col("headers"), F.array().cast(_COLUMNS["headers"][0]))
            # What was read from a topic that Sluice has written bears those of the batch that it was sent in. One
            # without a key would be left out with them; Spark's writer fails by a null pointer.
            fails = F.raise_error(F.lit(_NO_KEY))
            named = F.filter(given, lambda one: F.when(one["key"].isNull(), fails).otherwise(~one["key"].isin(*ours)))
            own = F.concat(named, own)
        writer = frame.withColumn("headers", own).write.format("kafka").option("includeHeaders", "true")
        writer = writer.options(**for_spark(self.servers, self.settings))
        if self.topic is not None:
            writer = writer.option("topic", self.topic)
        try:
            writer.save()
        except Exception as exc:
            if _NO_KEY not in str(exc):
                raise
            raise self._no_key() from exc

    @property
    def _place(self) -> str:
        return f"sinks.kafka({self.servers!r})"


@declares("sinks.kafka()", KAFKA_SINK_WORDS)
def kafka(servers: str, *, topic: str | None = None, settings: Mapping[str, str] | None = None) -> KafkaSink:
    """Declare a topic of Kafka as a sink, which gets each row of a batch at least once.

    The result's columns are a record's: `value string or binary`, and if wanted `key`, `headers`, `partition`, and
    `topic` where none is declared. Each record gets the headers `sluice.query` and `sluice.batch`, but where Spark
    passes rows on one by one (the triggers `continuous` and `real-time`).

    Args:
        servers: Where the cluster is: `HOST:PORT`, several with commas between; `${NAME}` stands for a variable.
        topic: Where every row goes; without it, the column `topic` says it for each.
        settings: Settings of Kafka's producer by the names of the one in Java; `${NAME}` stands for a variable.

    Raises:
        DeclarationError: The servers, the topic or a setting is none.
    """
    place = named("sinks.kafka", servers)
    found = check_servers(servers, place)
    if topic is not None:
        check_topic(topic, place)
    return KafkaSink(found, topic, check_names(settings, place))
