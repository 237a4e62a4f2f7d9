"""Whole lives of a stream that reads topics: whatever happens in between, each record is in the table once."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.planning.planner import Limits
from sluice.sources.contract import Bound
from sluice.sources.kafka.source import KafkaSource
from sluice.spark.left_behind import forget_tables
from tests.campaign import CAMPAIGN
from tests.kafka.topics import Kafka
from tests.spark.lab import Lab
from tests.spark.power_cuts import Cut, power_cut

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def plain(records: DataFrame) -> DataFrame:
    return records.select(F.col("value").cast("string").cast("bigint").alias("id"))


def once(records: DataFrame) -> DataFrame:
    return plain(records).dropDuplicates(["id"])


class History:
    """One stream, two topics that an expression names, and what was sent."""

    def __init__(self, lab: Lab, kafka: Kafka, draw: random.Random) -> None:
        self.lab, self.kafka, self.draw = lab, kafka, draw
        self.name = f"life-{draw.getrandbits(32):08x}"
        partitions = draw.randint(1, 2)
        self.partitions = {kafka.topic(partitions, name=f"{self.name}-0x"): partitions}
        self.sent: list[int] = []
        self.told: list[str] = []
        self.stream = Stream(
            name="life",
            sources={"records": self.source()},
            transform=f"{__name__}:{draw.choice(['plain', 'once'])}",
            sink=sinks.delta("out"),
        )

    def source(self) -> KafkaSource:
        return sources.kafka(
            self.kafka.bootstrap,
            pattern=f"{self.name}-.*",
            max_offsets_per_batch=self.draw.choice([None, 2, 5]),
        )

    def send(self) -> None:
        topic = self.draw.choice(list(self.partitions))
        numbers = range(len(self.sent), len(self.sent) + self.draw.randint(1, 6))
        time_ms = int((NOON + timedelta(seconds=len(self.sent))).timestamp() * 1000)
        partition = self.draw.randrange(self.partitions[topic])
        self.kafka.send(topic, map(str, numbers), partition=partition, timestamp_ms=time_ms)
        self.sent += numbers

    def grow(self) -> None:
        topic = self.draw.choice(list(self.partitions))
        self.partitions[topic] += 1
        self.kafka.add_partitions(topic, self.partitions[topic])

    def add_topic(self) -> None:
        topic = self.kafka.topic(1, name=f"{self.name}-{len(self.partitions)}x")
        self.partitions[topic] = 1

    def edit(self) -> None:
        self.stream = replace(self.stream, sources={"records": self.source()})

    def run(self) -> None:
        until = NOON + timedelta(seconds=self.draw.randint(0, len(self.sent)))
        limits = self.draw.choice([
            Limits(), Limits(), Limits(bound=Bound(until=until)), Limits(max_batches=1), Limits(strategy="drain"),
        ])  # fmt: skip
        self.lab.run(self.stream, limits)

    def die(self) -> None:
        """The power goes at some write of a run."""
        cut = Cut(nth=self.draw.randint(1, 30), moment=self.draw.choice(["before", "middle", "after"]))
        with power_cut(cut, self.lab.root) as writes:
            try:
                self.lab.run(self.stream)
            except BaseException:
                # Whatever it was, nothing was written from there on.
                assert writes.at is not None
        self.told.append(f"died at {writes.at}")
        for leases in (self.lab.root / "home").rglob("leases"):
            shutil.rmtree(leases)
        forget_tables(self.lab.spark)

    def live(self, length: int) -> None:
        steps = [self.send, self.send, self.run, self.die, self.die, self.grow, self.add_topic, self.edit]
        self.send()
        for step in self.draw.choices(steps, k=length):
            self.told.append(step.__name__)
            step()
        self.told.append("end")
        self.lab.run(self.stream)
        found = Counter(row.id for row in self.lab.table("out").collect())
        assert found == Counter(self.sent), self.told
        assert self.lab.plan(self.stream).verdict == "skip", self.told


@pytest.mark.parametrize("seed", range(3 * max(CAMPAIGN, 1)))
def test_every_record_once(lab: Lab, kafka: Kafka, seed: int) -> None:
    """Kills at any write, growth, further topics, bounds, limits that change, exact and drained runs."""
    History(lab, kafka, random.Random(seed)).live(6 + seed % 8)
