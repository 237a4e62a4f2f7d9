"""`output_mode` edited on a stream that has state: refused by all commands alike, with a remedy; else it is taken."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from sluice.planning.generation_sink import check_sink
from sluice.sinks.contract import OutputMode
from sluice.sinks.memory import batches_of
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_expired_transactions import cut_run

pytestmark = pytest.mark.spark


def windows(x: DataFrame) -> DataFrame:
    events = x.select("n", F.timestamp_seconds("n").alias("at")).withWatermark("at", "2 seconds")
    grouped = events.groupBy(F.window("at", "10 seconds")).agg(F.count("n").alias("rows"))
    return grouped.select(F.unix_seconds("window.start").alias("n"), "rows")


def doubled(x: DataFrame) -> DataFrame:
    return x.select((F.col("n") * 2).alias("n"))


def stream(mode: OutputMode, transform: Any = windows, **changes: Any) -> Stream:
    land = sources.files("land", format="json", schema="n bigint")
    reference = f"{__name__}:{transform.__name__}"
    made = {"name": "s", "sink": sinks.delta("out"), **changes}
    return Stream(sources={"x": land}, transform=reference, output_mode=mode, **made)


def arrive(lab: Lab, first: int, last: int) -> None:
    lines = [json.dumps({"n": n}) for n in range(first, last)]
    write_files(lab.root / "land", {f"{first:03d}.json": "\n".join(lines)}, first=first)


def table(lab: Lab, path: str = "out") -> list[tuple[int, int]]:
    return sorted((row.n, row.rows) for row in lab.table(path).collect())


def refused(lab: Lab, edited: Stream, then: str) -> RefusedError:
    """A plan, a run and a release say the same."""
    problem = lab.plan(edited).problem
    assert problem is not None
    assert problem.cause == f"`output_mode` is {edited.output_mode!r}, and the stream has run with {then!r}"
    declared = lab.project.resolve(edited)
    for ask in (
        lambda: lab.run(edited),
        lambda: check_sink(lab.project, declared, lab.project.stream_home(declared)),
    ):
        with pytest.raises(RefusedError) as told:
            ask()
        assert told.value.finding == problem
    return told.value


@pytest.mark.parametrize(("then", "now"), [("append", "complete"), ("complete", "append")])
def test_an_edit_and_its_remedies(lab: Lab, then: OutputMode, now: OutputMode) -> None:
    """The table stays as it is; put back, the stream goes on; a new stream has its rows by the other mode."""
    twin = stream(then, name="never_edited", sink=sinks.delta("never_edited"))
    arrive(lab, 0, 35)
    lab.run(stream(then))
    lab.run(twin)
    arrive(lab, 35, 55)
    before = table(lab)

    said = refused(lab, stream(now), then)

    says = f"set `output_mode` to '{then}' again, or declare a new stream with a sink of its own"
    read_remedy(said, "OUTPUT_MODE_CHANGED", says)
    assert table(lab) == before
    assert lab.run(stream(then)).status == "succeeded"
    lab.run(twin)
    assert table(lab) == table(lab, "never_edited")
    assert lab.plan(stream(then)).verdict == "skip"
    assert lab.run(stream(now, name="anew", sink=sinks.delta("anew"))).status == "succeeded"


@pytest.mark.parametrize("cut", [Cut("Spark's commit"), Cut("commit out")], ids=["in the sink", "planned"])
def test_an_edit_after_a_kill(lab: Lab, cut: Cut) -> None:
    """A batch that was begun in one mode is not gone on with in another."""
    arrive(lab, 0, 35)
    lab.run(stream("append"))
    arrive(lab, 35, 55)
    cut_run(lab, stream("append"), cut)

    refused(lab, stream("complete"), "append")

    lab.run(stream("append"))
    assert table(lab) == [(0, 10), (10, 10), (20, 10), (30, 10), (40, 10)]


def test_a_first_batch_in_the_sink(lab: Lab) -> None:
    """It has written rows by its mode, and nothing is committed."""
    arrive(lab, 0, 35)
    cut_run(lab, stream("complete"), Cut("Spark's commit"))

    refused(lab, stream("append"), "complete")

    lab.run(stream("complete"))
    assert table(lab) == [(0, 10), (10, 10), (20, 10), (30, 5)]


def test_a_first_batch_that_is_nowhere(lab: Lab) -> None:
    """It is begun anew, by what is declared now."""
    arrive(lab, 0, 35)
    cut_run(lab, stream("append"), Cut("commit out"))

    assert lab.run(stream("complete")).status == "succeeded"
    assert table(lab) == [(0, 10), (10, 10), (20, 10), (30, 5)]
    refused(lab, stream("append"), "complete")


def test_without_state(lab: Lab) -> None:
    """The rows are the same in each mode: the edit is taken, both ways."""
    sink = sinks.memory("doubled")
    modes: list[OutputMode] = ["append", "update", "append"]
    for number, mode in enumerate(modes):
        arrive(lab, number * 5, number * 5 + 5)
        assert lab.run(stream(mode, doubled, sink=sink)).status == "succeeded"
    batches = batches_of("doubled")
    assert [[row.n for row in batches[batch_id]] for batch_id in range(3)] == [
        [*range(first, first + 10, 2)] for first in (0, 10, 20)
    ]


def test_with_state_and_without_a_table(lab: Lab) -> None:
    """Where rows go does not matter: those of the next batch would be others."""
    arrive(lab, 0, 35)
    lab.run(stream("update", sink=sinks.noop()))
    arrive(lab, 35, 55)
    refused(lab, stream("append", sink=sinks.noop()), "update")


def test_a_home_that_has_not_noted_it(lab: Lab) -> None:
    """Nothing tells the mode; the next run notes it."""
    arrive(lab, 0, 35)
    lab.run(stream("append"))
    home = lab.project.stream_home(lab.project.resolve(stream("append")))
    generation = home.generation(1)
    assert generation is not None
    home.keep_generation(msgspec.structs.replace(generation, begun_with=()))
    assert lab.plan(stream("complete")).problem is None
    arrive(lab, 35, 55)

    lab.run(stream("append"))

    refused(lab, stream("complete"), "append")
