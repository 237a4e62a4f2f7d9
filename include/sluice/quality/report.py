"""The report on a stream's quality: the verdict in plain words, each check as a sentence, and its trend. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sluice.quality import sentences
from sluice.runs.record import CheckRecord

_SLOTS, _PITCH, _HEIGHT = 20, 6, 24
_LARGEST = 1e300
_LEAST = 3.0
"""The smallest bar: a check that was met is to be seen too."""


@dataclass(frozen=True)
class JudgedRun:
    """A run with a verdict, as its record has it."""

    run_id: str
    at: datetime
    """When it began, or was planned."""
    verdict: str
    checks: Sequence[CheckRecord]
    suite: str = ""
    where: str = ""
    """Where it was judged: `publish`, `cache` or `write`."""
    rows: int | None = None
    dropped: int = 0
    quarantined: int = 0
    released_by: str | None = None
    interval: str = ""
    """The rows that a backfill recomputed; empty for a run of the live stream."""


@dataclass(frozen=True)
class Hold:
    """Why a stream does not go on."""

    state: str
    """`blocked`: a batch was not published. `failed`: what was published has failed, and the stream is held."""
    run_id: str
    failed: str
    released_by: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True)
class TrendBar:
    """One run in the trend of a check, in the units of the trend's picture."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    label: str


@dataclass(frozen=True)
class Trend:
    """A check over the last runs, the newest on the right."""

    width: int
    height: int
    bars: tuple[TrendBar, ...]


@dataclass(frozen=True)
class CheckReport:
    """One check."""

    rule: str
    finding: str
    success: bool
    tone: str
    policy: str
    consequence: str
    """What its policy means for this run, in plain words; empty where it passed."""
    type: str
    path: str
    trend: Trend


@dataclass(frozen=True)
class QualityReport:
    """Everything about the quality of a stream, as of one run."""

    stream: str
    run: JudgedRun
    tone: str
    headline: str
    """The verdict in plain words."""
    remarks: tuple[str, ...]
    checks: tuple[CheckReport, ...]
    """Those that failed come first."""
    verdicts: Trend
    runs: tuple[JudgedRun, ...]


TONES = {"pass": "good", "warn": "warn", "fail": "bad"}
_POLICIES = {
    "warn": "it is only counted",
    "drop": "the rows were left out",
    "quarantine": "the rows went to the quarantine",
    "fail": "it stops the run",
}


def quality_report(stream: str, runs: Sequence[JudgedRun], hold: Hold | None) -> QualityReport:
    """Report on a run.

    Args:
        stream: The stream's name.
        runs: The run first, then the ones before it, newest first. At least one.
        hold: Why the stream does not go on, if so.
    """
    run = runs[0]
    failed = [check for check in run.checks if not check.success]
    stopping = [check for check in failed if check.policy == "fail"]
    history = [(past, {check.id: check for check in past.checks}) for past in runs[:_SLOTS][::-1]]
    reported = [_check_report(check, history) for check in run.checks]
    order = {"bad": 0, "warn": 1, "good": 2}
    return QualityReport(
        stream=stream,
        run=run,
        tone=TONES.get(run.verdict, "none"),
        headline=_headline(len(run.checks), len(failed), len(stopping), run),
        remarks=tuple(_remarks(run, hold, stream)),
        checks=tuple(sorted(reported, key=lambda check: order[check.tone])),
        verdicts=verdict_trend(runs),
        runs=tuple(runs),
    )


def verdict_trend(runs: Sequence[JudgedRun]) -> Trend:
    """The share of failed checks of each run; newest first in, newest on the right out."""
    values = []
    for run in runs[:_SLOTS][::-1]:
        failed = sum(not check.success for check in run.checks)
        label = f"{_moment(run.at)}: {run.verdict}, {failed} of {len(run.checks)} checks failed"
        values.append((float(failed), TONES.get(run.verdict, "none"), label))
    return _trend(values)


def describe_hold(hold: Hold, stream: str) -> str:
    """Why a stream does not go on, and what to do about it."""
    if hold.state == "blocked" and hold.released_by:
        return f"Batch {hold.batch_id} was let through by {_quoted(hold.released_by)}: the next run publishes it."
    if hold.state == "blocked":
        what = f"Batch {hold.batch_id} was not published. The next run tries it again: correct the data or the suite"
    else:
        what = "What was published has failed, and the stream is held: correct the suite"
    return f"{what}, or let it go on with `sluice quality release {stream}`. It failed: {hold.failed}"


def _headline(checks: int, failed: int, stopping: int, run: JudgedRun) -> str:
    of = f"{checks:,} check{'' if checks == 1 else 's'}"
    if run.verdict == "pass" and not failed:
        return "The only check passed" if checks == 1 else f"All {of} passed"
    if not stopping:
        return f"{failed:,} of {of} failed, none of which stops the run"
    who = f"; {_quoted(run.released_by)} let it through" if run.released_by else ""
    which = "" if stopping == failed else f"{stopping:,} of which "
    stop = "stops" if stopping == 1 else "stop"
    return f"{failed:,} of {of} failed, {which or 'and '}{stop} the run{who}"


def _remarks(run: JudgedRun, hold: Hold | None, stream: str) -> list[str]:
    said = []
    if run.rows is not None:
        said.append(f"{run.rows:,} row{'' if run.rows == 1 else 's'} came in.")
    if run.dropped:
        said.append(f"{run.dropped:,} of them {'was' if run.dropped == 1 else 'were'} left out.")
    if run.quarantined:
        said.append(f"{run.quarantined:,} of them went to the quarantine.")
    if hold is not None:
        said.append(describe_hold(hold, stream))
    return said


def _check_report(check: CheckRecord, history: Sequence[tuple[JudgedRun, dict[str, CheckRecord]]]) -> CheckReport:
    tone = _tone(check)
    return CheckReport(
        rule=sentences.rule(check.type, check.kwargs),
        finding=sentences.finding(check.result, success=check.success),
        success=check.success,
        tone=tone,
        policy=check.policy,
        consequence="" if check.success else _POLICIES.get(check.policy, ""),
        type=check.type,
        path=check.path,
        trend=_trend([_point(run, found.get(check.id)) for run, found in history]),
    )


def _tone(check: CheckRecord) -> str:
    return "good" if check.success else "bad" if check.policy == "fail" else "warn"


def _point(run: JudgedRun, check: CheckRecord | None) -> tuple[float | None, str, str]:
    if check is None:
        return None, "none", f"{_moment(run.at)}: the suite did not have it"
    seen = sentences.finding(check.result, success=check.success).replace("`", "")
    return _amount(check), _tone(check), f"{_moment(run.at)}: {seen}"


def _amount(check: CheckRecord) -> float | None:
    """What the trend of a check shows: the share of unexpected rows, else the number that was observed."""
    for name in ("unexpected_percent", "unexpected_count", "observed_value"):
        value = check.result.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
            return float(value)
    return None if check.success else 1.0


def _trend(values: Sequence[tuple[float | None, str, str]]) -> Trend:
    width = _SLOTS * _PITCH
    amounts = [abs(amount) for amount, _, _ in values if amount is not None]
    largest = max(amounts, default=0.0)
    bars = []
    for index, (amount, tone, label) in enumerate(values):
        tall = _LEAST + (_HEIGHT - _LEAST) * abs(amount or 0.0) / largest if largest > 0 else _LEAST
        x = width - (len(values) - index) * _PITCH
        bars.append(TrendBar(x, round(_HEIGHT - tall, 2), _PITCH - 2, round(tall, 2), tone, label))
    return Trend(width, _HEIGHT, tuple(bars))


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', chr(39))}`"
