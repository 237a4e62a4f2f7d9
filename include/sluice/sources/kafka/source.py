"""Topics of Kafka as a source: what arrives are the records behind an offset, in each partition.

Spark takes what lies between two offsets, and the log of the checkpoint bears them; so a plan asks the cluster how far
its partitions reach, and decides. Where the first batch begins is kept in the checkpoint, in `sources/<n>/0`, before
Spark starts: it would ask for the earliest offsets by then, and find others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from sluice.amounts import Waiting, known
from sluice.checkpoint.source_log import LogAddition
from sluice.datasets import Dataset
from sluice.errors import DeclarationError, NotThereError, Problem, RefusedError
from sluice.interval import Interval
from sluice.kafka.cluster import Cluster, Edges, Offsets, Partition, Topic, cluster
from sluice.kafka.settings import expanded, for_planner, for_spark
from sluice.sources.contract import SOURCE_TAG, Available, Bound, ExpiringSource, Position, Slice, Starting, Step
from sluice.sources.kafka.limits import steps
from sluice.sources.kafka.lost_records import Lost, check_kept_whole, needed, shortly_before
from sluice.sources.kafka.offset import read_offset, topic_datasets, write_offset
from sluice.sources.kafka.refusals import (
    backfill_records_gone,
    backfill_topics_gone,
    beyond_end,
    other_topics,
    records_gone,
    records_gone_meanwhile,
    topics_gone,
    topics_gone_unread,
    transaction_open,
)
from sluice.sources.kafka.topic_marks import gone, mark_after, marked, present
from sluice.surroundings import Surroundings
from sluice.times import epoch_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.storage import Storage

_FORMAT = "kafka"
_SCHEME = "kafka://"
_PATIENCE = {"kafkaConsumer.pollTimeoutMs": "30000", "kafka.default.api.timeout.ms": "30000"}
"""How long Spark waits for what does not come: two minutes a try otherwise, and for ever where a topic is gone."""
_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
_HEADERS = "headers array<struct<key: string, value: binary>>"


@dataclass(frozen=True)
class KafkaSource(ExpiringSource):
    """Declared by `sources.kafka`."""

    kind: ClassVar[str] = "kafka"
    live_kinds: ClassVar[tuple[str, ...]] = ("processing-time", "continuous", "real-time")
    unit: ClassVar[str] = "offsets"
    reads_below: ClassVar[str] = _SCHEME  # whichever of the servers a topic is known by

    servers: str
    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[Partition, ...]
    """Those that are read alone; empty where all of the topics are."""
    starting: Starting
    max_offsets_per_batch: int | None
    fail_on_data_loss: bool
    include_headers: bool
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def needs_jars(self) -> bool:
        return True

    @property
    def may_lose(self) -> bool:
        return not self.fail_on_data_loss

    @property
    def location(self) -> str:
        return f"{_SCHEME}{self.servers}/{self.pattern or ','.join(self.topics)}"

    def datasets(self, end: Any) -> tuple[Dataset, ...]:
        return topic_datasets(self.servers, end, self.topics)

    @property
    def reading(self) -> tuple[object, ...]:
        return self.topics, self.pattern, self.partitions, self.include_headers, self._reads_committed

    def resolved(self, around: Surroundings) -> KafkaSource:
        servers, settings = expanded(self.servers, self.settings, around.root, self._place)
        return replace(self, servers=servers, settings=settings)

    def reads_from(self, place: str) -> bool:
        servers, _, topic = place.removeprefix(_SCHEME).partition("/")
        if not place.startswith(_SCHEME) or not set(servers.split(",")) & set(self.servers.split(",")):
            return False
        return topic in self.topics or (self.pattern is not None and self._is_matching(topic))

    def available(self, position: Position, bound: Bound, *, storage: Storage, now: datetime) -> Available:
        read = self._read_so_far(position)
        topics, deleted = self._look(position, read if read is not None else self._logged_start(position))
        partitions = self._read_of(topics)
        edges = self._cluster().edges(partitions, committed_only=self._reads_committed)
        started_at = self._started_at(position, topics, edges)
        start = read if read is not None else self._offsets(started_at)
        unread = {one.topic for one in start} - topics.keys() - deleted
        start = {one: offset for one, offset in start.items() if one.topic in topics}
        self._check_read(start, edges)
        lost = _gone(start, edges)
        if lost and self.fail_on_data_loss:
            raise RefusedError(records_gone(self.location, lost, is_declared=False))
        end = self._bounded(edges, bound)
        begins = {one: max(start.get(one, 0), edges.first[one]) for one in partitions}
        reaches = {one: max(begins[one], end[one]) for one in partitions}
        found = list(steps(begins, reaches, self.max_offsets_per_batch))
        if (lost or deleted) and not found:
            # A batch without records: the stream has to get past what is gone, whatever comes under its name.
            found = [Step(write_offset(reaches), known(offsets=0))]
        if found and read is None and position.log.taken.start is None:
            found[0] = replace(found[0], added=LogAddition(start=write_offset(start)))
        problems = [records_gone(self.location, lost, is_declared=True)] if lost else []
        if deleted:
            problems.append(topics_gone(self.location, _named(deleted), is_declared=True))
        if unread:
            problems.append(topics_gone_unread(self.location, _named(unread)))
        return Available(
            found,
            started_at=started_at,
            problems=tuple(problems),
            later=known(offsets=sum(edges.next[one] - reaches[one] for one in partitions)),
            mark=marked(topics),
            partitions={str(one): Waiting(begins[one], reaches[one]) for one in sorted(partitions)},
        )

    def check_inputs(
        self, position: Position, end: str, *, storage: Storage, is_read: bool = True
    ) -> tuple[Problem, ...]:
        last = read_offset(end, self.location)
        read = self._read_so_far(position)
        begun = read if read is not None else self._logged_start(position)
        start = begun or self._offsets(position.started_at)
        try:
            reached = {**begun, **last} if self.fail_on_data_loss else last
            _, deleted = self._look(position, reached, self._known(position))
            unread = {one.topic for one in last if one.topic in deleted and start.get(one, 0) < last[one]}
            last = {one: offset for one, offset in last.items() if one.topic not in deleted}
            edges = self._cluster().edges(tuple(last), committed_only=self._reads_committed)
            self._check_read(last, edges)
        except RefusedError as exc:
            return (exc.finding,)
        if not is_read:
            return ()
        if is_open := {one: edges.next[one] for one, offset in last.items() if offset > edges.next[one]}:
            return (transaction_open(self.location, is_open),)
        if unread:
            return (topics_gone(self.location, _named(unread), is_declared=False),)
        lost = _gone({one: start.get(one, 0) for one in last}, edges, last)
        return (records_gone(self.location, lost, is_declared=not self.fail_on_data_loss),) if lost else ()

    def check_read(self, position: Position, end: str, rows: int | None, *, storage: Storage) -> tuple[Problem, ...]:
        last = read_offset(end, self.location)
        found = self._cluster().topics({one.topic for one in last})
        if then := self._others(position, found, self._known(position)):
            return (other_topics(self.location, then, {name: found[name].id for name in then}),)
        if not self.may_lose:
            # Spark fails where it finds some gone.
            return ()
        start = self._read_so_far(position) or self._begun(position)
        there = {one: offset for one, offset in last.items() if one.topic in found}
        edges = self._cluster().edges(tuple(there), committed_only=self._reads_committed)
        gone_since = _gone({one: start.get(one, 0) for one in there}, edges, there)
        promised = sum(offset - start.get(one, 0) for one, offset in there.items())
        # Who reads a batch twice has its rows counted twice.
        counted = rows if rows is not None and rows <= promised else None
        return (records_gone_meanwhile(self.location, gone_since, counted, promised),) if gone_since else ()

    def mark_read(self, position: Position, end: str, *, storage: Storage) -> str | None:
        unknown = {one.topic for one in read_offset(end, self.location)} - self._known(position)
        found = marked(self._cluster().topics(unknown)) if unknown else None
        return None if found is None else ", ".join(filter(None, [found, position.mark]))

    def mark(self, *ends: str, storage: Storage) -> str | None:
        return marked(self._cluster().topics({one.topic for end in ends for one in read_offset(end, self.location)}))

    def mark_after(self, before: str | None, mark: str, now: datetime) -> str:
        return mark_after(before, mark, now)

    def read_stream(self, spark: SparkSession, *, name: str, started_at: Mapping[str, Any]) -> DataFrame:
        reader = spark.readStream.format(_FORMAT).option(SOURCE_TAG, name).options(**self._options())
        if self.pattern is not None:
            reader = reader.option("subscribePattern", self.pattern)
        elif self.partitions:
            reader = reader.option("assign", _assigned(self.partitions))
        else:
            reader = reader.option("subscribe", ",".join(self.topics))
        begins = self._offsets(started_at)
        if begins:
            # Spark wants to be told of every partition, and of no other; those that were added since begin with their
            # first record.
            names = self.topics or self._matching()
            begins = {one: begins.get(one, 0) for one in self._read_of(self._cluster().topics(names))}
        reader = reader.option("startingOffsets", write_offset(begins) if begins else "earliest")
        if self.max_offsets_per_batch is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.max_offsets_per_batch)
        return reader.load()

    def slice(self, position: Position, arrivals: Interval | None, *, storage: Storage) -> TopicSlice:
        read = self._read_so_far(position)
        if read is None:
            return TopicSlice(end=None)
        topics, deleted = self._look(position, read)
        self._check_no_topic_left(position, read, topics, deleted, arrivals)
        partitions = tuple(read)
        configs = self._cluster().configs(sorted({one.topic for one in partitions}))
        check_kept_whole(self.location, configs)
        edges = self._cluster().edges(partitions, committed_only=self._reads_committed)
        self._check_read(read, edges)
        since: dict[Partition, int | None] = {}
        if arrivals is not None:
            # Whatever lies before the first record of that time bears an earlier one.
            since = self._cluster().first_since(partitions, _first_ms(arrivals.start))
        begun = self._begun(position)
        lost = {one: edges.first[one] for one in partitions if begun.get(one, 0) < min(edges.first[one], read[one])}
        if lost and arrivals is not None:
            arrived = self._arrived(position, shortly_before(arrivals.start))
            lost = needed({one: Lost(lost[one], read[one], since[one]) for one in lost}, arrived, configs, arrivals)
        if lost:
            raise RefusedError(backfill_records_gone(self.location, lost))
        start = {}
        for one in partitions:
            first = edges.first[one] if arrivals is None else since[one]
            start[one] = read[one] if first is None else min(max(first, edges.first[one]), read[one])
        count = sum(read[one] - start[one] for one in partitions)
        return TopicSlice(
            end=write_offset(read) if count else None,
            amount=known(offsets=count),
            added=LogAddition(start=write_offset(start)),
            start=write_offset(start),
        )

    def read_batch(self, spark: SparkSession, *, name: str, taken: Slice) -> DataFrame:
        if taken.end is None or not isinstance(taken, TopicSlice):
            return spark.createDataFrame([], self._columns)
        reader = spark.read.format(_FORMAT).options(**self._options())
        reader = reader.option("assign", _assigned(read_offset(taken.end, self.location)))
        return reader.option("startingOffsets", taken.start).option("endingOffsets", taken.end).load()

    def columns(self, newest: str | None, *, storage: Storage) -> str:
        return self._columns

    def blind_obstacle(self, position: Position) -> str | None:
        is_known = position.offset is not None or position.started_at or position.log.taken.start is not None
        return None if is_known else "it is not known yet at which offsets it begins"

    @property
    def _columns(self) -> str:
        return f"{_COLUMNS}, {_HEADERS}" if self.include_headers else _COLUMNS

    @property
    def _reads_committed(self) -> bool:
        return self.settings.get("isolation.level", "") == "read_committed"

    def _cluster(self) -> Cluster:
        return cluster(for_planner(self.servers, self.settings, self._place))

    @property
    def _place(self) -> str:
        return f"sources.kafka({self.servers!r})"

    def _options(self) -> dict[str, str]:
        loss = "true" if self.fail_on_data_loss else "false"
        headers = "true" if self.include_headers else "false"
        ours = {"failOnDataLoss": loss, "includeHeaders": headers}
        return {**_PATIENCE, **for_spark(self.servers, self.settings), **self.options, **ours}

    def _read_so_far(self, position: Position) -> dict[Partition, int] | None:
        """How far the checkpoint has read; None where it has not begun to.

        Raises:
            RefusedError: Its offset is none of this source's.
        """
        return None if position.offset is None else read_offset(position.offset, self.location)

    def _look(
        self, position: Position, read: Offsets, known: set[str] | None = None
    ) -> tuple[dict[str, Topic], set[str]]:
        """The topics as they are, and those that are gone, where that is allowed; `known` must be the same as before.

        Raises:
            NotThereError: One that is declared, and that nobody has read, is not there.
            RefusedError: One that was read is gone, or is another one by now.
        """
        declared = set(self.topics) or set(self._matching())
        was_read = {one.topic for one in read}
        found = self._cluster().topics(declared | was_read)
        deleted = was_read - found.keys()
        if deleted and (self.fail_on_data_loss or deleted & declared):
            raise RefusedError(topics_gone(self.location, _named(deleted), is_declared=False))
        if missing := sorted(declared - found.keys()):
            raise NotThereError(
                f"there is no topic `{missing[0]}`",
                where=self.location,
                remedy="make it, or correct the name; nothing is made by reading it",
            )
        if known is None and position.pending is not None:
            # Of a batch whose rows do not count, nobody may have noted what Spark had found.
            known = self._known(position.pending)
        elif known is None:
            # One that has left the offset is read from its first record, whichever it is.
            known = set(found) if position.offset is None else was_read
        if then := self._others(position, found, known):
            raise RefusedError(other_topics(self.location, then, {name: found[name].id for name in then}))
        there = {one for topic in found.values() for one in topic.partitions}
        if lost := sorted(one for one in set(read) - there if one.topic not in deleted):
            raise RefusedError(topics_gone(self.location, [f"partition {one}" for one in lost], is_declared=False))
        if lost := sorted(set(self.partitions) - there):
            raise NotThereError(
                f"there is no partition {lost[0].number} of topic `{lost[0].topic}`",
                where=self.location,
                remedy="make it, or leave it out",
            )
        taken = set(self._read_of({name: found[name] for name in declared}))
        if left := sorted(one for one in set(read) - taken if one.topic not in deleted):
            told = ", ".join(map(str, left[:5]))
            raise DeclarationError(
                f"the checkpoint has read {told}, which the declaration leaves out",
                where=self.location,
                remedy="declare it as before, or declare a new stream with a sink of its own: Spark takes what is no"
                " longer declared for deleted",
            )
        return {name: found[name] for name in declared}, deleted

    def _known(self, position: Position) -> set[str]:
        """The topics of which a batch that begins there may read those alone that were noted.

        One that was gone when the run began, and is there when Spark looks, is read from its first record.
        """
        start = self._read_so_far(position) or self._begun(position)
        return {one.topic for one in start} | present(position.mark).keys()

    def _others(self, position: Position, found: Mapping[str, Topic], among: Iterable[str]) -> dict[str, str]:
        """Those topics that are others than they were, with the id that each had."""
        before = {name: topic.id for name, topic in gone(position.mark).items()}
        noted = present(position.started_at.get("topics")) | before | present(position.mark)
        return {name: noted[name] for name in noted.keys() & found.keys() & {*among} if noted[name] != found[name].id}

    def _matching(self) -> list[str]:
        return [name for name in self._cluster().topic_names() if self._is_matching(name)]

    def _is_matching(self, topic: str) -> bool:
        return re.fullmatch(self.pattern or "", topic, re.ASCII) is not None

    def _check_no_topic_left(
        self,
        position: Position,
        read: Offsets,
        topics: Mapping[str, Topic],
        deleted: set[str],
        arrivals: Interval | None,
    ) -> None:
        """Make sure that every topic is there of which records are needed that the live stream has read.

        Raises:
            RefusedError: One is gone.
        """
        there = {name: topic.id for name, topic in topics.items()}
        before = gone(position.mark)
        begun = {one.topic for one in self._logged_start(position)}
        found = present(position.started_at.get("topics"))
        # One that was deleted before the first batch was never read.
        noted = {name: topic_id for name, topic_id in found.items() if not begun or name in begun}
        noted |= present(position.mark)
        was_read = {one.topic for one in read}
        # A run that was drained has noted nothing of the topics that it left.
        left = {
            name
            for name, noted_id in noted.items()
            if name not in was_read | before.keys() and there.get(name) != noted_id
        }
        for name, topic in before.items():
            # What a run had read by then had arrived.
            if arrivals is None or topic.since >= epoch_micros(arrivals.start):
                left.add(name)
        if away := deleted | left:
            raise RefusedError(backfill_topics_gone(self.location, _named(away)))

    def _arrived(self, position: Position, moment: datetime) -> dict[Partition, int]:
        """By partition, an offset before which every record had arrived by a time, as far as the stream knows."""
        again = gone(position.mark).keys()
        found: dict[Partition, int] = {}
        for text in position.read_before(moment):
            for one, offset in read_offset(text, self.location).items():
                # Offsets of a topic that was made again may be the earlier one's.
                if one.topic not in again:
                    found[one] = max(offset, found.get(one, 0))
        return found

    def _read_of(self, topics: Mapping[str, Topic]) -> tuple[Partition, ...]:
        return self.partitions or tuple(one for topic in topics.values() for one in topic.partitions)

    def _check_read(self, read: Offsets, edges: Edges) -> None:
        beyond = {one: offset for one, offset in read.items() if offset > edges.end.get(one, offset)}
        if beyond:
            raise RefusedError(beyond_end(self.location, beyond, edges.end))

    def _started_at(self, position: Position, topics: Mapping[str, Topic], edges: Edges) -> Mapping[str, Any]:
        """Where the first batch begins: as the checkpoint says, as an earlier run found out, or as declared."""
        place = ", ".join([self.location, *map(str, self.partitions)]).replace(", ", " ")
        declared, seen = f"{self.starting}, {place}", marked(topics)
        if position.log.taken.start is not None:
            # Spark has it from there, whatever is declared.
            known_ids = position.started_at.get("topics", seen)
            return {"offsets": position.log.taken.start, "declared": declared, "topics": known_ids}
        kept = position.kept_start(declared, place)
        if kept:
            return kept
        match self.starting:
            case "earliest":
                start: Offsets = edges.first
            case "latest":
                start = edges.next
            case _:
                found = self._cluster().first_since(tuple(edges.end), _first_ms(self.starting))
                start = {one: _or_else(found[one], end) for one, end in edges.end.items()}
        if position.has_begun or str(position.started_at.get("declared", "")).startswith(f"{self.starting}, "):
            start = {**start, **self._kept(position.started_at, topics, start)}
        return {"offsets": write_offset(start), "declared": declared, "topics": seen}

    def _kept(self, started_at: Mapping[str, Any], topics: Mapping[str, Topic], start: Offsets) -> Offsets:
        """Where an earlier run found out that topics begin, for those that are the same, however they are declared."""
        ids, offsets = present(started_at.get("topics")), self._offsets(started_at)
        same = {name for name, topic in topics.items() if ids.get(name) == topic.id}
        # A partition that was not there by then begins with its first record, as for Spark.
        begins = {one: 0 for one in start if not self.partitions} | offsets
        return {one: begins[one] for one in start if one.topic in same and one in begins}

    def _begun(self, position: Position) -> dict[Partition, int]:
        """Where the first batch began, as far as that is known."""
        return self._logged_start(position) or self._offsets(position.started_at)

    def _logged_start(self, position: Position) -> dict[Partition, int]:
        """Where Spark begins, as the checkpoint says; nothing where it does not."""
        return {} if position.log.taken.start is None else read_offset(position.log.taken.start, self.location)

    def _offsets(self, started_at: Mapping[str, Any]) -> dict[Partition, int]:
        return read_offset(started_at["offsets"], self.location) if "offsets" in started_at else {}

    def _bounded(self, edges: Edges, bound: Bound) -> Offsets:
        if bound.until is None:
            return edges.next
        found = self._cluster().first_since(tuple(edges.next), _first_ms(bound.until))
        return {one: min(_or_else(found[one], after), after) for one, after in edges.next.items()}


@dataclass(frozen=True)
class TopicSlice(Slice):
    """The records of some partitions between two offsets."""

    start: str = "{}"
    """The offset that it begins at."""


def _gone(start: Offsets, edges: Edges, end: Offsets | None = None) -> dict[Partition, tuple[int, int]]:
    """By partition, what lies between the offset that is to be read next and the first one that is there."""
    found = {}
    for one, first in edges.first.items():
        begins, after = start.get(one, 0), first if end is None else min(first, end[one])
        if begins < after:
            found[one] = begins, after
    return found


def _named(topics: Iterable[str]) -> list[str]:
    return [f"the topic {name}" for name in sorted(topics)]


def _or_else(offset: int | None, other: int) -> int:
    return other if offset is None else offset


def _first_ms(moment: datetime) -> int:
    """The first millisecond at or after a time; records bear whole ones."""
    return -(-epoch_micros(moment) // 1000)


def _assigned(partitions: Iterable[Partition]) -> str:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return msgspec.json.encode(found).decode()
