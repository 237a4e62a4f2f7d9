"""Data Docs: Great Expectations' own pages of a run's checks, of those that were compiled and those that were not."""

from __future__ import annotations

import html
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from sluice.errors import DeclarationError, StorageError
from sluice.quality.history import TYPE, HistoryRule
from sluice.quality.reread import load_great_expectations
from sluice.quality.results import why_unmeasured
from sluice.runs.record import CheckRecord

if TYPE_CHECKING:
    from sluice.runs.record import RunRecord

_SITE = "sluice"
_MAX_NAME = 100
_MARKUP, _TAG = re.compile(r"[<>&\"']"), re.compile(r"<(?=[A-Za-z/!?])")
_STYLE = os.path.join("static", "styles", "data_docs_default_styles.css")
"""What tells a folder of Data Docs from others."""


def write_data_docs(record: RunRecord, folder: str) -> str:
    """Let Great Expectations render its static site of a run.

    The pages are for a browser with a network: they load their style from others' servers. The site of another run that
    is in the folder is written over; nothing is deleted.

    Args:
        record: The run.
        folder: A folder on a local disk; made when it is not there.

    Returns:
        The path of the site's `index.html`.

    Raises:
        DeclarationError: The run has no checks, or `folder` is no folder, or has other files.
        StorageError: The site could not be written.
    """
    if record.quality is None or not record.quality.checks:
        raise DeclarationError(
            f"run {record.run_id} has no checks to show", where=f"stream `{record.stream}`", remedy="name one that has"
        )
    _check_folder(folder)
    folder = os.path.abspath(folder)
    gx = load_great_expectations()
    try:
        # Great Expectations empties the folder that it builds a site in.
        with tempfile.TemporaryDirectory() as aside, warnings.catch_warnings(action="ignore"):
            _build(gx, record.quality.suite or record.stream, record, aside)
            shutil.copytree(aside, folder, dirs_exist_ok=True)
    except OSError as exc:
        reason = exc.strerror or str(exc).partition("\n")[0]
        raise StorageError(f"Data Docs could not be written: {reason}", where=folder, remedy="check the disk") from exc
    return os.path.join(folder, "index.html")


def _check_folder(folder: str) -> None:
    problem = None
    if "://" in folder or (os.path.exists(folder) and not os.path.isdir(folder)):
        problem = "Data Docs can't be written there"
    elif os.path.isdir(folder) and os.listdir(folder) and not os.path.exists(os.path.join(folder, _STYLE)):
        problem = "the folder has other files than Data Docs"
    if problem is not None:
        raise DeclarationError(problem, where=folder, remedy="give an empty folder on this machine's disk")


def _build(gx: ModuleType, name: str, record: RunRecord, folder: str) -> None:
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    _know_history()
    checks = [_inert_check(check) for check in record.quality.checks] if record.quality is not None else []
    # It becomes the name of a folder.
    name = re.sub(r"[^\w -]", "_", name)[:_MAX_NAME]
    run = RunIdentifier(run_name=record.run_id, run_time=record.planned_at)
    found = ExpectationSuiteValidationResult(
        success=all(check.success for check in checks),
        results=[_result(check) for check in checks],
        suite_name=name,
        statistics=_statistics(checks),
        meta={
            "run_id": run,
            "great_expectations_version": gx.__version__,
            "active_batch_definition": {"data_asset_name": record.stream},
        },
    )
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    expectations = [{"type": c.type, "kwargs": c.kwargs, "meta": _meta(c)} for c in checks]
    context.suites.add(gx.ExpectationSuite(name=name, expectations=expectations))
    key = ValidationResultIdentifier(
        expectation_suite_identifier=ExpectationSuiteIdentifier(name=name), run_id=run, batch_identifier=record.stream
    )
    context.validation_results_store.set(key, found)
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": folder}
    context.add_data_docs_site(
        _SITE,
        {
            "class_name": "SiteBuilder",
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            "store_backend": store,
            "show_how_to_buttons": False,
        },
    )
    context.build_data_docs(site_names=[_SITE])


def _result(check: CheckRecord) -> Any:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    why = why_unmeasured(check.result)
    return ExpectationValidationResult(
        success=check.success,
        expectation_config=ExpectationConfiguration(
            type=check.type, kwargs=check.kwargs, meta=_meta(check), description=_description(check)
        ),
        result=check.result,
        exception_info={
            "raised_exception": why is not None,
            "exception_message": why,
            "exception_traceback": None if why is None else "",
        },
        meta={},
    )


def _inert_check(check: CheckRecord) -> CheckRecord:
    """A check for a page; conditions are read by Great Expectations, and lose no more than their tags."""
    kwargs = {name: _inert(value, _TAG if name == "row_condition" else _MARKUP) for name, value in check.kwargs.items()}
    return msgspec.structs.replace(check, kwargs=kwargs, result=_inert(check.result, _MARKUP))


def _inert(value: Any, pattern: re.Pattern[str]) -> Any:
    """A value for a page: Great Expectations takes the names of columns, and values of rows, for HTML."""
    match value:
        case str():
            return pattern.sub(lambda found: html.escape(found[0]), value)
        case Mapping():
            return {name: _inert(item, pattern) for name, item in value.items()}
        case list() | tuple():
            return [_inert(item, pattern) for item in value]
    return value


def _meta(check: CheckRecord) -> dict[str, Any]:
    return {"sluice": {"policy": check.policy, "path": check.path}}


def _description(check: CheckRecord) -> str | None:
    """What a check is, where Great Expectations has no words for it: the rules about history are ours."""
    if not check.type.startswith("sluice_"):
        return None
    limits = ", ".join(f"{name} {value}" for name, value in check.kwargs.items())
    metric = check.type.removeprefix("sluice_").removesuffix("_against_history").replace("_", " ")
    return f"{metric} against runs before: {limits}"


def _statistics(checks: Sequence[CheckRecord]) -> dict[str, Any]:
    passed = sum(check.success for check in checks)
    return {
        "evaluated_expectations": len(checks),
        "successful_expectations": passed,
        "unsuccessful_expectations": len(checks) - passed,
        "success_percent": passed / len(checks) * 100,
    }


def _know_history() -> None:
    """Make the rules about history known to Great Expectations, which renders only types that it knows."""
    from great_expectations.expectations.expectation import BatchExpectation
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    known = list_registered_expectation_implementations()
    for metric in ("row_count", "freshness"):
        name = TYPE.format(metric)
        if name in known:
            continue
        arguments = [field for field in HistoryRule.__struct_fields__ if field not in {"metric", "policy"}]
        fields = {
            "__module__": __name__,
            "__annotations__": dict.fromkeys(arguments, Any),
            "metric_dependencies": (),
            "_validate": _never,
            **dict.fromkeys(arguments),
        }
        type("".join(map(str.capitalize, name.split("_"))), (BatchExpectation,), fields)


def _never(*_: Any, **__: Any) -> Any:
    raise NotImplementedError
