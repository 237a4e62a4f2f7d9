"""Declarations that are edited between the kill of a backfill or a release and what follows: no row is twice, or stuck.

Whoever goes on works on the tables that were declared when it began, or is refused with the reason.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable

from sluice import sinks
from sluice.errors import BatchFailedError, RefusedError, SluiceError
from sluice.gate.returned_rows import RowReturn, read_returns
from sluice.sinks.delta.sink import DeltaSink
from tests.campaign import in_campaigns, rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab
from tests.spark.sink_operations import Killed, Meanwhile, Numbers, killed
from tests.spark.test_split_batches import cut

pytestmark = pytest.mark.spark

EDITS: dict[str, Callable[[Numbers], Numbers]] = {
    "nothing": lambda numbers: numbers,
    "quarantine moved": lambda numbers: numbers.editing(quarantine=sinks.delta("elsewhere")),
    "quality out": lambda numbers: numbers.editing(quality=None),
    "policy": lambda numbers: numbers.allow(2, "warn") or numbers,
    "transform": lambda numbers: numbers.editing(transform="tests.spark.sink_operations:times_ten"),
    "sink moved": lambda numbers: numbers.editing(
        sink=sinks.delta("moved", partition_by=["day"]), quarantine=sinks.delta("out_quarantine")
    ),
    "interval column out": lambda numbers: numbers.editing(interval_column=None),
}
REPLACING = {"before the commit": ("publish", 1), "after the commit": ("replace_where", 2)}
"""Where a backfill is killed: the second `replaceWhere` tidies the quarantine."""


def places(numbers: Numbers) -> tuple[Counter[int], Counter[int]]:
    return numbers.held("out"), numbers.held("out_quarantine")


ALL = (Counter(range(1, 9)), Counter[int]())
"""Every number is in the sink, once, and none is in the quarantine."""


@pytest.mark.parametrize(
    ("killed_at", "edit"),
    [
        ("after the commit", "quarantine moved"),
        ("after the commit", "quality out"),
        *rarely(*[(place, edit) for place in REPLACING for edit in EDITS]),
    ],
)
def test_a_backfill(lab: Lab, killed_at: str, edit: str) -> None:
    """Its retry tidies the quarantine that it began with, or is refused; a release with the old declaration doubles
    nothing."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(2)  # so that it puts rows into the quarantine
    name, call = REPLACING[killed_at]
    with killed(DeltaSink, name, call=call):
        numbers.backfill("key")
    numbers.allow(100)

    with suppress(SluiceError):
        EDITS[edit](numbers).backfill("key")
    numbers.allow(100)
    numbers.release()

    sink, quarantine = places(numbers)
    is_recomputed = (killed_at, edit) == ("before the commit", "transform")
    assert sink == (Counter([2, 4, 6, 8, 10, 30, 50, 70]) if is_recomputed else Counter(range(1, 9)))
    assert not quarantine


