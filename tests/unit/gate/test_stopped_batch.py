"""What a person has let through, told from what the batch is by the next run."""

from __future__ import annotations

from sluice.gate.stopped_batch import StoppedBatch, key_of, not_let_through
from sluice.quality.compile import QualityPlan
from sluice.quality.judgement import Judgement
from sluice.quality.results import CheckResult
from tests.unit.quality.test_remeasured import LARGEST, NAMED, plan_of, values_of


def failing(plan: QualityPlan) -> list[CheckResult]:
    return [CheckResult.of(check.expectation, check.path, success=False, result={}) for check in plan.checks]


def test_what_varies_is_not_compared() -> None:
    plan = plan_of(LARGEST)
    values = values_of(plan, rows=3, largest="7.0")
    stopped = StoppedBatch(declared={}, failing=(), values=values)
    assert stopped.other_rows(plan, values | {plan.rows: 4}) == "it had 3 rows then, and has 4 rows"
    assert StoppedBatch(declared={}, failing=(), values=values, varies=True).other_rows(plan, {}) is None


def judged(*results: CheckResult) -> Judgement:
    return Judgement("fail" if results else "pass", results, None, {}, results)


def test_what_was_let_through_is_asked_of_the_others() -> None:
    largest, named = failing(plan_of(LARGEST, NAMED))
    let_through = {key_of(largest)}
    assert not_let_through(judged(largest), let_through, judged()) == ()
    assert not_let_through(judged(largest), let_through, judged(largest)) == (largest,)
    assert not_let_through(judged(largest, named), let_through, judged()) == (named,)
    assert not_let_through(judged(largest), (), judged()) == (largest,)


def test_what_fails() -> None:
    """Whatever failed then may fail; what passed, or was asked otherwise, may not."""
    stopped = StoppedBatch(declared={}, failing=tuple(map(key_of, failing(plan_of(LARGEST)))))
    assert stopped.other_checks(failing(plan_of(LARGEST))) is None
    assert stopped.other_checks([]) is None
    other = {**LARGEST, "kwargs": {**LARGEST["kwargs"], "max_value": 4}}
    told = "`expect_column_max_to_be_between` did not fail then, or was asked otherwise"
    assert stopped.other_checks(failing(plan_of(other))) == told
    assert stopped.other_checks(failing(plan_of(LARGEST, NAMED))) == told.replace("max_to", "values_to").replace(
        "between", "in_set"
    )
