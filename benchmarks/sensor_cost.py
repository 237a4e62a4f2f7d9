"""What it costs to watch 1,000 streams: one shared poll, against a trigger that polls for each."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio.to_thread

from benchmarks.measure import Figure, ratio

STREAMS = 1_000
NEVER = 1_000_000
BAR_CORE_PERCENT = 1.0
ROUND_SECONDS = 60.0
"""About as long as a poll of so many streams rests after its work: most rounds have one reading, and some have none."""
ROUND_SECONDS_ALONE = 10.0
BUSY_PERCENT = 5.0
"""What a poll that rests never takes in a second."""
ROUNDS = 5
_DECLARATIONS = """
from sluice import Stream, sinks, sources
for number in range({count}):
    globals()[f"s{{number}}"] = Stream(
        name=f"s{{number}}",
        sources={{"events": sources.files("in", format="json", schema="n bigint")}},
        transform="none:none",
        sink=sinks.noop(),
    )
"""


def measure() -> list[Figure]:
    """Percent of a core while nothing happens, and its ratio to one polling trigger per stream."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _make_project(root)
        ours, theirs = asyncio.run(_measure(root))
    return [
        Figure(
            "watching 1,000 streams, percent of a core",
            statistics.median(ours),
            BAR_CORE_PERCENT,
            (min(ours), max(ours)),
            f"{ROUNDS} rounds of {ROUND_SECONDS:.0f} s, user and system time, nothing committed",
        ),
        ratio("watching 1,000 streams, to a poll each", ours, theirs, None, "% of a core"),
    ]


async def _measure(root: Path) -> tuple[list[float], list[float]]:
    ours = await _percents(lambda name: _watch(root, name), ROUND_SECONDS, is_paid_for=True)
    theirs = await _percents(lambda name: _poll_alone(root, name), ROUND_SECONDS_ALONE, is_paid_for=False)
    return ours, theirs


async def _percents(watch: Callable[[str], Awaitable[None]], round_seconds: float, *, is_paid_for: bool) -> list[float]:
    """Percent of a core that 1,000 watching tasks take while nothing happens, round by round.

    The first readings of a shared poll cost more, and are paid for by as long a rest: it is measured from its end on.
    """
    tasks = [asyncio.ensure_future(watch(f"s{number}")) for number in range(STREAMS)]
    await asyncio.sleep(ROUND_SECONDS_ALONE)
    if is_paid_for:
        while await _percent(1.0) < BUSY_PERCENT:
            pass
    percents = [await _percent(round_seconds) for _ in range(ROUNDS)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return percents


async def _percent(seconds: float) -> float:
    before, began = os.times(), time.perf_counter()
    await asyncio.sleep(seconds)
    after, took = os.times(), time.perf_counter() - began
    return 100 * (after.user + after.system - before.user - before.system) / took


async def _watch(root: Path, name: str) -> None:
    from sluice_airflow.triggers.progress import BatchTrigger

    async for _ in BatchTrigger(stream=name, batch_id=NEVER, project=str(root)).run():
        return


async def _poll_alone(root: Path, name: str) -> None:
    """The plain way that does not block the loop: each trigger lists the commits in a thread, as often as we look."""
    from sluice_airflow.triggers.shared_poll import POLL_SECONDS

    commits = f"{root}/var/sluice/{name}/generations/0001/commits"
    while True:
        if await anyio.to_thread.run_sync(_newest, commits) >= NEVER:
            return
        await asyncio.sleep(POLL_SECONDS)


def _newest(commits: str) -> int:
    return max(int(batch_id) for batch_id in os.listdir(commits))


def _make_project(root: Path) -> None:
    (root / "sluice.toml").write_text("[project]\n")
    (root / "streams").mkdir()
    (root / "streams" / "many.py").write_text(_DECLARATIONS.format(count=STREAMS))
    for number in range(STREAMS):
        commits = root / "var" / "sluice" / f"s{number}" / "generations" / "0001" / "commits"
        commits.mkdir(parents=True)
        for batch_id in range(100):
            (commits / str(batch_id)).write_bytes(b'v1\n{"nextBatchWatermarkMs":0}')