@pytest.mark.parametrize("edit", ["quarantine moved", *rarely("quality out", "policy", "transform")])
def test_a_backfill_that_has_replaced_its_rows(lab: Lab, edit: str) -> None:
    """Its retry is done whatever is declared by now: it computes nothing, and tidies what it has begun with."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(2)
    with killed(DeltaSink, "replace_where", call=2):
        numbers.backfill("key")
    assert places(numbers) == (Counter([1, 2, 4, 6]), Counter([3, 5, 7, 7, 8]))

    EDITS[edit](numbers).backfill("key")

    assert places(numbers) == (Counter([1, 2, 4, 6]), Counter([3, 5, 7, 8]))
    assert lab.records(numbers.stream)[-1]["status"] == "succeeded"


@pytest.mark.parametrize("change", ["column", *rarely("status")])
def test_a_release_after_a_backfill_that_was_killed(lab: Lab, change: str) -> None:
    """It tidies by the column of then; and a record that says `succeeded` of a quarantine that is not tidy, as
    earlier versions left it, is not believed."""
    numbers = Numbers(lab)
    numbers.begin()
    with killed(DeltaSink, "replace_where", call=2):
        numbers.backfill("key")
    assert places(numbers) == (Counter(range(1, 8)), Counter([7, 8]))
    edited = numbers
    if change == "column":
        edited = numbers.editing(interval_column=None)
    else:
        file = next((lab.root / "home" / "s" / "runs").glob(f"{lab.records(numbers.stream)[-1]['run_id']}.json"))
        record = json.loads(file.read_bytes()) | {"status": "succeeded"}
        record["backfill"] = {key: record["backfill"][key] for key in ("attempt", "version", "batch_id")}
        file.write_text(json.dumps(record))

    edited.release()

    assert places(numbers) == ALL


@pytest.mark.parametrize("by", ["release", *rarely("retry")])
def test_a_quarantine_whose_folder_is_moved(lab: Lab, by: str) -> None:
    """The table is the same at its new place: the retry of a backfill, or a release, tidies it there."""
    numbers = Numbers(lab)
    numbers.begin()
    with killed(DeltaSink, "replace_where", call=2):
        numbers.backfill("key")
    shutil.move(lab.root / "out_quarantine", lab.root / "moved")
    edited = numbers.editing(quarantine=sinks.delta("moved"))

    if by == "retry":
        edited.backfill("key")
        assert edited.held("moved") == Counter([8])
    edited.release()

    assert (edited.held("out"), edited.held("moved")) == ALL


@pytest.mark.parametrize("step", [(DeltaSink, "publish", 1), (DeltaSink, "replace_where", 2)])
def test_tables_that_are_copied(lab: Lab, step: tuple[type, str, int]) -> None:
    """To another disk, say, and what was there stays for a while: the copies are tidied as the tables would be."""
    numbers = Numbers(lab)
    numbers.begin()
    numbers.allow(2)
    owner, name, call = step
    with killed(owner, name, call=call):
        numbers.backfill("key")
    for path in ("out", "out_quarantine"):
        shutil.copytree(lab.root / path, lab.root / path.replace("out", "other"))
    edited = numbers.editing(sink=sinks.delta("other", partition_by=numbers.partitions))
    numbers.allow(100)

    edited.release()

    assert (edited.held("other"), edited.held("other_quarantine")) == ALL


RELEASING: dict[str, tuple[Any, str, int]] = {
    "before the claim": (DeltaTable, "update", 1),
    "before the append": (DeltaSink, "write_batch", 1),
    "after the append": (DeltaTable, "delete", 1),
}
"""Where a release is killed."""


def killed_release(lab: Lab, killed_at: str) -> Numbers:
    numbers = Numbers(lab)
    numbers.begin()
    owner, name, call = RELEASING[killed_at]
    with killed(owner, name, call=call):
        numbers.release()
    return numbers


def documents(numbers: Numbers) -> list[RowReturn]:
    return read_returns(numbers.lab.project.stream_home(numbers.stream))


def as_of_before(numbers: Numbers, **changes: Any) -> None:
    """Make the newest release's document one of a version that kept no tables."""
    file = max((numbers.lab.root / "home" / "s" / "releases").iterdir())
    document = json.loads(file.read_bytes())
    kept = {key: value for key, value in document.items() if key not in {"sink", "quarantine"}}
    file.write_text(json.dumps(kept | changes))


@pytest.mark.parametrize(
    ("killed_at", "is_of_before"),
    [("before the append", False), *rarely(("after the append", False), ("before the append", True),
                                           ("after the append", True), ("before the claim", False))],
)  # fmt: skip
def test_a_release_whose_quarantine_is_moved(lab: Lab, killed_at: str, *, is_of_before: bool) -> None:
    """Whoever goes on finishes it where it began; also one of a version that did not keep where that was."""
    numbers = killed_release(lab, killed_at)
    moved = numbers.editing(quarantine=sinks.delta("elsewhere"))
    if is_of_before:
        as_of_before(numbers)

    done = moved.release()

    is_claimed = killed_at != "before the claim"
    assert [found.rows for found in done.finished] == [2 if is_claimed else 0]
    assert done.returned.rows == 0
    assert places(numbers) == (ALL if is_claimed else (Counter(range(1, 7)), Counter([7, 8])))
    assert not (lab.root / "elsewhere").exists()
    numbers.release()
    assert places(numbers) == ALL
    assert {found.state for found in documents(numbers)} == {"done"}


@pytest.mark.parametrize("killed_at", ["after the append", *rarely("before the append")])
def test_rows_that_a_release_has_forgotten(lab: Lab, killed_at: str) -> None:
    """Over by its document, it has left rows claimed, as earlier versions did: they are freed or finished."""
    numbers = killed_release(lab, killed_at)
    as_of_before(numbers, state="done")

    numbers.release()

    assert places(numbers) == ALL


