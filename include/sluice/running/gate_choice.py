"""Chooses where a run is judged, and how it is measured: before any JVM, so that a plan can say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from sluice.errors import DeclarationError
from sluice.planning.plan import GateChoice, PlannedBatch
from sluice.project import Project
from sluice.quality.history import history_rules
from sluice.quality.suite import Suite
from sluice.running.session import is_remote
from sluice.storage import Storage
from sluice.stream import BatchSink, StagingSink, Stream

Gate = Literal["publish", "cache", "write"]
Measured = Literal["observe", "pass"]

_OBSERVED_SECONDS = 10e-9
"""What it costs to observe one measure of one row, on one core: most of it is the measure's own condition."""
_PASS_SECONDS, _READ_SECONDS, _SUMMED_SECONDS = 0.15, 40e-9, 7.5e-9
"""What a pass of its own costs: to start, to read a row that was written, and one measure of it. All of them were
measured with 3, 13 and 33 measures of 4 million rows of Parquet."""
_ROW_BYTES = 100
"""How long a row of input is, where no log tells how many there are."""
_MEASURES_PER_CHECK = 2


def choose_gate(
    project: Project, stream: Stream, suite: Suite, batches: tuple[PlannedBatch, ...], *, storage: Storage
) -> GateChoice:
    """Choose by the suite's policies and what the sink can do; `meta.sluice` of the suite may say otherwise.

    Raises:
        DeclarationError: The sink can't do what a policy, or the suite's own choice, asks for.
        StorageError: The sink can't be read right now.
    """
    ours = suite.meta.get("sluice", {})
    gate, reason = _gate(project, stream, suite, storage)
    wanted = _wanted(ours, "gate", get_args(Gate), suite)
    if wanted is not None and wanted != gate:
        _check_wanted(project, stream, suite, wanted, storage)
        gate, reason = wanted, "as the suite says"
    measured, why = _measured(suite, gate, batches)
    wanted = _wanted(ours, "measured", get_args(Measured), suite)
    if wanted is not None and wanted != measured:
        if wanted == "observe" or not _removes(suite):
            measured, why = wanted, "as the suite says"
        else:
            raise DeclarationError(
                "`measured` is `pass`, but rows that are taken away can't be measured afterwards",
                where=f"{suite.source}, meta.sluice",
                remedy="leave it out, or use no `drop` and `quarantine`",
            )
    return GateChoice(
        suite=suite.name,
        checks=len(suite.expectations) + len(history_rules(suite)),
        gate=gate,  # type: ignore[arg-type]  # one of them: checked above
        measured=measured,  # type: ignore[arg-type]
        rereads=sum(e.kind.path == "reread" or _is_exact_only(e) for e in suite.expectations),
        reason=f"{reason}; {why}",
    )


def _is_exact_only(expectation: Any) -> bool:
    return expectation.kind.path == "sketch" and not expectation.is_approximate


def _gate(project: Project, stream: Stream, suite: Suite, storage: Storage) -> tuple[str, str]:
    if _policies(suite, "quarantine"):
        _check_quarantine(project, stream, suite)
        return "cache", "rows are split between the sink and its quarantine"
    if is_remote(project):
        return "write", "over Spark Connect, batches are audited after they are written"
    if isinstance(stream.sink, BatchSink) and not isinstance(stream.sink, StagingSink):
        return "cache", "a function writes the batch, and may read it more than once"
    if not _can_fail(suite):
        return "write", "no expectation has the policy `fail`"
    if not isinstance(stream.sink, BatchSink):
        return "write", f"a {stream.sink.kind} sink publishes what it writes"
    obstacle = _aside_obstacle(stream, storage)
    return ("cache", obstacle) if obstacle is not None else ("publish", "nothing is published that fails")


def _check_wanted(project: Project, stream: Stream, suite: Suite, wanted: str, storage: Storage) -> None:
    obstacle: str | None = None
    if wanted != "cache" and _policies(suite, "quarantine"):
        obstacle = "`quarantine` needs the gate `cache`"
    elif wanted == "write" and isinstance(stream.sink, BatchSink) and not isinstance(stream.sink, StagingSink):
        obstacle = "a function writes the batch, and may read it more than once"
    elif wanted != "write" and is_remote(project):
        obstacle = "over Spark Connect, batches are audited after they are written"
    elif wanted == "publish":
        obstacle = _aside_obstacle(stream, storage)
    elif wanted == "cache" and not isinstance(stream.sink, BatchSink):
        obstacle = f"a {stream.sink.kind} sink publishes what it writes"
    if obstacle is not None:
        raise DeclarationError(
            f"`gate` is `{wanted}`, but {obstacle}", where=f"{suite.source}, meta.sluice", remedy="leave it out"
        )


def _check_quarantine(project: Project, stream: Stream, suite: Suite) -> None:
    problem, remedy = None, ""
    if is_remote(project):
        problem, remedy = "Spark Connect can't split a batch", "use `drop`, or run it with a Spark of its own"
    elif not isinstance(stream.sink, StagingSink):
        problem = f"a {stream.sink.kind} sink can't be written twice without doubling rows"
        remedy = "use `drop`, or a Delta sink"
    elif stream.output_mode != "append":
        problem, remedy = f"in output mode `{stream.output_mode}` a batch has rows of former ones", "use `drop`"
    if problem is not None:
        place = next(e.place for e in suite.expectations if e.policy == "quarantine")
        raise DeclarationError(f"`policy` is `quarantine`, but {problem}", where=place, remedy=remedy)


def _aside_obstacle(stream: Stream, storage: Storage) -> str | None:
    if not isinstance(stream.sink, StagingSink):
        return f"a {stream.sink.kind} sink can't publish what was written aside"
    return stream.sink.aside_obstacle(stream.output_mode, storage=storage)


def _measured(suite: Suite, gate: str, batches: tuple[PlannedBatch, ...]) -> tuple[str, str]:
    if gate == "cache":
        return "pass", "measured in a pass over what Spark keeps of the batch"
    if _removes(suite):
        return "observe", "measured while it is written, for some rows are not"
    measures = _MEASURES_PER_CHECK * len(suite.expectations)
    rows = max((_rows(batch) for batch in batches), default=0)
    observed = rows * measures * _OBSERVED_SECONDS
    passed = _PASS_SECONDS + rows * (_READ_SECONDS + measures * _SUMMED_SECONDS)
    estimate = f"about {observed:.1g} s to observe {rows:,.0f} rows, {passed:.1g} s to read them again"
    if observed <= passed:
        return "observe", f"measured while it is written: {estimate}"
    return "pass", f"measured in a pass over what was written: {estimate}"


def _rows(batch: PlannedBatch) -> float:
    return sum(
        source.rows if source.rows is not None else (source.size_bytes or 0) / _ROW_BYTES
        for source in batch.sources.values()
    )


def _policies(suite: Suite, *policies: str) -> bool:
    return any(expectation.policy in policies for expectation in suite.expectations)


def _removes(suite: Suite) -> bool:
    return _policies(suite, "drop", "quarantine")


def _can_fail(suite: Suite) -> bool:
    return _policies(suite, "fail") or any(rule.policy == "fail" for rule in history_rules(suite))


def _wanted(ours: Any, key: str, allowed: tuple[str, ...], suite: Suite) -> str | None:
    value = ours.get(key) if isinstance(ours, Mapping) else None
    if value is not None and value not in allowed:
        raise DeclarationError(
            f"`{key}` is {value!r}",
            where=f"{suite.source}, meta.sluice",
            remedy=f"use one of: {', '.join(allowed)}, or leave it out",
        )
    return value
