"""Measures with Great Expectations what no aggregate of fixed size can: over rows that were written, and read again."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sluice.extras import check_extra
from sluice.quality.compile import Check, QualityPlan
from sluice.quality.results import CheckResult, unmeasured
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VALUES = ("unexpected_list", "unexpected_index", "partial_unexpected_index")
"""What begins the parts of a result that hold values of all rows, or whole rows: no business of a run record's."""
_CHECK = "sluice_check"
_MAX_REASON = 500


def reread(plan: QualityPlan, frame: DataFrame) -> list[CheckResult]:
    """Let Great Expectations measure what was not compiled, in one run of a suite over one copy that Spark keeps.

    A check fails that can't be measured, and says why in `details.not_measured`. Of no rows at all, every check passes,
    and Great Expectations is not even imported: a stream without news is no failure.

    Args:
        plan: What was compiled, and what was not.
        frame: The rows, of classic Spark or of Spark Connect.

    Raises:
        Exception: Spark can't read the rows.
    """
    checks = [check for check in plan.checks if check.path == "reread"]
    if not checks:
        return []
    rows = frame.select(*_columns(checks, frame.columns)).persist()
    try:
        if rows.isEmpty():
            return [CheckResult.of(c.expectation, "reread", success=True, result=_of_nothing(c)) for c in checks]
        return _validate(checks, rows, plan.suite.sample)
    finally:
        rows.unpersist()


def not_measured(plan: QualityPlan, why: str) -> list[CheckResult]:
    """The checks that had to be re-read, failed because nobody could."""
    return [_unmeasured(check, why) for check in plan.checks if check.path == "reread"]


def load_great_expectations() -> ModuleType:
    """Import Great Expectations, which takes seconds, without what it says of itself and to its makers."""
    check_extra("quality", "what only Great Expectations can measure, or write,")
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"):
        import great_expectations
    return great_expectations


def _validate(checks: Sequence[Check], rows: DataFrame, sample: int) -> list[CheckResult]:
    gx = load_great_expectations()
    with warnings.catch_warnings(action="ignore"):
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        # Great Expectations would keep a copy of its own, and never let it go.
        source = context.data_sources.add_spark(name="sluice", persist=False).add_dataframe_asset(name="rows")
        batch = source.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows})
        found = _results(gx, batch, checks, sample)
        raised = [check for check in checks if _exception(found[check.expectation.id])]
        if len(checks) > 1:
            # One that raises takes along those that are measured with it: none pays for another.
            for check in raised:
                found |= _results(gx, batch, [check], sample)
    return [_result(check, found[check.expectation.id], sample) for check in checks]


def _results(gx: ModuleType, batch: Any, checks: Sequence[Check], sample: int) -> dict[str, Mapping[str, Any]]:
    """What Great Expectations gives, by the id of the expectation: it has an order of its own."""
    expectations = [
        {"type": c.expectation.type, "kwargs": _kwargs(c), "meta": {_CHECK: c.expectation.id}} for c in checks
    ]
    suite = gx.ExpectationSuite(name="sluice", expectations=expectations)
    told = {"result_format": "SUMMARY", "partial_unexpected_count": sample}
    results = batch.validate(suite, result_format=told).to_json_dict()["results"]
    return {result["expectation_config"]["meta"][_CHECK]: result for result in results}


def _kwargs(check: Check) -> dict[str, Any]:
    """As the suite has them, but for what says how much Great Expectations is to tell."""
    return {name: value for name, value in check.expectation.kwargs.items() if name in check.expectation.arguments}


def _result(check: Check, found: Mapping[str, Any], sample: int) -> CheckResult:
    why = _exception(found)
    if why:
        return _unmeasured(check, why)
    unwanted = _VALUES if sample else (*_VALUES, "partial_")
    result = {name: value for name, value in found["result"].items() if not name.startswith(unwanted)}
    if isinstance(result.get("details"), dict):
        kept = {name: value for name, value in result["details"].items() if not name.startswith("unexpected_rows")}
        result["details"] = kept
    return CheckResult.of(check.expectation, "reread", success=bool(found["success"]), result=_plain(result))


def _plain(value: Any) -> Any:
    """A value without numpy's and other libraries' types, which JSON does not know."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value if value is None or isinstance(value, bool | int | float | str | Decimal | date) else str(value)


def _unmeasured(check: Check, why: str) -> CheckResult:
    return CheckResult.of(check.expectation, "reread", success=False, result=unmeasured(why))


def _exception(found: Mapping[str, Any]) -> str:
    """What Great Expectations caught while it measured a check; empty when all is well."""
    info = found.get("exception_info") or {}
    caught = [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, dict)]
    said = [str(one.get("exception_message") or "it raised") for one in caught if one.get("raised_exception")]
    return " ".join(said[0].split())[:_MAX_REASON] if said else ""


def _columns(checks: Sequence[Check], columns: Sequence[str]) -> list[str]:
    """The columns that have to be kept: those that checks name, all when one has words of Spark SQL."""
    named = {column.path[0] for check in checks for column in check.columns}
    is_free = any(not c.columns or c.expectation.arguments.get("row_condition") for c in checks)
    return [identifier(name) for name in columns if is_free or name in named]


def _of_nothing(check: Check) -> dict[str, Any]:
    if check.expectation.kind.level == "table":
        return {"observed_value": None}
    return {"element_count": 0, "unexpected_count": 0, "unexpected_percent": None}