@pytest.mark.parametrize("killed_at", ["before the append", *rarely("after the append")])
def test_a_release_whose_quarantine_is_gone(lab: Lab, killed_at: str) -> None:
    """It is refused until the table is back, where its rows are nowhere else."""
    numbers = killed_release(lab, killed_at)
    away = shutil.move(lab.root / "out_quarantine", lab.root / "away")

    if killed_at == "after the append":
        numbers.release()
        assert numbers.held("out") == Counter(range(1, 9))
        return
    with pytest.raises(RefusedError, match="is gone") as caught:
        numbers.release()
    read_remedy(caught.value, "RELEASE_QUARANTINE_GONE", "restore the table, and release rows again")

    shutil.move(away, lab.root / "out_quarantine")
    numbers.release()
    assert places(numbers) == ALL


def test_a_release_whose_sink_is_moved(lab: Lab) -> None:
    """It is refused as a run is, and nothing is written into the other table."""
    numbers = killed_release(lab, "after the append")
    moved = numbers.editing(sink=sinks.delta("moved", partition_by=["day"]), quarantine=sinks.delta("out_quarantine"))

    with pytest.raises(RefusedError) as of_run:
        lab.run(moved.stream)
    with pytest.raises(RefusedError) as of_release:
        moved.release()

    assert of_release.value.finding == of_run.value.finding
    assert of_release.value.finding.code == "SINK_REPLACED"
    assert of_release.value.finding.cause.endswith(f" at out; at {lab.root / 'moved'} there is none")
    assert not Path(lab.root / "moved").exists()
    numbers.release()
    assert places(numbers) == ALL


def test_a_release_of_a_first_batch_whose_sink_is_moved(lab: Lab) -> None:
    """Only the quarantine has its part: the other place is refused as for a run."""
    numbers = Numbers(lab)
    numbers.allow(6)
    numbers.arrive(1, 8)
    with cut("_quarantine"), pytest.raises(BatchFailedError, match="PowerCut"):
        lab.run(numbers.stream)
    numbers.allow(100)
    moved = numbers.editing(sink=sinks.delta("moved", partition_by=["day"]), quarantine=sinks.delta("out_quarantine"))

    with pytest.raises(RefusedError) as of_run:
        lab.run(moved.stream)
    with pytest.raises(RefusedError) as of_release:
        moved.release()

    assert of_release.value.finding == of_run.value.finding
    assert of_release.value.finding.code == "SINK_MOVED"
    lab.run(numbers.stream)
    numbers.release()
    assert places(numbers) == ALL


class PowerCut(Exception):  # noqa: N818 - an accident
    """What ends a batch in the middle: Spark's callback does not outlive a kill."""


def cut_off(first: str) -> None:
    raise PowerCut if first == "live" else Killed


@in_campaigns
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("first", "edit"),
    # A batch of which nothing was decided is that of the transform that runs it.
    [pair for pair in itertools.product(["live", "backfill", "release"], EDITS) if pair != ("live", "transform")],
)
def test_every_kill_and_every_edit(lab: Lab, monkeypatch: pytest.MonkeyPatch, first: str, edit: str) -> None:
    """Killed before any of its steps, tried again with the edited declaration, and then with the old one."""
    numbers = Numbers(lab)
    numbers.begin()
    with numbers.starting_over() as start_over:
        for step in itertools.count():
            numbers.allow(100 if first == "release" else 2)
            cut = Meanwhile(step, partial(cut_off, first))
            with monkeypatch.context() as patched, suppress(Killed, PowerCut, SluiceError):
                cut.watch(patched)
                getattr(numbers, first)()
            if not cut.is_done:
                break
            numbers.allow(100)
            for operation in (first, "release"):
                with suppress(SluiceError):
                    getattr(EDITS[edit](numbers), operation)()
            numbers.allow(100)
            getattr(numbers, first)()
            numbers.release()

            place = f"before step {step}, {cut.taken[step]}"
            sink, quarantine = places(numbers)
            assert not quarantine, place
            last = 10 if first == "live" else 8
            assert sink == Counter(range(1, last + 1)), place
            assert not (lab.root / "moved").exists(), place
            start_over()
