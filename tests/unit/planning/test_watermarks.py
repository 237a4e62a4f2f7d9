"""What is known of every `withWatermark`, and what the next batch runs with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice.checkpoint.offsets import CommitFile, OffsetFile
from sluice.checkpoint.reader import CheckpointState
from sluice.planning.explain import explain
from sluice.planning.next_watermark import is_no_data_due, next_watermark_ms, usable
from sluice.planning.planner import Limits
from sluice.watermarks import BatchTimes, InputWatermark, Watermarks
from tests.builders import QUERY_ID
from tests.engine_model import HeldRows
from tests.unit.engine_lab import KilledError, Lab, make_lab


def known(*inputs: tuple[str, int | None], measured: int = 3, delay_ms: int = 0, **its: Any) -> Watermarks:
    found = tuple(InputWatermark(input=name, delay_ms=delay_ms, event_ms=at, **its) for name, at in inputs)
    return Watermarks(query_id=QUERY_ID, measured=measured, inputs=found)


def checkpoint(watermark_ms: int, policy: str = "min", *, batch_id: int = 3) -> CheckpointState:
    """One whose newest batch ran with a watermark."""
    conf = {"spark.sql.streaming.multipleWatermarkPolicy": policy}
    return CheckpointState("c", QUERY_ID, OffsetFile(batch_id, 1, watermark_ms, 0, conf, {}))


@pytest.mark.parametrize(
    ("policy", "at", "watermark_ms", "held_back_by"),
    [
        ("min", (700, 900), 700, ("a",)),
        ("min", (700, None), 500, ("b",)),
        ("min", (700, 700), 700, ()),
        ("max", (700, 900), 900, ()),
        ("max", (700, None), 700, ()),
        ("min", (100, 200), 500, ("a",)),
    ],
)
def test_several(policy: Any, at: tuple[int, int | None], watermark_ms: int, held_back_by: tuple[str, ...]) -> None:
    """The smallest or the largest by the pinned policy, never below the newest batch's; and who holds others back."""
    found = known(("a", at[0]), ("b", at[1]))
    assert next_watermark_ms(checkpoint(500, policy), found) == watermark_ms
    assert found.held_back_by(policy) == held_back_by


def test_events_that_go_back() -> None:
    """A watermark never goes back, and one that a batch brings nothing for stays."""
    found = known(("a", 700), ("b", None)).after(4, {"a": 600, "b": 300})
    assert [(watermark.event_ms, found.measured) for watermark in found.inputs] == [(700, 4), (300, 4)]


@pytest.mark.parametrize(
    ("measured", "query_id", "is_usable"),
    [(3, QUERY_ID, True), (-1, QUERY_ID, True), (4, QUERY_ID, False), (3, "x", False)],
)
def test_what_belongs_to_another_checkpoint(measured: int, query_id: str, *, is_usable: bool) -> None:
    """What was measured beyond the newest batch is of a checkpoint that was put back to an older state."""
    state = CheckpointState("c", query_id, checkpoint(0).planned)
    assert (usable(known(("a", 1), measured=measured), state) is not None) == is_usable


@pytest.mark.parametrize(
    ("mode", "has_state", "is_due"), [("append", True, True), ("append", False, False), ("complete", True, False)]
)
def test_no_data(mode: Any, *, has_state: bool, is_due: bool) -> None:
    """A batch without data is due by the true watermark, though Spark's own log has not moved."""
    found = known(("a", 700), ("b", 900))
    assert is_no_data_due(checkpoint(500), found, mode, has_state=has_state) == is_due
    assert not is_no_data_due(checkpoint(700), found, mode, has_state=has_state)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A join of two sides, of which `b` is behind."""
    lab = make_lab(tmp_path, names="ab", operator=HeldRows(10))
    lab.arrive(1, source="a", at_ms=200)
    lab.run()
    lab.arrive(2, source="b", at_ms=100)
    lab.run()
    return lab


def test_the_plan_shows_each(lab: Lab) -> None:
    """The plan shows each input's watermark, and which one holds the others back."""
    assert list(explain(lab.plan()))[1:] == [
        "  watermark 1970-01-01T00:00:00.090Z, the min of 2",
        "    a.at: 1970-01-01T00:00:00.190Z",
        "    b.at: 1970-01-01T00:00:00.090Z; holds the others back",
    ]
    shown = msgspec.to_builtins(lab.plan().document)["watermarks"]
    assert (shown["next"], shown["policy"], shown["unmeasured_batches"]) == ("1970-01-01T00:00:00.090Z", "min", 0)
    assert shown["inputs"][1] == {
        "input": "b.at",
        "watermark": "1970-01-01T00:00:00.090Z",
        "newest_event": "1970-01-01T00:00:00.100Z",
        "delay_seconds": 0.01,
        "since": 0,
        "holds_back": True,
    }


