"""Topics as a source, planned without a JVM: against a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec

from demo.kafka.broker import until
from sluice import sources
from sluice.amounts import Waiting
from sluice.checkpoint.source_log import SourceLog
from sluice.errors import DeclarationError, NotThereError, RefusedError, StorageError
from sluice.interval import Interval
from sluice.kafka.cluster import Partition
from sluice.sources.contract import Available, Bound, OwnLog, Position
from sluice.sources.kafka.offset import read_offset, write_offset
from sluice.sources.kafka.source import KafkaSource, TopicSlice
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from tests.kafka.topics import Kafka

AROUND = Surroundings("/")

pytestmark = pytest.mark.spark  # a broker is a JVM

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOTHING = Position(None)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def made(kafka: Kafka, *topics: str, **declared: Any) -> KafkaSource:
    return sources.kafka(kafka.bootstrap, **({"topics": topics} if topics else {}) | declared).resolved(AROUND)


def look(source: KafkaSource, position: Position = NOTHING, **bound: Any) -> Available:
    return source.available(position, Bound(**bound), storage=Storage(), now=NOON)


def ends(found: Available) -> list[dict[int, int]]:
    """Where each batch ends, in each partition."""
    return [{one.number: end for one, end in read_offset(step.end, "").items()} for step in found.steps]


def after(found: Available, source: KafkaSource) -> Position:
    """How far a checkpoint has come that has read all of it."""
    end = found.steps[-1].end
    return Position(end, started_at=found.started_at, has_begun=True, mark=source.mark(end, storage=Storage()))


def knowing(position: Position, offset: Mapping[str, Mapping[str, int]], moment: datetime) -> Position:
    """A position of a stream that had read up to an offset by a time."""
    return replace(position, read_before=lambda time: [json.dumps(offset)] if moment <= time else [])


def refusal(source: KafkaSource, position: Position) -> tuple[str, str]:
    with pytest.raises(RefusedError) as refused:
        look(source, position)
    return refused.value.finding.code, refused.value.finding.cause


class TestAvailable:
    def test_what_is_there_and_what_comes(self, kafka: Kafka) -> None:
        """From the earliest offsets on; then what lies beyond; then nothing."""
        topic = kafka.topic(2)
        kafka.send(topic, "abc")
        kafka.send(topic, "d", partition=1)
        source = made(kafka, topic)

        first = look(source)
        assert ends(first) == [{0: 3, 1: 1}]
        assert [step.amount for step in first.steps] == [{"offsets": 4}]
        assert first.steps[0].added.start == write_offset({Partition(topic, 0): 0, Partition(topic, 1): 0})

        position = after(first, source)
        assert not look(source, position).steps
        kafka.send(topic, "e", partition=1)
        found = look(source, position)
        assert found.partitions == {f"{topic}-0": Waiting(3, 3), f"{topic}-1": Waiting(1, 2)}
        (step,) = found.steps
        assert (read_offset(step.end, "")[Partition(topic, 1)], step.amount, step.added.start) == (
            2,
            {"offsets": 1},
            None,
        )

    @pytest.mark.parametrize(("starting", "begins"), [("latest", 4), (NOON + timedelta(seconds=1), 2), (NOON, 0)])
    def test_where_a_first_run_begins(self, kafka: Kafka, starting: Any, begins: int) -> None:
        """It is found out once: later runs begin there, whatever has come since."""
        topic = kafka.topic()
        for second in (0, 0, 1, 2):
            kafka.send(topic, "x", timestamp_ms=ms(NOON + timedelta(seconds=second)))
        source = made(kafka, topic, starting=starting)

        first = look(source)
        kafka.send(topic, "y")
        later = look(source, Position(None, started_at=first.started_at))

        assert read_offset(first.started_at["offsets"], "") == {Partition(topic, 0): begins}
        assert later.started_at == first.started_at
        assert later.steps[0].added.start == first.started_at["offsets"]
        assert ends(later) == [{0: 5}]

    def test_what_the_checkpoint_says_of_the_start_counts(self, kafka: Kafka) -> None:
        """A driver died between the two files; Spark would begin there, too."""
        topic = kafka.topic()
        kafka.send(topic, "abcd")
        begun = OwnLog(SourceLog(start=f'{{"{topic}":{{"0":3}}}}'))

        found = look(made(kafka, topic), Position(None, log=begun))

        assert [step.amount for step in found.steps] == [{"offsets": 1}]
        assert found.steps[0].added.start is None

    def test_a_bound_by_time(self, kafka: Kafka) -> None:
        """Exclusive: up to the first record of that time, or of a later one; what comes behind it waits."""
        topic = kafka.topic()
        for second in range(5):
            kafka.send(topic, "x", timestamp_ms=ms(NOON + timedelta(seconds=second)))
        source = made(kafka, topic)

        bounded = look(source, until=NOON + timedelta(seconds=2))
        assert (ends(bounded), bounded.later) == ([{0: 2}], {"offsets": 3})
        assert ends(look(source, until=NOON + timedelta(seconds=2, microseconds=1))) == [{0: 3}]
        assert not look(source, until=NOON).steps
        assert ends(look(source, until=NOON + timedelta(days=1))) == [{0: 5}]
        assert not look(source, after(look(source), source), until=NOON).steps

    def test_batches_of_a_limit(self, kafka: Kafka) -> None:
        """Each of its share of every partition."""
        topic = kafka.topic(2)
        kafka.send(topic, "a" * 6)
        kafka.send(topic, "b" * 3, partition=1)

        found = look(made(kafka, topic, max_offsets_per_batch=3))

        assert ends(found) == [{0: 2, 1: 1}, {0: 4, 1: 2}, {0: 6, 1: 3}]

    def test_several_topics(self, kafka: Kafka) -> None:
        """By their names, by an expression, and some partitions alone."""
        orders, returns = kafka.topic(2, name="shop-orders"), kafka.topic(name="shop-returns")
        kafka.topic(name="xshop-orders")
        kafka.send(orders, "ab", partition=1)
        kafka.send(returns, "c")

        named = look(made(kafka, orders, returns))
        matched = look(made(kafka, pattern="shop-.*"))
        chosen = look(made(kafka, partitions={orders: [1]}))

        assert named.steps == matched.steps
        assert set(read_offset(named.steps[0].end, "")) == {
            Partition(orders, 0), Partition(orders, 1), Partition(returns, 0),
        }  # fmt: skip
        assert read_offset(chosen.steps[0].end, "") == {Partition(orders, 1): 2}

    def test_topics_whose_names_begin_with_underscores(self, kafka: Kafka) -> None:
        """Kafka's own are none that an expression is about; those of others are."""
        topic = kafka.topic(name="__cdc-shop")
        kafka.send(topic, "a")

        assert set(read_offset(look(made(kafka, pattern="__.*")).steps[0].end, "")) == {Partition(topic, 0)}

    def test_what_a_sink_writes(self, kafka: Kafka) -> None:
        """By name and by expression, at any of the servers."""
        place = f"kafka://other:1,{kafka.bootstrap}/shop-out"

        assert made(kafka, pattern="shop-.*").reads_from(place)
        assert made(kafka, "shop-out").reads_from(place)
        assert not made(kafka, pattern="shop-in.*").reads_from(place)
        assert not sources.kafka("elsewhere:1", topics=["shop-out"]).reads_from(place)
        assert not made(kafka, "shop-out").reads_from("/shop-out")

    @pytest.mark.parametrize("starting", ["1900-01-01", "1969-12-31T23:59:59.999Z"])
    def test_a_start_before_there_was_time(self, kafka: Kafka, starting: str) -> None:
        """Kafka takes a time below zero for something else."""
        topic = kafka.topic()
        kafka.send(topic, "ab")

        assert ends(look(made(kafka, topic, starting=starting))) == [{0: 2}]
        assert not look(made(kafka, topic), until=datetime.fromisoformat(starting).replace(tzinfo=UTC)).steps

    def test_partitions_that_are_added(self, kafka: Kafka) -> None:
        """They are read from their first record on."""
        topic = kafka.topic()
        kafka.send(topic, "ab")
        source = made(kafka, topic)
        position = after(look(source), source)

        kafka.add_partitions(topic, 3)
        kafka.send(topic, "cde", partition=2)

        found = look(source, position)
        assert (ends(found), found.steps[0].amount) == ([{0: 2, 1: 0, 2: 3}], {"offsets": 3})

    def test_committed_records_alone(self, kafka: Kafka) -> None:
        """A transaction that is open holds back what comes after it."""
        topic = kafka.topic()
        kafka.send(topic, "ab")
        source = made(kafka, topic, settings={"isolation.level": "read_committed"})
        with kafka.transaction() as opened:
            opened.send(topic, "cd")
            kafka.send(topic, "e")
            assert ends(look(source)) == [{0: 2}]
            assert ends(look(made(kafka, topic))) == [{0: 5}]
            everything = Position(f'{{"{topic}":{{"0":5}}}}')
            assert not look(source, everything).steps, "it was read before only committed ones were asked for"
            later = replace(source, starting=datetime.now(UTC) + timedelta(days=1))
            assert not look(later).steps
            opened.commit()
            assert not look(later, Position(None, started_at=look(later).started_at)).steps
        assert ends(look(source)) == [{0: 6}]


