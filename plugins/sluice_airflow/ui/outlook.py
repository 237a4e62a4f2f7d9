"""What the next run of a stream would do, looked up in the background and kept for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Lock
from typing import Generic, TypeVar

from sluice.errors import Problem, SluiceError
from sluice.home import StreamHome
from sluice.monitoring.inspection import SourceLag, source_lags
from sluice.planning.plan import Plan
from sluice.planning.planner import Limits, build_plan
from sluice.planning.survey import Survey, positions, survey
from sluice.quality.report import Hold
from sluice.running.auditing.gate_state import read_gate
from sluice.running.auditing.judged_runs import hold_of
from sluice.stream import Bound, Stream
from sluice_airflow.ui.reading import read_lease

T = TypeVar("T")


@dataclass(frozen=True)
class Outlook:
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
    is_held: bool = False
    """Whether a driver that renews its lease runs the stream: what is seen then is work in progress."""
    hold: Hold | None = None
    """What quality has blocked or holds."""
    error: str | None = None
    """Why there is no plan, or no more than a part of all this."""


def look_ahead(stream: Stream, home: StreamHome, now: datetime) -> Outlook:
    """Plan a run without a bound. Reads only; whatever goes wrong is said in `error`."""
    outlook = Outlook(now)
    try:
        hold = hold_of(read_gate(home))
        seen = survey(stream, home, Bound(), now)
        outlook = replace(_seen(seen, now), hold=hold)
        holder = read_lease(home, home.lease_folder(seen.generation), now)
        outlook = replace(outlook, is_held=holder is not None and holder.state == "held")
        plan = build_plan(seen, Limits(), now)
    except SluiceError as exc:
        return replace(outlook, error=str(exc))
    except Exception as exc:
        # Sources and sinks may be a user's own.
        return replace(outlook, error=f"{type(exc).__name__}: {exc}")
    found = [*seen.checkpoint.problems, *([plan.problem] if plan.problem else []), *plan.warnings]
    return replace(outlook, plan=plan, problems=tuple(dict.fromkeys(found)))


def _seen(seen: Survey, now: datetime) -> Outlook:
    checkpoint = seen.checkpoint
    committed = checkpoint.planned if not checkpoint.is_pending else checkpoint.previous
    return Outlook(
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


@dataclass
class _Entry(Generic[T]):
    job: Future[T]
    started: float
    former: Future[T] | None = None
    """The last one that was done: shown while the new one is under way."""


class Backstage(Generic[T]):
    """Values that take a while: computed by a few threads, kept for a while, waited for only so long.

    Args:
        keep_seconds: How old a value may be before it is computed anew.
        threads: How many are computed at once.
    """

    def __init__(self, keep_seconds: float, *, threads: int = 4) -> None:
        self._keep_seconds = keep_seconds
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sluice-ui")
        self._entries: dict[str, _Entry[T]] = {}
        self._lock = Lock()

    def get(self, jobs: Mapping[str, Callable[[], T]], patience_seconds: float) -> dict[str, T]:
        """The values of those jobs that have one by then, by name. A job must not raise."""
        with self._lock:
            for name, job in jobs.items():
                self._start(name, job)
            self._forget(jobs)
            entries = {name: self._entries[name] for name in jobs}
        wait([entry.job for entry in entries.values()], timeout=patience_seconds)
        done = {name: entry.job if entry.job.done() else entry.former for name, entry in entries.items()}
        return {name: job.result() for name, job in done.items() if job is not None}

    def _start(self, name: str, job: Callable[[], T]) -> None:
        entry = self._entries.get(name)
        if entry is not None and (not entry.job.done() or time.monotonic() - entry.started < self._keep_seconds):
            return
        self._entries[name] = _Entry(self._pool.submit(job), time.monotonic(), entry.job if entry else None)

    def _forget(self, asked_for: Container[str]) -> None:
        """Drop what nobody has asked for in a long time, such as streams that are gone."""
        horizon = time.monotonic() - 100 * self._keep_seconds
        for name, entry in list(self._entries.items()):
            if name not in asked_for and entry.started < horizon and entry.job.done():
                del self._entries[name]
