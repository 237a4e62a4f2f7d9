"""What the next run of a stream would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from sluice.errors import Problem, SluiceError
from sluice.foreign_code import described, is_failure
from sluice.gate.judged_runs import hold_of
from sluice.gate.state import read_gate
from sluice.home import StreamHome
from sluice.monitoring.inspection import SourceLag, source_lags
from sluice.plan import Plan
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.planning.survey import Survey, positions, survey
from sluice.planning.verdict import Request, Try, find_verdict, taken_lease
from sluice.project import Project
from sluice.quality.report import Hold
from sluice.sources.contract import Bound
from sluice.stream import Stream


@dataclass(frozen=True)
class NextRun:
    """The plan of a run that would start now, and what it was made from."""

    looked_at: datetime
    generation: int | None = None
    plan: Plan | None = None
    watermark_ms: int | None = None
    planned_id: int | None = None
    committed_id: int | None = None
    planned_offsets: Mapping[str, str | None] = field(default_factory=dict)
    """By source, the end of the newest planned batch."""
    committed_offsets: Mapping[str, str | None] = field(default_factory=dict)
    lags: Mapping[str, SourceLag] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    taken: Problem | None = None
    """That a driver that renews its lease runs the stream, if one does: what is seen then is work in progress."""
    hold: Hold | None = None
    """What quality has blocked or holds."""
    error: str | None = None
    """Why there is no plan, or no more than a part of all this."""
    hangs_for: float | None = None
    """For how many seconds the stream has been looked at without an end; None for one that was."""


def hanging(seconds: float) -> NextRun:
    """What is told of a stream that takes too long to look at."""
    return NextRun(datetime.now(UTC), hangs_for=seconds)


def look_ahead(
    project: Project, stream: Stream, home: StreamHome, now: datetime, streams: Mapping[str, Stream]
) -> NextRun:
    """Plan a run without a bound. Reads only; whatever goes wrong is said in `error`.

    Args:
        project: The project of the stream.
        stream: The declaration, with absolute locations.
        home: The stream's folder in the home.
        now: The time of planning.
        streams: Every stream of the project, with absolute locations.
    """
    next_run = NextRun(now)
    try:
        hold = hold_of(read_gate(home))
        # Before anything is looked at: what is seen beside a run is its work in progress.
        taken = taken_lease(home, home.current_generation(), now)
        seen = survey(stream, home, Bound(), now)
        next_run = replace(_seen(seen, now), hold=hold, taken=taken)
        declared = CheckedDeclaration.of(project, stream, streams)
        plan = find_verdict(home, Try(Request(stream), None, now), seen, declared)
    except SluiceError as exc:
        return replace(next_run, error=str(exc))
    except BaseException as exc:
        if not is_failure(exc):
            raise
        # Sources and sinks may be a user's own.
        return replace(next_run, error=described(exc))
    found = [*seen.checkpoint.problems, *([plan.problem] if plan.problem else []), *plan.warnings]
    return replace(next_run, plan=plan, problems=tuple(dict.fromkeys(found)))


def _seen(seen: Survey, now: datetime) -> NextRun:
    checkpoint = seen.checkpoint
    committed = checkpoint.planned if not checkpoint.is_pending else checkpoint.previous
    return NextRun(
        looked_at=now,
        generation=seen.generation,
        watermark_ms=checkpoint.watermark_ms or None,
        planned_id=checkpoint.planned_id,
        committed_id=checkpoint.committed_id,
        planned_offsets={name: at.offset for name, at in positions(seen, checkpoint.planned).items()},
        committed_offsets={name: at.offset for name, at in positions(seen, committed).items()},
        lags=source_lags(seen),
        problems=checkpoint.problems,
    )
