"""The trigger that waits for a verdict of quality."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from sluice.errors import DeclarationError
from sluice.gate.outcome import QualityOutcome, quality_outcome
from sluice.times import iso_time, parse_time
from sluice_airflow.triggers.declared import DeclaredStreams
from sluice_airflow.triggers.shared_poll import SharedPoll, Sighting, shared_poll
from sluice_airflow.triggers.stream import StreamTrigger, watched_streams


@dataclass(frozen=True)
class _OutcomeOf:
    """Reads what quality says of a declared stream."""

    streams: DeclaredStreams
    name: str

    def __call__(self) -> QualityOutcome | None:
        declared = self.streams.find(self.name)
        if declared.stream.quality is None:
            raise DeclarationError(
                "the stream has no suite, and is never judged",
                where=f"stream `{self.name}`",
                remedy="declare `quality`, or do not wait for it",
            )
        return quality_outcome(declared.home)


class QualityTrigger(StreamTrigger[QualityOutcome | None]):
    """Waits until what arrived before a moment is judged, and well enough.

    Args:
        stream: The stream's name.
        verdict: The worst verdict that will do: `pass` or `warn`. What a person has released counts as `warn`.
        until: Everything that arrived before this moment must be judged (ISO 8601); empty for whatever the newest
            judged run took.
        on_worse: What a worse verdict does: `fail`, or `wait` for a later run, or a retry, that does better.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """

    arguments: ClassVar[tuple[str, ...]] = ("stream", "verdict", "until", "on_worse", "project")

    def __init__(
        self,
        *,
        stream: str,
        verdict: str = "pass",
        until: str = "",
        on_worse: str = "fail",
        project: str | None = None,
    ) -> None:
        super().__init__(stream=stream, project=project)
        self.verdict = verdict
        self.until = until
        self.on_worse = on_worse

    def follow(self) -> AsyncIterator[Sighting[QualityOutcome | None]]:
        """What the shared poll of the project sees."""
        poll = cast("SharedPoll[QualityOutcome | None]", shared_poll(("quality", self.project)))
        return poll.follow(self.stream, _OutcomeOf(watched_streams("quality", self.project), self.stream))

    def look(self) -> QualityOutcome | None:
        """What quality says now."""
        return _OutcomeOf(DeclaredStreams(self.project), self.stream)()

    def met(self, seen: QualityOutcome | None) -> dict[str, Any] | None:
        """Whether the moment is judged, and well enough."""
        if seen is None or not seen.has_reached(parse_time(self.until, where="until")):
            return None
        if seen.is_at_least("warn" if self.verdict == "warn" else "pass"):
            return as_json(seen)
        if self.on_worse == "wait":
            return None
        raise DeclarationError(
            f"the verdict of run {seen.run_id} is `{seen.verdict}`: {seen.failed}",
            where=f"stream `{self.stream}`",
            remedy=f"see `sluice quality {self.stream}`; correct the data or the suite, or release it, then clear this",
        )


def as_json(seen: QualityOutcome) -> dict[str, Any]:
    """What the sensor returns."""
    return {
        "run_id": seen.run_id,
        "verdict": seen.verdict,
        "failed_checks": seen.failed_checks,
        "released_by": seen.released_by,
        "reaches": iso_time(seen.reaches) if seen.reaches is not None else None,
    }
