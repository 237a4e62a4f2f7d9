"""Random lives of a stream whose sink merges: arrivals, runs of each strategy, and cuts at random writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from sluice import Stream
from sluice.planning.planner import Limits
from tests.spark.lab import Lab
from tests.spark.power_cuts import Cut
from tests.spark.test_live_runs import live
from tests.spark.test_mended_files import cut_run

Row = TypeVar("Row")


def live_through(
    lab: Lab,
    stream: Stream,
    chance: random.Random,
    draw: Callable[[], Row],
    arrive: Callable[..., None],
    *,
    check: Callable[[list[list[Row]]], None],
    most_writes: int,
) -> None:
    """Let a stream live through some rounds.

    Args:
        lab: Where.
        stream: The stream.
        chance: Draws what happens.
        draw: Draws a row.
        arrive: Is given the lab, how many batches have arrived before, and some more.
        check: Is given all that has arrived, whenever nothing was cut.
        most_writes: Up to which write of a kind a run is cut.
    """
    (lab.root / "in").mkdir()
    batches = list[list[Row]]()
    for _ in range(chance.randint(3, 5)):
        some = [[draw() for _ in range(chance.randint(1, 6))] for _ in range(chance.randint(0, 2))]
        arrive(lab, len(batches), *some)
        batches += some
        limits = Limits(strategy=chance.choice(["drain", None]))
        if chance.random() < 0.6:
            match = chance.choice(["", "Delta's merge", "Spark's commit", "Spark's save"])
            at = chance.randint(1, most_writes if match else 12)
            cut_run(lab, stream, Cut(match, at, chance.choice(["before", "middle", "after"])), limits)
            continue
        if chance.random() < 0.3:
            # Which may end before all that has arrived is read.
            lab.run(stream, live("500ms", "processing-time=0s"))
        lab.run(stream, limits)
        check(batches)
    lab.run(stream)
    check(batches)