def test_the_record_shows_each(lab: Lab) -> None:
    """The record of a batch says how far each input is after it."""
    batch = lab.records()[-1]["batches"][-1]
    assert batch["watermarks"] == {"a.at": "1970-01-01T00:00:00.190Z", "b.at": "1970-01-01T00:00:00.090Z"}
    assert batch["held_back_by"] == ["b.at"]


def test_a_batch_that_nobody_kept(lab: Lab) -> None:
    """A driver died right after Spark's commit: the next run has nothing new, and measures the batch before all."""
    lab.arrive(3, source="b", at_ms=150)
    lab.dies_at = "after the commit"
    with pytest.raises(KilledError):
        lab.run()
    plan = lab.plan()
    assert (plan.verdict, plan.batches) == ("run", ())
    assert "batch 3" in plan.reason
    assert lab.prepare().status == "planned"
    assert [(batch.batch_id, batch.kind) for batch in lab.run().batches] == [(4, "no_data")]
    assert lab.plan().verdict == "skip"
    assert not lab.checkpoint.with_name("0001.replay").exists()


def test_a_batch_whose_input_is_gone(lab: Lab) -> None:
    """What can't be measured any more is said; it counts again from the next batch on."""
    lab.arrive(3, "gone.json", source="b", at_ms=150)
    lab.dies_at = "after the commit"
    with pytest.raises(KilledError):
        lab.run()
    (lab.root / "b" / "gone.json").unlink()
    lab.run()
    lines = list(explain(lab.plan(Limits(max_batches=0))))
    assert "    b.at: 1970-01-01T00:00:00.090Z; holds the others back; measured from batch 4 on:" in lines[3]
    lab.arrive(4, source="b", at_ms=160)
    lab.run()
    assert lab.state().watermark_ms == 150


def test_a_checkpoint_that_was_put_back(lab: Lab) -> None:
    """Events of batches that the checkpoint does not have do not count."""
    file = lab.home / "watermarks" / "0001.json"
    file.write_text(
        file.read_text().replace('"measured": 2', '"measured": 9').replace('"event_ms": 100', '"event_ms": 900')
    )
    assert lab.plan().watermarks is None
    lab.arrive(5, source="b", at_ms=120)
    lab.run()
    assert [found.since for found in lab.plan().watermarks.known.inputs] == [3, 3]
    assert lab.state().watermark_ms == 90


@pytest.mark.parametrize(
    ("published", "measured", "watermark_ms"), [((3,), 3, 700), ((), 3, 9000), ((4,), 3, 9000), ((3,), 2, 9000)]
)
def test_a_batch_that_was_measured_before_its_rows_counted(
    published: tuple[int, ...], measured: int, watermark_ms: int
) -> None:
    """Spark may have read other rows when it committed it: what was kept of it counts, once it is counted in."""
    committed = replace(checkpoint(500), committed=CommitFile(3, 1, 9000))
    times = tuple(BatchTimes(batch_id=batch_id, event_times={}) for batch_id in published)
    found = msgspec.structs.replace(known(("a", 700), measured=measured), published=times)
    assert next_watermark_ms(committed, found) == watermark_ms


def test_what_was_measured_is_over_with_its_batch() -> None:
    """That of batches that are not counted in stays, as a start has them that runs several."""
    found = known(("a", 700), measured=2).publishing(3, {"a": 750}).publishing(4, {"a": 810}).publishing(4, {"a": 800})
    first, second = (BatchTimes(batch_id=number, event_times={"a": at}) for number, at in ((3, 750), (4, 800)))
    assert found.published == (first, second)
    assert found.publishing(4, None).published == (first,)
    assert found.after(3, {"a": 900}).published == (second,)
    assert found.after(4, {"a": 900}).published == ()
    counted = found.after_published(first)
    assert (counted.measured, counted.inputs[0].event_ms, counted.published) == (3, 750, (first, second))
    assert counted.after_published(second).published == (second,)


def test_which_is_which_is_not_known() -> None:
    """Inputs of one name are each as far as the last of them, also in what is yet to be counted in; others stay."""
    found = known(("a.at", 700), ("a.at (2)", 300), ("b.at", 900), since=2).publishing(
        4, {"a.at": 800, "a.at (2)": 400, "b.at": 950}
    )
    alike = found.as_one("a.at")
    assert [(one.input, one.event_ms) for one in alike.inputs] == [("a.at", 300), ("a.at (2)", 300), ("b.at", 900)]
    assert [one.event_times for one in alike.published] == [{"b.at": 950, "a.at": 400, "a.at (2)": 400}]
    assert found.as_one("b.at") == found
    half = known(("a.at", 700), ("a.at (2)", None)).publishing(4, {"a.at": 800}).as_one("a.at")
    assert [one.event_ms for one in half.inputs] == [None, None]
    assert [one.event_times for one in half.published] == [{}]
