"""An operation stands still past its lease, another one takes over and comes to its end, and the first wakes up."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress

import pytest

from sluice.errors import SluiceError
from tests.campaign import in_campaigns
from tests.spark.lab import Lab
from tests.spark.power_cuts import let_leases_run_out
from tests.spark.sink_operations import Meanwhile, Numbers

pytestmark = pytest.mark.spark

PUT_ASIDE, TIDIED = 3, 5
"""The steps of a backfill that write its quarantine."""


def stand_still(numbers: Numbers, first: str, second: str, step: int) -> Meanwhile:
    """Let one stand still before a step of its own, until the other is done."""

    def take_over() -> None:
        let_leases_run_out(numbers.lab.root / "home")
        getattr(numbers, second)()

    meanwhile = Meanwhile(step, take_over)
    with pytest.MonkeyPatch.context() as patch:
        meanwhile.watch(patch)
        with suppress(SluiceError):
            getattr(numbers, first)()
    return meanwhile


def check(numbers: Numbers, place: str) -> None:
    """What is more than 6 fails, and is in the quarantine; every other number is in the sink, all of them once."""
    sink, quarantine = numbers.held("out"), numbers.held("out_quarantine")
    assert sink == Counter(range(1, 7)), place
    assert quarantine in (Counter([7, 8]), Counter([7, 8, 9, 10])), place


def begin(numbers: Numbers) -> None:
    numbers.begin()
    numbers.allow(6)


@pytest.mark.parametrize("step", [PUT_ASIDE, TIDIED])
def test_a_backfill_that_stood_still(lab: Lab, step: int) -> None:
    """Before it writes the quarantine: what another one has put there since stays, and nothing is there twice."""
    numbers = Numbers(lab)
    begin(numbers)

    meanwhile = stand_still(numbers, "backfill", "backfill", step)

    assert meanwhile.taken[step] == "replace_where"
    check(numbers, str(meanwhile.taken))


@in_campaigns
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("second", ["live", "backfill", "release", "audit"])
@pytest.mark.parametrize("first", ["live", "backfill", "release"])
def test_every_step(lab: Lab, first: str, second: str) -> None:
    """As many times as the first has steps; what it has left undone, the next one of its kind does."""
    numbers = Numbers(lab)
    begin(numbers)
    with numbers.starting_over() as start_over:
        for step in itertools.count():
            meanwhile = stand_still(numbers, first, second, step)
            if not meanwhile.is_done:
                break
            place = f"before step {step}, {meanwhile.taken}; {meanwhile.refused}"
            if second in {"backfill", first}:
                check(numbers, place)
            getattr(numbers, first)()
            check(numbers, place)
            start_over()
    assert step > 0
