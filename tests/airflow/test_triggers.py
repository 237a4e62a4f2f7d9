"""The triggers, as the triggerer runs them: in an event loop, over a real home."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.module_loading import import_string
from airflow.triggers.base import BaseTrigger
from airflow_project import StreamProject
from anyio._backends._asyncio import WorkerThread
from committed import commit
from until import SOON, until

from sluice.amounts import UNITS, Waiting
from sluice.monitoring.inspection import SourceLag
from sluice_airflow.sensors.lag import LagSensor
from sluice_airflow.triggers import shared_poll
from sluice_airflow.triggers.lag import LIMITS, LagTrigger
from sluice_airflow.triggers.progress import BatchTrigger, WatermarkTrigger
from sluice_airflow.triggers.stream import follow_progress, watched_streams
from tests.builders import NOW, NOW_MS, QUERY_ID, make_entry, make_source_log, offsets_bytes, put

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

NOTHING = {**dict.fromkeys(UNITS, 0), "offsets_per_partition": None, "age_seconds": 0.0}
"""What a `LagTrigger` tells of an empty backlog."""


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without a rest, and find out at once that a declaration has changed."""
    monkeypatch.setattr(shared_poll, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(shared_poll, "_REST_PER_WORK", 0.0)
    monkeypatch.setattr("sluice_airflow.triggers.declared._FRESH_SECONDS", 0.0)
    watched_streams.cache_clear()


async def fire(trigger: BaseTrigger) -> Any:
    """What a trigger fires."""
    return (await asyncio.wait_for(anext(trigger.run()), SOON)).payload


async def fire_after(trigger: BaseTrigger, happens: Any) -> Any:
    """What a trigger fires once something has happened that it must not fire before."""
    waiting = asyncio.create_task(fire(trigger))
    await asyncio.sleep(0.3)
    assert not waiting.done(), waiting.result()
    happens()
    return await waiting


class TestSerialize:
    @pytest.mark.parametrize(
        "trigger",
        [
            BatchTrigger(stream="s", batch_id=3, since={"query_id": "q", "batch_id": 1}, project="/p"),
            WatermarkTrigger(stream="s", passed="2026-01-01", project=None),
            LagTrigger(
                stream="s",
                max_files=1,
                max_offsets=4,
                max_offsets_per_partition=6,
                max_bytes=2,
                max_rows=5,
                max_age_seconds=3.5,
                project="/p",
            ),
        ],
        ids=lambda trigger: type(trigger).__name__,
    )
    def test_a_trigger_survives_the_database(self, trigger: BaseTrigger) -> None:
        """Another triggerer makes the same one of it; an unknown argument is an error."""
        path, arguments = trigger.serialize()
        again = import_string(path)(**json.loads(json.dumps(arguments)))

        assert again.serialize() == (path, arguments)
        with pytest.raises(TypeError):
            import_string(path)(**arguments, poll_interval=5)


class TestBatchTrigger:
    def test_a_batch_that_is_there(self, stream_project: StreamProject) -> None:
        """It, or a later one."""
        commit(stream_project, 4, watermark_ms=NOW_MS)
        trigger = BatchTrigger(stream="events", batch_id=3, project=str(stream_project.root))

        assert asyncio.run(fire(trigger)) == {
            "met": {"generation": 1, "batch_id": 4, "watermark": "2026-01-31T12:00:00.000Z"}
        }

    def test_a_home_that_does_not_exist_is_waited_for(self, stream_project: StreamProject) -> None:
        """The first batch ever fires, also from a template."""
        trigger = BatchTrigger(stream="events", batch_id="0", project=str(stream_project.root))

        async def scenario() -> Any:
            return await fire_after(trigger, lambda: commit(stream_project, 0))

        assert asyncio.run(scenario())["met"]["batch_id"] == 0

    def test_an_old_commit_does_not_count(self, stream_project: StreamProject) -> None:
        """Only what comes after the start that was noted."""
        commit(stream_project, 4)
        since = {"query_id": QUERY_ID, "batch_id": 4}
        trigger = BatchTrigger(stream="events", since=since, project=str(stream_project.root))

        async def scenario() -> Any:
            return await fire_after(trigger, lambda: commit(stream_project, 5))

        assert asyncio.run(scenario())["met"]["batch_id"] == 5

    def test_the_first_batch_after_a_start_without_any(self, stream_project: StreamProject) -> None:
        """The stream had not begun when the waiting did; a triggerer that starts late sees the batch all the same."""
        commit(stream_project, 0)
        trigger = BatchTrigger(
            stream="events", since={"query_id": None, "batch_id": None}, project=str(stream_project.root)
        )

        assert asyncio.run(fire(trigger))["met"]["batch_id"] == 0

    def test_another_checkpoint_is_a_clear_error(self, stream_project: StreamProject) -> None:
        """Its ids say nothing about new batches of the earlier one."""
        commit(stream_project, 9, query_id="another")
        since = {"query_id": QUERY_ID, "batch_id": 4}
        trigger = BatchTrigger(stream="events", since=since, project=str(stream_project.root))

        found = asyncio.run(fire(trigger))
        assert found["is_final"]
        assert "another checkpoint took the stream over" in found["problem"]

    @pytest.mark.parametrize("batch_id", ["three", "-1", "1.5"])
    def test_a_batch_that_is_no_number(self, stream_project: StreamProject, batch_id: str) -> None:
        """A template may give anything."""
        trigger = BatchTrigger(stream="events", batch_id=batch_id, project=str(stream_project.root))

        assert "is no batch [batch_id]" in asyncio.run(fire(trigger))["problem"]


class TestWatermarkTrigger:
    def test_waits_until_event_time_has_passed(self, stream_project: StreamProject) -> None:
        """A batch whose watermark is one millisecond short does not count."""
        commit(stream_project, 0, watermark_ms=NOW_MS - 1)
        trigger = WatermarkTrigger(stream="events", passed=str(NOW), project=str(stream_project.root))

        async def scenario() -> Any:
            return await fire_after(trigger, lambda: commit(stream_project, 1, watermark_ms=NOW_MS))

        assert asyncio.run(scenario())["met"]["watermark"] == "2026-01-31T12:00:00.000Z"

    def test_waits_for_the_rows_that_the_watermark_makes_due(self, stream_project: StreamProject) -> None:
        """They come with the batch behind the one that moves it, which a suite or a killed driver may keep back."""
        checkpoint = Path(stream_project.home().checkpoint_location(1))
        for batch_id, ran_with in ((0, 0), (1, NOW_MS)):
            offsets = offsets_bytes(f'{{"logOffset":{batch_id}}}', watermark_ms=ran_with)
            put(checkpoint / "offsets" / str(batch_id), offsets)
        (checkpoint / "state" / "0").mkdir(parents=True)
        commit(stream_project, 0, watermark_ms=NOW_MS)
        trigger = WatermarkTrigger(stream="events", passed=str(NOW), project=str(stream_project.root))
        assert trigger.met(trigger.look()) is None

        async def scenario() -> Any:
            return await fire_after(trigger, lambda: commit(stream_project, 1, watermark_ms=NOW_MS))

        assert asyncio.run(scenario())["met"]["batch_id"] == 1

    @pytest.mark.parametrize(("passed", "problem"), [("", "there is no time"), ("tomorrow", "is no time [passed]")])
    def test_a_time_that_is_none(self, stream_project: StreamProject, passed: str, problem: str) -> None:
        """A manual run has no data interval: the sensor says so, and does not wait for ever."""
        commit(stream_project, 0)
        trigger = WatermarkTrigger(stream="events", passed=passed, project=str(stream_project.root))

        assert problem in asyncio.run(fire(trigger))["problem"]


class TestLagTrigger:
    def test_waits_until_the_backlog_is_small(self, stream_project: StreamProject) -> None:
        """Two files wait, and one of them goes."""
        stream_project.arrive(2, at=NOW)
        trigger = LagTrigger(stream="events", max_files=1, project=str(stream_project.root))

        async def scenario() -> Any:
            return await fire_after(trigger, (stream_project.root / "in" / "0.json").unlink)

        found = asyncio.run(scenario())["met"]
        assert (found["files"], found["bytes"]) == (1, 8)

    def test_a_batch_under_way_is_no_end_of_a_backlog(self, stream_project: StreamProject) -> None:
        """Its files are taken and in no table: its driver was killed, or a suite has stopped it."""
        checkpoint = Path(stream_project.home().checkpoint_location(1))
        stream_project.arrive(1, at=NOW)
        entry = make_entry(stream_project.root / "in" / "0.json", 0)
        make_source_log(checkpoint / "sources" / "0", [entry])
        put(checkpoint / "metadata", f'{{"id":"{QUERY_ID}"}}')
        put(checkpoint / "offsets" / "0", offsets_bytes('{"logOffset":0}'))
        trigger = LagTrigger(stream="events", max_files=0, project=str(stream_project.root))
        assert trigger.met(trigger.look()) is None

        async def scenario() -> Any:
            return await fire_after(trigger, lambda: commit(stream_project, 0))

        assert asyncio.run(scenario())["met"]["files"] == 0

    @pytest.mark.parametrize("limit", [{"max_bytes": 7}, {"max_age_seconds": 60.0}, {"max_files": 5, "max_bytes": 0}])
    def test_every_limit_counts(self, stream_project: StreamProject, limit: dict[str, Any]) -> None:
        """Nothing waits any more: then every limit is kept."""
        stream_project.arrive(1, at=NOW - timedelta(days=1))
        trigger = LagTrigger(stream="events", **limit, project=str(stream_project.root))

        async def scenario() -> Any:
            return await fire_after(trigger, (stream_project.root / "in" / "0.json").unlink)

        assert asyncio.run(scenario())["met"] == NOTHING

    @pytest.mark.parametrize(("amount", "is_met"), [({"offsets": 0}, True), ({"offsets": 5}, False), ({}, False)])
    def test_what_is_not_known_in_a_unit_is_within_no_limit(self, amount: dict[str, int], *, is_met: bool) -> None:
        """A source that counts offsets has no files to wait for, and that is not zero files."""
        met = LagTrigger(stream="events", max_files=0).met({"a": SourceLag(amount)})

        assert met == (NOTHING if is_met else None)

    def test_what_nobody_counts_has_no_known_age(self) -> None:
        """It waits, however old it is."""
        trigger = LagTrigger(stream="events", max_age_seconds=60.0)

        assert trigger.met({"a": SourceLag({}, batches=2)}) is None
        assert trigger.met({"a": SourceLag({"rows": 0}, batches=0)}) is not None

    @pytest.mark.parametrize("unit", UNITS)
    def test_every_unit_has_a_limit(self, unit: str) -> None:
        """Whatever `sluice lag` counts can be waited for: offsets of Kafka, too."""
        trigger = LagTrigger(stream="events", **{LIMITS[unit]: 5})  # type: ignore[arg-type]

        assert trigger.met({"a": SourceLag({unit: 6})}) is None
        met = trigger.met({"a": SourceLag({unit: 5}, NOW_MS)})
        assert met is not None and met.pop("age_seconds") > 0  # noqa: PT018 - for mypy
        assert met == {**dict.fromkeys(UNITS), unit: 5, "offsets_per_partition": None}
        assert {f"max_{unit}", "max_age"} <= signature(LagSensor).parameters.keys()

    @pytest.mark.parametrize(("amount", "is_met"), [({"offsets": 0}, True), ({"offsets": 3}, False), ({}, False)])
    def test_an_age_that_nobody_tells(self, amount: dict[str, int], *, is_met: bool) -> None:
        """Kafka tells what waits, and not since when: that is no age of zero."""
        met = LagTrigger(stream="events", max_age_seconds=60).met({"told": SourceLag(amount)})

        assert (met is not None) == is_met

    def test_a_limit_of_each_partition(self) -> None:
        """Of the fullest one; where a source has none, it is within no such limit."""
        partitions = {"t-0": Waiting(3, 5), "t-1": Waiting(0, 9)}
        seen = {"told": SourceLag({"offsets": 11}, partitions=partitions), "landed": SourceLag({"files": 2})}

        assert LagTrigger(stream="events", max_offsets_per_partition=8).met(seen) is None
        met = LagTrigger(stream="events", max_offsets_per_partition=9).met(seen)
        assert met is not None and met["offsets_per_partition"] == 9  # noqa: PT018 - for mypy
        assert LagTrigger(stream="events", max_offsets_per_partition=9).met({"a": SourceLag({"files": 0})}) is None

    @pytest.mark.parametrize(
        ("limits", "is_met"),
        [
            ({"max_files": 2, "max_offsets": 7}, True),
            ({"max_files": 1, "max_offsets": 7}, False),
            ({"max_files": 2, "max_offsets": 6}, False),
            ({"max_files": 2}, False),
            ({"max_offsets": 7}, False),
            ({"max_files": 2, "max_offsets": 7, "max_bytes": 100}, False),
        ],
    )
    def test_files_and_offsets_of_one_stream(self, limits: dict[str, Any], *, is_met: bool) -> None:
        """Each source has a limit in a unit of its own, and counts as nothing in that of the other."""
        seen = {"landed": SourceLag({"files": 2, "bytes": 10}), "told": SourceLag({"offsets": 7})}

        met = LagTrigger(stream="events", **limits).met(seen)
        assert (None if met is None else (met["files"], met["offsets"], met["bytes"])) == (
            (2, 7, None) if is_met else None
        )

    def test_a_damaged_checkpoint_has_no_backlog_of_zero(self, stream_project: StreamProject) -> None:
        """What waits is not known, and only a person can help."""
        checkpoint = Path(stream_project.home().checkpoint_location(1))
        put(checkpoint / "offsets" / "0", b"")
        trigger = LagTrigger(stream="events", max_files=100, project=str(stream_project.root))

        found = asyncio.run(fire(trigger))
        assert found["is_final"]
        assert str(checkpoint / "metadata") in found["problem"]


class TestProblems:
    def test_a_stream_that_is_not_declared(self, stream_project: StreamProject) -> None:
        """It was renamed while its DAG still exists: an error that says so, not a wait without end."""
        trigger = BatchTrigger(stream="gone", batch_id=0, project=str(stream_project.root))

        assert "there is no stream `gone`" in asyncio.run(fire(trigger))["problem"]

    def test_a_stream_that_is_deleted_while_it_is_watched(self, stream_project: StreamProject) -> None:
        """The triggerer notices without a restart."""
        trigger = BatchTrigger(stream="events", batch_id=0, project=str(stream_project.root))
        declaration = stream_project.root / "streams" / "events.py"

        async def scenario() -> Any:
            return await fire_after(trigger, lambda: declaration.write_text("# moved\n"))

        assert "there is no stream `events`" in asyncio.run(scenario())["problem"]

    def test_a_project_that_is_not_there(self, tmp_path: Path) -> None:
        """The folder was given wrongly."""
        trigger = BatchTrigger(stream="events", batch_id=0, project=str(tmp_path / "nowhere"))

        assert "sluice.toml" in asyncio.run(fire(trigger))["problem"]

    def test_a_home_of_a_newer_sluice(self, stream_project: StreamProject) -> None:
        """Waiting would not help."""
        put(Path(stream_project.home().location, "current.json"), b'{"format": 2, "generation": 1}')
        trigger = BatchTrigger(stream="events", batch_id=0, project=str(stream_project.root))

        assert "upgrade Sluice" in asyncio.run(fire(trigger))["problem"]

    def test_a_commit_that_is_half_written_for_a_moment(self, stream_project: StreamProject) -> None:
        """One round sees it torn, the next one whole: nobody hears of it."""
        file = commit(stream_project, 0)
        content = file.read_bytes()
        file.write_bytes(b"v1\n{")
        seen: list[Any] = []

        async def scenario() -> None:
            async for sighting in follow_progress("events", str(stream_project.root)):
                seen.append(sighting)
                return

        async def write_later() -> None:
            poll: Any = shared_poll.shared_poll(("progress", str(stream_project.root)))
            await until(lambda: poll._watches and poll._watches["events"].failures)
            file.write_bytes(content)

        async def both() -> None:
            await asyncio.wait_for(asyncio.gather(scenario(), write_later()), SOON)

        asyncio.run(both())
        assert (seen[0].problem, seen[0].value.batch_id) == (None, 0)

    def test_a_disk_that_is_away_is_waited_for(self, stream_project: StreamProject) -> None:
        """Here a folder that is a file for a while: an error that passes by itself."""
        commit(stream_project, 0)
        current = Path(stream_project.home().location, "current.json")
        current.mkdir()
        trigger = BatchTrigger(stream="events", batch_id=0, project=str(stream_project.root))

        async def scenario() -> Any:
            return await fire_after(trigger, current.rmdir)

        assert asyncio.run(scenario())["met"]["batch_id"] == 0


class TestSharedPoll:
    def test_a_thousand_triggers_share_one_poll(self, stream_project: StreamProject) -> None:
        """One reading serves all who follow the same stream; each of them fires."""
        triggers = [BatchTrigger(stream="events", batch_id=0, project=str(stream_project.root)) for _ in range(1000)]

        async def scenario() -> list[Any]:
            waiting = [asyncio.create_task(fire(trigger)) for trigger in triggers]
            poll: Any = shared_poll.shared_poll(("progress", str(stream_project.root)))
            await until(lambda: sum(len(watch.followers) for watch in poll._watches.values()) == len(triggers))
            assert len(poll._watches) == 1
            commit(stream_project, 0)
            found = await asyncio.gather(*waiting)
            # What nobody follows any more is not read any more.
            await until(lambda: not poll._watches)
            return found

        assert [found["met"]["batch_id"] for found in asyncio.run(scenario())] == [0] * 1000

    def test_a_reading_that_hangs_does_not_block_the_loop(self) -> None:
        """Reading is done in a thread; the loop goes on turning, and a cancelled trigger is gone at once."""
        began, released = threading.Event(), threading.Event()
        was_released: list[bool] = []

        def hang() -> None:
            began.set()
            was_released.append(released.wait(SOON))

        async def scenario() -> None:
            poll: shared_poll.SharedPoll[None] = shared_poll.SharedPoll()

            async def follow() -> None:
                async for _ in poll.follow("key", hang):
                    return

            following = asyncio.create_task(follow())
            await until(began.is_set)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert not was_released
            released.set()
            await until(lambda: was_released)

        asyncio.run(scenario())
        assert was_released == [True]

    def test_one_that_hangs_stops_nobody_else(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The others go on, round by round, beside one thread that hangs; when it is back, it is read as before.

        Time passes by the jump that it makes when the reading has begun to hang, and not by what else the machine does.
        """
        monkeypatch.setattr(shared_poll, "_PATIENCE_SECONDS", 0.05)
        released, hangs = threading.Event(), threading.Event()
        counts = {"a": 0, "b": 0, "c": 0}

        def count(key: str) -> int:
            counts[key] += 1
            return counts[key]

        def hang() -> int:
            if counts["b"] == 1:
                hangs.set()
                released.wait(SOON)
            return count("b")

        async def follow(poll: shared_poll.SharedPoll[int], key: str, read: Any, seen: list[Any]) -> None:
            async for sighting in poll.follow(key, read):
                seen += [sighting]

        def readers() -> int:
            """How many threads there are for readings; other tests' threads come and go."""
            return sum(isinstance(thread, WorkerThread) for thread in threading.enumerate())

        async def scenario() -> list[Any]:
            poll: shared_poll.SharedPoll[int] = shared_poll.SharedPoll(lambda: float(hangs.is_set()))
            of_b: list[Any] = []
            late: list[Any] = []
            reads = {"a": lambda: count("a"), "b": hang, "c": lambda: count("c")}
            following = [
                asyncio.create_task(follow(poll, key, read, of_b if key == "b" else [])) for key, read in reads.items()
            ]
            await until(lambda: of_b and of_b[-1].problem)
            told = counts["c"]
            await until(lambda: counts["c"] > told + 1)
            # The thread that the others go on in has started by now.
            before, rounds = readers(), counts["c"]
            following.append(asyncio.create_task(follow(poll, "b", hang, late)))
            await until(lambda: counts["c"] > rounds + 20)
            assert readers() <= before
            assert [seen.problem for seen in late] == ["it has not answered for 0.05 s"]
            assert counts["b"] == 1
            released.set()
            await until(lambda: counts["b"] > 10 and of_b[-1].value is not None)
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            return of_b

        seen = asyncio.run(scenario())
        assert (seen[0].value, seen[1].problem, seen[2].value) == (1, "it has not answered for 0.05 s", 2)
        assert "b has not answered for 0.05 s; the others go on without it" in caplog.text

    def test_a_reader_that_fails_oddly_fails_nobody_else(self) -> None:
        """A library may raise anything: that is a problem of this one key."""
        poll: shared_poll.SharedPoll[int] = shared_poll.SharedPoll()

        async def first(key: str, read: Any) -> Any:
            return await anext(aiter(poll.follow(key, read)))

        async def scenario() -> list[Any]:
            return await asyncio.wait_for(asyncio.gather(first("a", lambda: 1 // 0), first("b", lambda: 7)), SOON)

        odd, fine = asyncio.run(scenario())
        assert (odd.problem, odd.is_final) == ("ZeroDivisionError: integer division or modulo by zero", False)
        assert fine.value == 7
