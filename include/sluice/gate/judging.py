"""Chooses where a run is judged, and how it is measured: before any JVM, so that a plan can say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args

from sluice.errors import DeclarationError
from sluice.locations import below_folder, same_for_every_name
from sluice.plan import JudgedAt, Judging, Measured, PlannedBatch
from sluice.project import Project
from sluice.quality.history import history_rules
from sluice.quality.suite import Suite
from sluice.sinks.contract import BatchSink, Sink, SinkState, StagingSink, VersionedSink, only_by_function
from sluice.sinks.keyed import KeyedSink
from sluice.sinks.splitting import SplittingSink
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.table_writers import other_writer

_OBSERVED_SECONDS = 10e-9
"""What it costs to observe one measure of one row, on one core: most of it is the measure's own condition."""
_REREADING_SECONDS, _READ_SECONDS, _SUMMED_SECONDS = 0.15, 40e-9, 7.5e-9
"""What it costs to read what was written: to start, each row of it, and one measure of that. All of them were
measured with 3, 13 and 33 measures of 4 million rows of Parquet."""
_ROW_BYTES = 100
"""How long a row of input is, where no log tells how many there are."""
_MEASURES_PER_CHECK = 2
_MEASURED: Mapping[str, Measured] = {"observe": "observe", "pass": "afterwards"}
"""By the words of a suite, how a run is measured."""
_Obstacle = Callable[[], str | None]
"""Why batches can't be written aside; None when they can."""


def choose_judging(
    project: Project,
    stream: Stream,
    suite: Suite,
    batches: tuple[PlannedBatch, ...],
    *,
    state: SinkState | None = None,
    storage: Storage,
) -> Judging:
    """Choose by the suite's policies and what the sink can do; `meta.sluice` of the suite may say otherwise.

    Args:
        project: The project of the stream.
        stream: The declaration, with absolute locations.
        suite: Its suite.
        batches: What is planned.
        state: What the sink has said of itself a moment ago; None where it was not asked.
        storage: Where the sink is.

    Raises:
        DeclarationError: The sink can't do what a policy, or the suite's own choice, asks for.
        StorageError: The sink can't be read right now.
    """
    ours = suite.meta.get("sluice", {})
    aside = partial(_aside_obstacle, stream, state, storage)
    where, reason = _where(project, stream, suite, aside)
    wanted = _wanted(ours, "gate", get_args(JudgedAt), suite)
    if wanted is not None and wanted != where:
        _check_wanted(project, stream, suite, wanted, aside)
        where, reason = wanted, "as the suite says"
    measured, why = _measured(stream, suite, where, batches)
    wanted = _wanted(ours, "measured", tuple(_MEASURED), suite)
    if wanted is not None and _MEASURED[wanted] != measured:
        obstacle = _rereading_obstacle(stream, suite, where) if wanted == "pass" else _observe_obstacle(where)
        if obstacle is not None:
            raise DeclarationError(
                f"`measured` is `{wanted}`, but {obstacle}", where=f"{suite.source}, meta.sluice", remedy="leave it out"
            )
        measured, why = _MEASURED[wanted], "as the suite says"
    return Judging(
        suite=suite.name,
        checks=len(suite.expectations) + len(history_rules(suite)),
        where=where,  # type: ignore[arg-type]  # one of them: checked above
        measured=measured,  # type: ignore[arg-type]
        rereads=sum(expectation.is_reread for expectation in suite.expectations),
        reason=f"{reason}; {why}",
    )


def choose_backfill_judging(project: Project, stream: Stream, suite: Suite) -> Judging:
    """How a backfill is judged: in one way only, which every sink that can be backfilled allows.

    Raises:
        DeclarationError: The sink can't do what a policy asks for.
    """
    if _policies(suite, "quarantine"):
        _check_quarantine(project, stream, suite)
    return Judging(
        suite=suite.name,
        checks=len(suite.expectations),
        where="cache",
        measured="afterwards",
        rereads=sum(expectation.is_reread for expectation in suite.expectations),
        reason="the rows of the interval are kept and measured before they replace any; rules about history rest",
    )


def _where(project: Project, stream: Stream, suite: Suite, aside: _Obstacle) -> tuple[str, str]:
    if _policies(suite, "quarantine"):
        _check_quarantine(project, stream, suite)
        return "cache", "rows are split between the sink and its quarantine"
    if project.is_remote:
        if only_by_function(stream.sink):
            raise DeclarationError(
                f"{stream.sink.named} can't be audited over Spark Connect: its function may read a batch twice",
                where=f"{stream.place}, quality",
                remedy="run it with a Spark of its own, or leave out `quality`",
            )
        return "write", "over Spark Connect, batches are audited after they are written"
    if only_by_function(stream.sink):
        return "cache", _read_again(stream.sink)
    if not isinstance(stream.sink, BatchSink):
        return "write", f"a {stream.sink.kind} sink publishes what it writes"
    if not _can_fail(suite) and not _removes(suite):
        return "write", "no expectation has the policy `fail`"
    obstacle = aside()
    # The measures of rows that are left out can't be taken again in the sink: they must be on disk before the others.
    reason = "nothing is published that fails" if _can_fail(suite) else "what is left out is counted before it is gone"
    return ("cache", obstacle) if obstacle is not None else ("publish", reason)


