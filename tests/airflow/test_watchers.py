"""The asset watchers, behind Airflow's own shared streams: what is told, what is kept, and what a restart repeats."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.execution_time.context import AssetStateStoreAccessors
from airflow.triggers.shared_stream import SharedStreamManager
from airflow_project import StreamProject
from committed import commit
from until import until

from sluice.monitoring.arrivals import Arrivals
from sluice.monitoring.progress import Progress
from sluice_airflow.triggers import shared_poll
from sluice_airflow.triggers.arrivals import ArrivalWatch
from sluice_airflow.triggers.commits import CommitWatch
from sluice_airflow.triggers.stream import watched_streams
from sluice_airflow.triggers.watch import StreamWatch
from tests.builders import NOW, put

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]


_LOOKS: list[object] = []
"""Every look that a poll has taken, at whatever is watched."""


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without a rest, and count the looks."""
    monkeypatch.setattr(shared_poll, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(shared_poll, "_REST_PER_WORK", 0.0)
    look = shared_poll.look

    def counted(read: Callable[[], Any]) -> Any:
        _LOOKS.append(read)
        return look(read)

    monkeypatch.setattr(shared_poll, "look", counted)
    watched_streams.cache_clear()


async def looked() -> None:
    """Wait until a look has begun after now, been told of, and followed by others."""
    before = len(_LOOKS)
    await until(lambda: len(_LOOKS) >= before + 4)


@dataclass
class StateStore:
    """What Airflow's database keeps for an asset: JSON, as long as the test runs."""

    rows: dict[str, str] = field(default_factory=dict)

    async def aget(self, key: str) -> Any:
        return json.loads(self.rows[key]) if key in self.rows else None

    async def aset(self, key: str, value: Any) -> None:
        await asyncio.sleep(0)
        self.rows[key] = json.dumps(value)


@dataclass
class Triggerer:
    """The part of a triggerer that runs one watcher: Airflow's manager of shared streams, and a database."""

    watch: type[StreamWatch[Any]]
    project: StreamProject
    store: StateStore = field(default_factory=StateStore)
    events: list[dict[str, Any]] = field(default_factory=list)
    """What is in the database, over all restarts."""

    @asynccontextmanager
    async def running(self, *, confirms: bool = True) -> AsyncIterator[None]:
        """A triggerer from its start to its end; with `confirms=False` it dies before it hears of the database."""
        trigger = self.watch(asset="a", stream="events", project=str(self.project.root))
        trigger.asset_state_store = AssetStateStoreAccessors(inlets=[Asset(name="a", uri="a")])
        trigger.asset_state_store._by_name["a"] = self.store
        manager, key = SharedStreamManager(), trigger.shared_stream_key()
        shared = manager.subscribe(trigger_id=1, trigger=trigger, key=key)

        async def run() -> None:
            async for event in trigger.filter_shared_stream(shared):
                number = manager.bind_pending_event(trigger_id=1, key=key)
                self.events.append(event.payload)
                if confirms and number is not None:
                    # The supervisor's answer comes with a later exchange.
                    asyncio.get_running_loop().call_later(0.05, manager.confirm_persisted, [number])

        running = asyncio.create_task(run())
        try:
            yield
            assert not running.done(), running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await manager.unsubscribe(1, key)

    async def told(self, count: int) -> None:
        """Wait until so many events are in the database, and the watcher knows of it."""
        await until(lambda: len(self.events) >= count and not json.loads(self.store.rows[self.watch.key])["telling"])


def ranges(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(event["first_batch_id"], event["batch_id"]) for event in events]


class TestCommitWatch:
    def test_every_batch_is_told_once_over_restarts(self, stream_project: StreamProject) -> None:
        """Commits come while the triggerer runs, and while it does not; batch 0 counts."""
        triggerer = Triggerer(CommitWatch, stream_project)

        async def scenario() -> None:
            for restart in range(4):
                commit(stream_project, 3 * restart)
                async with triggerer.running():
                    await triggerer.told(3 * restart + 1)
                    commit(stream_project, 3 * restart + 1)
                    await triggerer.told(3 * restart + 2)
                    commit(stream_project, 3 * restart + 2)
                    await triggerer.told(3 * restart + 3)

        asyncio.run(scenario())
        assert ranges(triggerer.events) == [(batch_id, batch_id) for batch_id in range(12)]

    def test_a_restart_without_commits_tells_nothing(self, stream_project: StreamProject) -> None:
        """A plain poll would fire again after each."""
        commit(stream_project, 0)
        triggerer = Triggerer(CommitWatch, stream_project)

        async def scenario() -> None:
            for _ in range(3):
                async with triggerer.running():
                    await triggerer.told(1)
                    await looked()

        asyncio.run(scenario())
        assert ranges(triggerer.events) == [(0, 0)]

    def test_what_was_missed_is_one_event(self, stream_project: StreamProject) -> None:
        """A range, and not a thousand runs of whoever listens."""
        for batch_id in range(7):
            commit(stream_project, batch_id)
        triggerer = Triggerer(CommitWatch, stream_project)

        async def scenario() -> None:
            async with triggerer.running():
                await triggerer.told(1)

        asyncio.run(scenario())
        assert ranges(triggerer.events) == [(0, 6)]

    def test_a_triggerer_killed_before_the_confirmation_repeats_the_same_event(
        self, stream_project: StreamProject
    ) -> None:
        """Nobody can know whether the event is in the database: it is told again as it was, then what came since."""
        commit(stream_project, 0)
        triggerer = Triggerer(CommitWatch, stream_project)

        async def scenario() -> None:
            async with triggerer.running(confirms=False):
                await until(lambda: triggerer.events)
            commit(stream_project, 1)
            commit(stream_project, 2)
            async with triggerer.running():
                await triggerer.told(3)

        asyncio.run(scenario())
        assert triggerer.events[0] == triggerer.events[1]
        assert ranges(triggerer.events[1:]) == [(0, 0), (1, 2)]

    def test_a_new_beginning_is_told_from_its_first_batch(self, stream_project: StreamProject) -> None:
        """Another query id counts anew, also when its ids are already higher."""
        commit(stream_project, 4)
        triggerer = Triggerer(CommitWatch, stream_project)

        async def scenario() -> None:
            async with triggerer.running():
                await triggerer.told(1)
            commit(stream_project, 6, query_id="another")
            async with triggerer.running():
                await triggerer.told(2)

        asyncio.run(scenario())
        assert ranges(triggerer.events) == [(0, 4), (0, 6)]

    def test_a_damaged_commit_ends_no_watcher(self, stream_project: StreamProject) -> None:
        """A trigger that fails would be started again and again: it waits, and goes on when somebody has helped."""
        torn = commit(stream_project, 0)
        content = torn.read_bytes()
        torn.write_bytes(b"")
        triggerer = Triggerer(CommitWatch, stream_project)

        async def scenario() -> None:
            async with triggerer.running():
                await looked()
                assert triggerer.events == []
                put(torn, content)
                await triggerer.told(1)

        asyncio.run(scenario())
        assert ranges(triggerer.events) == [(0, 0)]

    def test_it_needs_an_asset(self) -> None:
        """What was told is kept with one."""
        watch = CommitWatch(asset="a", stream="events")
        assert AssetWatcher(name="w", trigger=watch).trigger.serialize() == (
            "sluice_airflow.triggers.commits.CommitWatch",
            {"asset": "a", "stream": "events", "project": None},
        )
        with pytest.raises(RuntimeError, match="use it in an AssetWatcher"):
            watch._store()

    def test_news_are_told_once(self) -> None:
        """The position after an event leaves nothing to tell."""
        watch, seen = CommitWatch(asset="a", stream="events"), Progress(1, "q", 0, None)
        news = watch.news({}, seen)

        assert news is not None
        assert watch.news(news.position, seen) is None
        assert watch.news({}, Progress(1)) is None


class TestArrivalWatch:
    def test_every_arrival_is_told_once_over_restarts(self, stream_project: StreamProject) -> None:
        """Files that land while the triggerer is away, and while it is there."""
        triggerer = Triggerer(ArrivalWatch, stream_project)

        async def scenario() -> None:
            async with triggerer.running():
                await looked()
                assert triggerer.events == []
                stream_project.arrive(1, at=NOW)
                await triggerer.told(1)
            async with triggerer.running():
                await looked()
            # A file that bears an older time than one that was told is new all the same.
            stream_project.arrive(1, at=NOW - timedelta(days=3))
            async with triggerer.running():
                await triggerer.told(2)
                await looked()

        asyncio.run(scenario())
        assert [event["sources"]["events"]["files"] for event in triggerer.events] == [1, 2]

    def test_the_same_state_again_is_news_once_nothing_had_waited(self, stream_project: StreamProject) -> None:
        """Such as after a rewind: everything waits as it did before."""
        stream_project.arrive(1, at=NOW)
        file, aside = stream_project.root / "in" / "0.json", stream_project.root / "0.json"
        triggerer = Triggerer(ArrivalWatch, stream_project)

        async def scenario() -> None:
            async with triggerer.running():
                await triggerer.told(1)
                file.rename(aside)
                await until(lambda: not json.loads(triggerer.store.rows[ArrivalWatch.key])["told"])
                aside.rename(file)
                await triggerer.told(2)

        asyncio.run(scenario())

    def test_what_a_run_left_is_told_when_the_run_has_ended(self) -> None:
        """Less than before is no news while the run goes on; more is, at any time."""
        watch = ArrivalWatch(asset="a", stream="events")

        def seen(ids: str, *, is_pending: bool = False) -> Arrivals:
            return Arrivals(frozenset(ids), is_pending, {})

        first = watch.news({}, seen("abc"))
        assert first is not None
        assert watch.news(first.position, seen("abc", is_pending=True)) is None
        assert watch.news(first.position, seen("bc", is_pending=True)) is None
        left = watch.news(first.position, seen("bc"))
        assert left is not None
        more = watch.news(left.position, seen("bcd", is_pending=True))
        assert more is not None
        assert more.payload is not None
        gone = watch.news(more.position, seen("", is_pending=True))
        assert gone is not None
        assert (gone.payload, gone.position) == (None, {})

    def test_a_source_that_is_not_there_yet(self, stream_project: StreamProject) -> None:
        """The folder is made later, as by whoever delivers first."""
        folder = Path(stream_project.root / "in")
        folder.rmdir()
        triggerer = Triggerer(ArrivalWatch, stream_project)

        async def scenario() -> None:
            async with triggerer.running():
                await looked()
                os.mkdir(folder)
                stream_project.arrive(1, at=NOW)
                await triggerer.told(1)

        asyncio.run(scenario())