def test_one_connection_answers_every_question(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client is false in Python while its queue is empty, and is there all the same."""
    topic = kafka.topic(2)
    clients: list[AdminClient] = []
    begin = AdminClient.__init__

    def counted(client: AdminClient, settings: Any) -> None:
        begin(client, settings)
        clients.append(client)

    monkeypatch.setattr(AdminClient, "__init__", counted)
    # Of a cluster by another name, which nobody has asked yet.
    source = sources.kafka(kafka.bootstrap, topics=[topic], settings={"client.id": "one"}).resolved(AROUND)
    for _ in range(3):
        look(source)
    assert len(clients) == 1
    assert not clients[0]


class TestHarm:
    def test_records_that_retention_took(self, kafka: Kafka) -> None:
        """Before they were read: refused, with which they are, or told where that is declared."""
        topic = kafka.topic()
        kafka.send(topic, "abcd")
        source = made(kafka, topic)
        position = after(look(source), source)
        kafka.send(topic, "efgh")
        kafka.trim(topic, 0, 6)

        code, cause = refusal(source, position)
        assert code == "KAFKA_RECORDS_GONE"
        assert f"{topic}-0 from 4 to 5" in cause

        found = look(replace(source, fail_on_data_loss=False), position)
        assert ([problem.code for problem in found.problems], found.problems[0].is_blocking) == ([code], False)
        assert (ends(found), found.steps[0].amount) == ([{0: 8}], {"offsets": 2})

    def test_records_of_a_planned_batch(self, kafka: Kafka) -> None:
        """They are looked at before the batch, too: in what it reads, not in front of it, and not behind."""
        topic = kafka.topic()
        kafka.send(topic, "abcdef")
        source = made(kafka, topic)
        position = replace(after(look(source), source), offset=f'{{"{topic}":{{"0":2}}}}')
        end = f'{{"{topic}":{{"0":4}}}}'

        def codes(*, is_read: bool = True) -> list[str]:
            found = source.check_inputs(position, end, storage=Storage(), is_read=is_read)
            return [problem.code for problem in found]

        kafka.trim(topic, 0, 2)
        assert not codes()
        kafka.trim(topic, 0, 3)
        assert (codes(), codes(is_read=False)) == (["KAFKA_RECORDS_GONE"], [])
        kafka.trim(topic, 0, 6)
        assert "from 2 to 3" in source.check_inputs(position, end, storage=Storage())[0].cause
        kafka.delete_topic(topic)
        assert (codes(), codes(is_read=False)) == (["KAFKA_TOPIC_GONE"], ["KAFKA_TOPIC_GONE"])

    def test_a_topic_that_is_another_one(self, kafka: Kafka) -> None:
        """Deleted; made again and shorter; made again with as many records, which its offsets can't tell."""
        topic = kafka.topic(2)
        kafka.send(topic, "abc")
        source = made(kafka, topic)
        position = after(look(source), source)

        unknown = replace(position, mark=None, started_at={})

        kafka.delete_topic(topic)
        assert refusal(source, position)[0] == "KAFKA_TOPIC_GONE"
        kafka.topic(name=topic)
        code, cause = refusal(source, unknown)
        assert (code, f"partition {topic}-1" in cause) == ("KAFKA_TOPIC_GONE", True)
        kafka.add_partitions(topic, 2)
        code, cause = refusal(source, unknown)
        assert (code, "up to offset 3, which ends at 0" in cause) == ("KAFKA_TOPIC_REPLACED", True)
        kafka.send(topic, "abcdef")
        code, cause = refusal(source, position)
        assert (code, "made again" in cause) == ("KAFKA_TOPIC_REPLACED", True)

    def test_a_topic_that_is_not_there(self, kafka: Kafka) -> None:
        """Nobody has read it: the name is wrong, or it is yet to be made. Nothing is made by looking."""
        for _ in range(2):
            with pytest.raises(NotThereError, match="there is no topic `nowhere`"):
                look(made(kafka, "nowhere"))
        with pytest.raises(DeclarationError, match="there is no partition 7"):
            look(made(kafka, partitions={kafka.topic(): [7]}))
        assert not look(made(kafka, pattern="nothing-has-this-.*")).steps

    def test_partitions_that_are_no_longer_declared(self, kafka: Kafka) -> None:
        """Spark would take them for deleted."""
        first, second = kafka.topic(), kafka.topic()
        kafka.send(first, "a")
        source = made(kafka, first, second)
        position = after(look(source), source)

        with pytest.raises(DeclarationError, match="which the declaration leaves out"):
            look(made(kafka, first), position)

    def test_servers_that_do_not_answer(self, kafka: Kafka) -> None:
        """Retryable, within the time of one question, with what went wrong; nothing is remembered of it."""
        began = time.monotonic()
        with pytest.raises(StorageError, match="Connection refused") as failed:
            look(sources.kafka("127.0.0.1:1", topics=["t"]).resolved(AROUND))
        assert failed.value.retryable
        assert time.monotonic() - began < 60

    def test_a_topic_made_again_before_anything_was_read(self, kafka: Kafka) -> None:
        """The first run has noted where it begins in another topic of this name."""
        topic = kafka.topic()
        kafka.send(topic, "abc")
        source = made(kafka, topic, starting="latest")
        begun = look(source).started_at
        kafka.delete_topic(topic)
        kafka.topic(name=topic)
        kafka.send(topic, "defgh")

        assert refusal(source, Position(None, started_at=begun))[0] == "KAFKA_TOPIC_REPLACED"

    def test_everything_that_waited_is_gone(self, kafka: Kafka) -> None:
        """Where that is declared, a batch without records gets the stream past it."""
        topic = kafka.topic(2)
        kafka.send(topic, "ab")
        source = made(kafka, topic)
        position = after(look(source), source)
        kafka.send(topic, "cd")
        kafka.trim(topic, 0, 4)

        found = look(replace(source, fail_on_data_loss=False), position)
        assert (ends(found), found.steps[0].amount) == ([{0: 4, 1: 0}], {"offsets": 0})
        assert not look(source, replace(position, offset=found.steps[-1].end)).steps

    def test_topics_of_a_pattern_that_are_deleted(self, kafka: Kafka) -> None:
        """As with a topic for each day: refused, or told where that is declared."""
        old, new = kafka.topic(name="daily-1"), kafka.topic(name="daily-2")
        kafka.send(old, "a")
        kafka.send(new, "b")
        source = made(kafka, pattern="daily-.*")
        position = after(look(source), source)
        kafka.delete_topic(old)
        kafka.send(new, "c")

        assert refusal(source, position)[0] == "KAFKA_TOPIC_GONE"
        found = look(replace(source, fail_on_data_loss=False), position)
        assert [(problem.code, problem.is_blocking) for problem in found.problems] == [("KAFKA_TOPIC_GONE", False)]
        assert read_offset(found.steps[0].end, "") == {Partition(new, 0): 2}

    @pytest.mark.parametrize("starting", ["latest", "earliest"])
    def test_a_topic_that_is_deleted_before_the_first_batch(self, kafka: Kafka, starting: str) -> None:
        """Nothing of it was read: the stream begins without it, and says so until it has."""
        name = f"early-{starting}"
        old, new = kafka.topic(name=f"{name}-1"), kafka.topic(name=f"{name}-2")
        source = made(kafka, pattern=f"{name}-.*", starting=starting)
        waiting = Position(None, started_at=look(source).started_at)
        kafka.delete_topic(old)
        kafka.send(new, "a")

        found = look(source, waiting)

        assert found.steps[0].added.start == write_offset({Partition(new, 0): 0})
        (problem,) = found.problems
        assert (problem.code, problem.is_blocking) == ("KAFKA_TOPIC_GONE", False)
        assert f"has found the topic {old}, which was deleted before anything of it was read" in problem.cause
        later = replace(after(found, source), log=OwnLog(SourceLog(start=found.steps[0].added.start)))
        assert look(source, later).problems == ()
        assert source.slice(later, None, storage=Storage()).amount == {"offsets": 1}

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_topic_that_is_deleted_once_the_start_is_written(self, kafka: Kafka, fails: bool) -> None:  # noqa: FBT001
        """Spark takes it for lost."""
        name = f"begun-{fails}"
        old, new = kafka.topic(name=f"{name}-1"), kafka.topic(name=f"{name}-2")
        source = made(kafka, pattern=f"{name}-.*", fail_on_data_loss=fails)
        start = write_offset({Partition(old, 0): 0, Partition(new, 0): 0})
        position = Position(None, OwnLog(SourceLog(start=start)))
        kafka.delete_topic(old)
        kafka.send(new, "a")

        if fails:
            code, cause = refusal(source, position)
            assert code == "KAFKA_TOPIC_GONE"
            assert "has begun to read" in cause
        else:
            found = look(source, position)
            assert ends(found) == [{0: 1}]
            assert [problem.code for problem in found.problems] == ["KAFKA_TOPIC_GONE"]

    def test_an_offset_of_another_kind(self, kafka: Kafka) -> None:
        """The declaration is not the checkpoint's."""
        assert refusal(made(kafka, kafka.topic()), Position('{"logOffset":3}'))[0] == "OFFSET_OF_ANOTHER_KIND"


class TestSlice:
    def test_everything_that_was_read(self, kafka: Kafka) -> None:
        """From the oldest record on, up to where the live stream stands."""
        topic = kafka.topic(2)
        kafka.send(topic, "abc")
        source = made(kafka, topic, starting="latest")
        kafka.send(topic, "de")
        position = Position(f'{{"{topic}":{{"0":5,"1":0}}}}')

        found = source.slice(position, None, storage=Storage())

        assert (found.start, found.end, found.amount) == (
            write_offset({Partition(topic, 0): 0, Partition(topic, 1): 0}), position.offset, {"offsets": 5},
        )  # fmt: skip
        assert source.slice(NOTHING, None, storage=Storage()) == TopicSlice(end=None)

    def test_what_arrived_before_is_left_out(self, kafka: Kafka) -> None:
        """Up to the first record of the interval's time; nothing behind it, which may be late."""
        topic = kafka.topic()
        for second in (0, 1, 2, 1, 3):
            kafka.send(topic, "x", timestamp_ms=ms(NOON + timedelta(seconds=second)))
        source = made(kafka, topic)
        position = after(look(source), source)

        def read(start: int) -> dict[str, int]:
            arrivals = Interval(NOON + timedelta(seconds=start), NOON + timedelta(days=1))
            return dict(source.slice(position, arrivals, storage=Storage()).amount)

        assert [read(start) for start in (0, 2, 3, 4)] == [{"offsets": count} for count in (5, 3, 1, 0)]

    @pytest.mark.parametrize("trimmed", [2, 4, 5])
    def test_records_that_can_not_be_read_again(self, kafka: Kafka, trimmed: int) -> None:
        """Refused, also where more is gone than was read; what was never read is not missed."""
        topic = kafka.topic()
        for second in range(4):
            kafka.send(topic, "x", timestamp_ms=ms(NOON + timedelta(seconds=second)))
        source = made(kafka, topic)
        position = after(look(source), source)
        kafka.send(topic, "yz", timestamp_ms=ms(NOON + timedelta(seconds=9)))
        kafka.trim(topic, 0, trimmed)

        for start in (None, NOON, NOON + timedelta(seconds=3)):
            arrivals = None if start is None else Interval(start, NOON + timedelta(days=1))
            with pytest.raises(RefusedError) as refused:
                source.slice(position, arrivals, storage=Storage())
            assert refused.value.finding.code == "BACKFILL_INPUT_GONE"
        begun_there = replace(position, started_at={"offsets": f'{{"{topic}":{{"0":4}}}}'})
        assert source.slice(begun_there, None, storage=Storage()).amount == {"offsets": max(0, 4 - trimmed)}

    def test_records_that_are_gone_and_not_needed(self, kafka: Kafka) -> None:
        """A batch tells that they had arrived before; and brokers set the times, or retention has yet to come there."""
        stamped = kafka.topic(message_timestamp_type="LogAppendTime")
        kafka.send(stamped, "ab")
        between = datetime.now(UTC) + timedelta(milliseconds=5)
        until(lambda: datetime.now(UTC) > between, "time stands still")
        kafka.send(stamped, "c")
        kept = kafka.topic(retention_ms=366 * 86_400_000)
        now = datetime.now(UTC)
        for second in range(3):
            kafka.send(kept, "x", timestamp_ms=ms(now + timedelta(seconds=second)))
        for topic, start, count in ((stamped, between, 1), (kept, now, 2)):
            source = made(kafka, topic)
            position = knowing(after(look(source), source), {topic: {"0": 1}}, start - timedelta(minutes=5))
            kafka.trim(topic, 0, 1)
            arrivals = Interval(start, start + timedelta(days=1))
            assert source.slice(position, arrivals, storage=Storage()).amount == {"offsets": count}
            long_ago = Interval(NOON - timedelta(days=700), NOON)
            with pytest.raises(RefusedError, match="retention has deleted"):
                source.slice(position, long_ago, storage=Storage())

    @pytest.mark.parametrize("proof", ["none", "too little", "too late", "of another topic"])
    def test_settings_alone_prove_nothing(self, kafka: Kafka, proof: str) -> None:
        """They may be others than when the records were deleted."""
        topic = kafka.topic(2)
        start = datetime.now(UTC)
        kafka.send(topic, "x", timestamp_ms=ms(start + timedelta(seconds=9)))
        kafka.send(topic, "x", timestamp_ms=ms(start - timedelta(seconds=9)))
        kafka.send(topic, "x", timestamp_ms=ms(start + timedelta(seconds=9)))
        source = made(kafka, topic)
        position = after(look(source), source)
        long_before = start - timedelta(days=1)
        if proof == "too little":
            position = knowing(position, {topic: {"0": 0, "1": 9}, "other": {"0": 9}}, long_before)
        if proof == "too late":
            position = knowing(position, {topic: {"0": 3}}, start - timedelta(minutes=4))
        if proof == "of another topic":
            position = knowing(position, {topic: {"0": 3}}, long_before)
            position = replace(position, mark=f"{position.mark}, {topic} abc 1")
        kafka.trim(topic, 0, 1)
        arrivals = Interval(start, start + timedelta(days=1))

        for changed in ({"message_timestamp_type": "LogAppendTime"}, {"retention_ms": 2**63 - 1}):
            kafka.configure(topic, **changed)
            with pytest.raises(RefusedError, match="retention has deleted") as refused:
                source.slice(position, arrivals, storage=Storage())
            assert refused.value.finding.code == "BACKFILL_INPUT_GONE"

    def test_an_interval_that_begins_with_time_itself(self, kafka: Kafka) -> None:
        topic = kafka.topic()
        kafka.send(topic, "ab")
        source = made(kafka, topic)
        position = after(look(source), source)
        kafka.trim(topic, 0, 1)
        with pytest.raises(RefusedError, match="retention has deleted"):
            source.slice(position, Interval(datetime.min.replace(tzinfo=UTC), NOON), storage=Storage())

    def test_a_topic_that_is_gone_and_not_needed(self, kafka: Kafka) -> None:
        """What was read before a run had arrived before it; a damaged note is none."""
        topic = kafka.topic()
        kafka.send(topic, "x", timestamp_ms=ms(NOON + timedelta(hours=1)))
        source = made(kafka, topic)
        found = look(source)
        assert found.mark is not None
        earlier = source.mark_after(None, f"{found.mark}, hourly-1 abc", NOON - timedelta(hours=1))
        mark = source.mark_after(earlier, found.mark, NOON)
        position = replace(after(found, source), mark=source.mark_after(mark, found.mark, NOON + timedelta(days=9)))

        for arrivals in (None, Interval(NOON, NOON + timedelta(days=1))):
            with pytest.raises(RefusedError, match="has read the topic hourly-1") as refused:
                source.slice(position, arrivals, storage=Storage())
            assert refused.value.finding.code == "BACKFILL_INPUT_GONE"
        later = Interval(NOON + timedelta(seconds=1), NOON + timedelta(days=1))
        assert source.slice(position, later, storage=Storage()).amount == {"offsets": 1}
        damaged = replace(position, mark=f"{found.mark}, hourly-1 abc soon, hourly-2")
        assert source.slice(damaged, None, storage=Storage()).amount == {"offsets": 1}

    def test_a_compacted_topic(self, kafka: Kafka) -> None:
        """Of what was read, some may be deleted by now, anywhere."""
        topic = kafka.topic(cleanup_policy="compact")
        kafka.send(topic, [("a", "1")])
        source = made(kafka, topic)

        with pytest.raises(RefusedError, match="is compacted") as refused:
            source.slice(after(look(source), source), None, storage=Storage())
        assert refused.value.finding.code == "BACKFILL_INPUT_GONE"


def test_the_helper_writes_where_it_says(kafka: Kafka) -> None:
    """What these tests count on."""
    topic = kafka.topic()
    assert kafka.send(topic, "abc") == [0, 1, 2]
    assert kafka.offsets(topic, OffsetSpec.latest()) == {0: 3}