def _read_again(sink: Sink) -> str:
    if isinstance(sink, KeyedSink):
        return "a merge reads the batch more than once"
    return "a function writes the batch, and may read it more than once"


def _check_wanted(project: Project, stream: Stream, suite: Suite, wanted: str, aside: _Obstacle) -> None:
    obstacle: str | None = None
    if wanted != "cache" and _policies(suite, "quarantine"):
        obstacle = "`quarantine` needs `cache`"
    elif wanted == "write" and only_by_function(stream.sink):
        obstacle = _read_again(stream.sink)
    elif wanted != "write" and project.is_remote:
        obstacle = "over Spark Connect, batches are audited after they are written"
    elif wanted == "publish":
        obstacle = aside()
    elif wanted == "cache" and not isinstance(stream.sink, BatchSink):
        obstacle = f"a {stream.sink.kind} sink publishes what it writes"
    if obstacle is not None:
        raise DeclarationError(
            f"`gate` is `{wanted}`, but {obstacle}", where=f"{suite.source}, meta.sluice", remedy="leave it out"
        )


def _check_quarantine(project: Project, stream: Stream, suite: Suite) -> None:
    table = stream.quarantine_table
    problem, remedy = None, ""
    if project.is_remote:
        problem, remedy = "Spark Connect can't split a batch", "use `drop`, or run it with a Spark of its own"
    elif not isinstance(stream.sink, SplittingSink):
        problem, remedy = stream.sink.split_obstacle
    elif stream.output_mode != "append":
        problem, remedy = f"in output mode `{stream.output_mode}` a batch has rows of earlier ones", "use `drop`"
    elif table is not None and table.location and (user := _user_of(table.location, project, stream)) is not None:
        problem = f"its table, {table.location}, is {user}"
        remedy = "give the quarantine a table of its own: `Stream(quarantine=sinks.delta(PATH))`"
    if problem is not None:
        place = next(e.place for e in suite.expectations if e.policy == "quarantine")
        raise DeclarationError(f"`policy` is `quarantine`, but {problem}", where=place, remedy=remedy)


def _user_of(place: str, project: Project, stream: Stream) -> str | None:
    """What else a place is, of this stream or another one; None when nothing."""
    wanted = same_for_every_name(place)
    if stream.sink.location and same_for_every_name(stream.sink.location) == wanted:
        return "the sink itself"
    sink = stream.sink.location
    if sink and (_is_vacuumed(place, sink) or _is_vacuumed(sink, place)):
        return "in the folder of the sink, or has that in its own"
    writer = other_writer(place, stream, project.streams())
    return f"the {writer.table} of stream `{writer.stream.name}`" if writer is not None else None


def _is_vacuumed(place: str, table: str) -> bool:
    """Whether a `VACUUM` of a table takes the files of another place for its own: it passes over hidden folders."""
    below = below_folder(place, table)
    return below is not None and not below.startswith(("_", "."))


def _aside_obstacle(stream: Stream, state: SinkState | None, storage: Storage) -> str | None:
    if not isinstance(stream.sink, StagingSink):
        return f"{stream.sink.named} can't publish what was written aside"
    return stream.sink.aside_obstacle(stream.output_mode, state=state, storage=storage)


def _rereading_obstacle(stream: Stream, suite: Suite, where: str) -> str | None:
    """Why what was written can't be read again to be measured; None when it can."""
    if _removes(suite):
        return "some rows are not written"
    if where == "write" and not isinstance(stream.sink, VersionedSink):
        return f"{stream.sink.named} does not tell what a batch wrote"
    return None


def _observe_obstacle(where: str) -> str | None:
    """Why a batch can't be measured on its way into the sink; None when it can."""
    return "`cache` judges a batch before any of it is written" if where == "cache" else None


def _measured(stream: Stream, suite: Suite, where: str, batches: tuple[PlannedBatch, ...]) -> tuple[str, str]:
    if where == "cache":
        return "afterwards", "measured by reading what Spark keeps of the batch"
    if (obstacle := _rereading_obstacle(stream, suite, where)) is not None:
        return "observe", f"measured while it is written, for {obstacle}"
    compiled = [e for e in suite.expectations if e.kind.path != "schema" and not e.is_reread]
    measures = _MEASURES_PER_CHECK * len(compiled) + len(history_rules(suite))
    rows = max((_rows(batch) for batch in batches), default=0)
    if not rows:
        return "observe", "measured while it is written, for the plan does not tell how many rows come"
    observed = rows * measures * _OBSERVED_SECONDS
    reread = _REREADING_SECONDS + rows * (_READ_SECONDS + measures * _SUMMED_SECONDS)
    estimate = f"about {observed:.1g} s to observe {rows:,.0f} rows, {reread:.1g} s to read them again"
    if observed <= reread:
        return "observe", f"measured while it is written: {estimate}"
    return "afterwards", f"measured by reading what was written: {estimate}"


def _rows(batch: PlannedBatch) -> float:
    return sum(
        source.amount.get("rows", source.amount.get("bytes", 0) / _ROW_BYTES) for source in batch.sources.values()
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
