"""Joins on a schedule emit what one query that never stops would have emitted."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.campaign import CAMPAIGN, in_campaigns, rarely
from tests.spark.join_histories import (
    FAR,
    SCHEMA,
    SQL,
    TRANSFORMS,
    History,
    Step,
    computed_at_once,
    draw_steps,
    left_outer,
)
from tests.spark.lab import Lab, available_now, reader, rows, touch

pytestmark = pytest.mark.spark


def test_sides_that_arrive_in_different_runs(lab: Lab) -> None:
    """One side per run, one driver dead before Spark's commit: every row comes out, as if nothing had ever stopped."""
    history = History(lab, "left_outer")
    history.run(Step({"a": [[(1, 100), (2, 110)]]}))
    history.run(Step({"b": [[(1, 105), (9, 300)]]}, kill="before Spark's commit"))
    history.run(Step({"a": [[(3, 400)]]}))
    assert (2, 110, None, None) in history.emitted()
    record = history.lab.records(history.stream)[-1]["batches"][-1]
    assert record["watermarks"] == {"a.at": "1970-01-01T00:06:30.000Z", "b.bt": "1970-01-01T00:04:40.000Z"}
    assert record["held_back_by"] == ["b.bt"]
    history.finish()
    emitted, watermarks = history.never_stopped()
    assert history.emitted() == emitted == computed_at_once("left_outer", history.arrived)
    assert history.watermarks() == watermarks


def test_a_file_that_changed_before_it_was_measured(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """A driver died behind Spark's commit: what is in a file of the batch by now says nothing of its watermark."""
    history = History(lab, "left_outer")
    history.run(Step({"a": [[(1, 100)]], "b": [[(9, 100)]]}))
    history.run(Step({"a": [[(2, 110)]], "b": [[(8, 110)]]}, kill="after Spark's commit"))
    for source in "ab":
        newest = max((lab.root / source).iterdir())
        newest.write_text(newest.read_text().replace("110", "9000"))
        touch(newest, 60)

    history.run(Step({"a": [[(3, 150)]], "b": [[(3, 151)]]}))

    record = history.lab.records(history.stream)[-1]["batches"][-1]
    assert max(record["watermarks"].values()) < "1970-01-01T00:02:30"
    assert "can't be measured" in caplog.text
    history.finish()
    assert (3, 150, 3, 151) in history.emitted()


def test_an_old_checkpoint(lab: Lab) -> None:
    """Of a checkpoint that nobody measured, the inputs are known from then on, and the plan says so."""
    history = History(lab, "left_outer")
    history.run(Step({"a": [[(1, 100), (2, 110)]], "b": [[(1, 105)]]}))
    history.watermark_file.unlink()
    assert lab.plan(history.stream).watermarks is None
    history.run(Step({"b": [[(9, 300)]]}))
    shown = msgspec.to_builtins(lab.plan(history.stream).document)["watermarks"]
    assert [known["since"] for known in shown["inputs"]] == [2, 2]
    assert [known["watermark"] for known in shown["inputs"]] == [
        "1970-01-01T00:01:25.000Z",  # at least: what the whole had reached
        "1970-01-01T00:04:40.000Z",
    ]
    history.finish()
    emitted, _ = history.never_stopped()
    assert history.emitted() == emitted


def test_beside_plain_spark(lab: Lab) -> None:
    """The figures of the README: 120 impressions, 68 clicked, by turns in ten runs, and all due in the end."""
    history = History(lab, "left_outer")
    frames = {name: reader(lab.spark, SCHEMA).json(str(lab.root / name)) for name in "ab"}
    shown = [(key, 100 + 10 * key) for key in range(120)]
    clicked = [(key, at + 3) for key, at in shown if key * 17 % 30 < 17]
    for turn in range(5):
        for number, (source, events) in enumerate((("a", shown), ("b", clicked)), 1):
            arrived = [event for event in events if event[0] // 24 == turn]
            history.run(Step({source: [[*arrived, (-number, FAR)] if turn == 4 else arrived]}))
            available_now(left_outer(**frames), lab.root / "plain", lab.root / "out", sink="parquet")
    emitted, plain = history.emitted(), rows(lab.spark.read.parquet(str(lab.root / "out")))
    assert (len(emitted), sum(row[2] is None for row in emitted)) == (120, 52)
    assert (len(plain), sum(row[2] is None for row in plain)) == (68, 0)


@in_campaigns
@pytest.mark.parametrize("name", TRANSFORMS)
def test_drained_runs_emit_everything(lab: Lab, name: str) -> None:
    """Where Spark decides the batches, whatever came in time comes out in the end, too."""
    history = History(lab, name, limit=1)
    for step in draw_steps(7, history.sources, is_late=False):
        history.run(Step(step.arrivals, strategy="drain"))
    history.finish()
    assert history.emitted() == history.never_stopped()[0]


SHORT = [("full_outer", 2, 3), ("join_then_window", 6, 3)]
"""Of each run of the tests: a side that is idle for days, nothing late, and a kill."""


@pytest.mark.parametrize(
    ("name", "seed", "length"),
    [*SHORT, *rarely(*((name, seed, 8) for name in TRANSFORMS for seed in range(2 * CAMPAIGN)))],
)
def test_any_interleaving(lab: Lab, name: str, seed: int, length: int) -> None:
    """Arrivals by side, limits, batches, runs and kills: the same rows, and the same watermark in every batch."""
    is_late = bool(seed % 2)
    history = History(lab, name, limit=random.Random(seed).choice((None, 1)))
    for step in draw_steps(seed, history.sources, is_late=is_late, length=length):
        history.run(step)
    history.finish()
    emitted, watermarks = history.never_stopped()
    assert history.emitted() == emitted
    assert history.watermarks() == watermarks
    if not is_late and name in SQL:
        # What matches itself comes out before it is due.
        assert [row for row in emitted if FAR not in row] == computed_at_once(name, history.arrived)


@in_campaigns
@pytest.mark.parametrize("seed", range(max(2, CAMPAIGN // 50)))
@pytest.mark.parametrize("name", ["left_outer", "windows_of_windows"])
def test_the_largest_of_several(lab: Lab, name: str, seed: int) -> None:
    """By the policy `max`, which is pinned in the checkpoint, the side that is ahead moves the whole."""
    policy = "spark.sql.streaming.multipleWatermarkPolicy"
    lab.spark.conf.set(policy, "max")
    try:
        history = History(lab, name)
        for step in draw_steps(seed, history.sources, is_late=bool(seed % 2)):
            history.run(step)
        history.finish()
        emitted, watermarks = history.never_stopped()
    finally:
        lab.spark.conf.unset(policy)
    assert history.emitted() == emitted
    assert history.watermarks() == watermarks
