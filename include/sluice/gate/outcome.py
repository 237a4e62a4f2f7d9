"""The newest run of a stream that has a verdict: how far it reached, and whether rows may be relied on. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sluice.gate.judged_runs import judged_records
from sluice.home import StreamHome
from sluice.quality.judgement import describe_failed
from sluice.runs.record import CheckRecord, Quality, RunRecord

_MOST_READ = 60
"""How many judged runs are looked at: backfills, and runs that broke off, say nothing of the live stream."""

_MOST_SAID = 1000
"""How many characters of what has failed are told."""
_ORDER: tuple[Quality, ...] = ("fail", "warn", "pass")


@dataclass(frozen=True)
class QualityOutcome:
    """What quality says of a stream by now."""

    run_id: str
    verdict: Quality
    """The run's own verdict."""
    failed_checks: int
    checks: tuple[CheckRecord, ...]
    reaches: datetime | None
    """The run took everything that arrived before this moment; None when it may have left something."""
    skipped_until: datetime | None
    """Nothing new had come when somebody looked, up to this moment; None when nobody did since the run."""
    released_by: str | None

    @property
    def failed(self) -> str:
        """What the verdict is for, in the words of a plan that quality holds."""
        failed = [check for check in self.checks if not check.success]
        said = describe_failed([check for check in failed if check.policy == "fail"] or failed)
        return said[:_MOST_SAID] or f"{self.failed_checks} checks failed"

    @property
    def standing(self) -> Quality:
        """The verdict, but what a person has let through counts as `warn`."""
        return "warn" if self.verdict == "fail" and self.released_by is not None else self.verdict

    def is_at_least(self, wanted: Quality) -> bool:
        """Whether it is as good as that, or better."""
        return _ORDER.index(self.standing) >= _ORDER.index(wanted)

    def has_reached(self, moment: datetime | None) -> bool:
        """Whether everything that arrived before a moment is judged."""
        if moment is None or (self.reaches is not None and self.reaches >= moment):
            return True
        return self.skipped_until is not None and self.skipped_until >= moment


def quality_outcome(home: StreamHome) -> QualityOutcome | None:
    """The outcome of the live stream's newest run that ended with a verdict; None when there is none.

    Runs that broke off (stopped, or failed for another reason) do not count, whatever was seen of them until then.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: The home can't be read.
    """
    for record in judged_records(home, _MOST_READ):
        quality = record.quality
        if record.interval is not None or quality is None:
            continue
        if record.status == "succeeded" or quality.verdict == "fail":
            checked = home.checked()
            return QualityOutcome(
                run_id=record.run_id,
                verdict=quality.verdict,
                failed_checks=quality.failed_checks,
                checks=quality.checks,
                reaches=_reached(record),
                skipped_until=checked.until if checked is not None else None,
                released_by=quality.released_by,
            )
    return None


def _reached(record: RunRecord) -> datetime | None:
    """Before which moment everything was taken: at the latest when the run looked, however late its bound is."""
    if _may_have_left(record):
        return None
    return record.planned_at if record.until is None else min(record.until, record.planned_at)


def _may_have_left(record: RunRecord) -> bool:
    """Whether a limit of its own may have ended the run before it had taken all that was there."""
    if record.max_batches is None:
        return record.to_version is not None
    taken = [batch for batch in record.batches if batch.kind != "no_data"]
    return record.to_version is not None or len(taken) >= record.max_batches
