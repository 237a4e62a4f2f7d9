"""What planning costs per file, at 1,000, 10,000 and 100,000 files, all taken or all new."""

from __future__ import annotations

import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measure import ROUNDS, Figure, timed
from sluice import Stream, sinks, sources
from sluice.checkpoint.offsets import OffsetFile
from sluice.checkpoint.writer import write_metadata, write_planned_batch
from sluice.home import StreamHome
from sluice.planning.planner import Limits, build_plan
from sluice.planning.survey import survey
from sluice.sources.contract import Bound
from sluice.storage import Storage

BAR_MICROSECONDS = 4.0
COUNTS = (1_000, 10_000, 100_000)


def measure() -> list[Figure]:
    """Microseconds per listed file."""
    figures = []
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            landing = Path(folder, "in")
            landing.mkdir()
            for index in range(count):
                (landing / f"part-{index:08d}.json").touch()
            home = StreamHome(f"{folder}/home/s", Storage())
            source = sources.files(str(landing), format="json", schema="id bigint")
            stream = Stream(name="s", sources={"files": source}, transform="none:none", sink=sinks.noop())
            figures.append(_figure(stream, home, count, "new"))
            _take_all(stream, home)
            figures.append(_figure(stream, home, count, "taken"))
    return figures


def _figure(stream: Stream, home: StreamHome, count: int, state: str) -> Figure:
    now = datetime.now(UTC)

    def plan() -> None:
        build_plan(survey(stream, home, Bound(), now), Limits(), now)

    plan()
    costs = [timed(plan) / count * 1e6 for _ in range(ROUNDS)]
    # The fixed cost of a plan (a dozen small files are looked for) weighs on a thousand files.
    return Figure(
        f"planning, {count:,} files, all {state}",
        statistics.median(costs),
        BAR_MICROSECONDS,
        (min(costs), max(costs)),
        f"microseconds per file, {ROUNDS} rounds",
    )


def _take_all(stream: Stream, home: StreamHome) -> None:
    """Write the plan into the checkpoint, and commit it as Spark would."""
    now = datetime.now(UTC)
    batch = build_plan(survey(stream, home, Bound(), now), Limits(), now).batches[0]
    checkpoint = home.checkpoint_location(1)
    source = batch.sources["files"]
    planned = OffsetFile(0, 1, 0, batch.timestamp_ms, {}, {"0": source.end})
    write_metadata(checkpoint, "0", storage=home.storage)
    write_planned_batch(checkpoint, planned, {"0": (0, source.added.entries)}, {}, storage=home.storage)
    home.storage.replace(f"{checkpoint}/commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
