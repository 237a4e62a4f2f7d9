"""Who is told how a run goes on: nobody, or a log in plain lines. A terminal's bar is in `sluice.cli.printing`."""

from __future__ import annotations

import sys
import time
from typing import Protocol

from sluice.errors import Problem
from sluice.plan import Plan
from sluice.runs.record import BatchRecord, QualityRecord, describe_batch, describe_quality


def warning_line(warning: Problem) -> str:
    """A warning in one line."""
    return f"warning {warning.code}: {warning.cause}; {warning.remedy}"


class Observer(Protocol):
    """Is told how a run goes on."""

    def planned(self, plan: Plan) -> None:
        """The plan is made, nothing has started."""

    def phase(self, text: str) -> None:
        """Something that takes a while begins."""

    def committed(self, batch: BatchRecord) -> None:
        """A batch is done."""

    def audited(self, quality: QualityRecord) -> None:
        """The run is judged."""

    def warned(self, warning: Problem) -> None:
        """Something is wrong that keeps the run from nothing, and that the plan did not know."""


class Silent:
    """An observer that keeps quiet."""

    def planned(self, plan: Plan) -> None:
        """Nothing to say."""

    def phase(self, text: str) -> None:
        """Nothing to say."""

    def committed(self, batch: BatchRecord) -> None:
        """Nothing to say."""

    def audited(self, quality: QualityRecord) -> None:
        """Nothing to say."""

    def warned(self, warning: Problem) -> None:
        """Nothing to say."""


class Lines:
    """Tells how a run goes on in plain lines, for logs."""

    def __init__(self, stream: str) -> None:
        self._stream, self._total, self._done, self._rows = stream, 0, 0, 0
        self._began = time.monotonic()

    def planned(self, plan: Plan) -> None:
        """Say what is going to happen."""
        # How many a live run comes to, nobody knows.
        self._total = len(plan.batches) if plan.trigger is None else 0
        planned = f", {self._total} batches planned" if plan.trigger is None else ""
        self._say(f"{plan.verdict}: {plan.reason}; strategy {plan.strategy}{planned}")

    def phase(self, text: str) -> None:
        """Say what begins."""
        self._say(text)

    def committed(self, batch: BatchRecord) -> None:
        """Say what a batch did, and how long the rest may take."""
        self._done += 1
        self._rows += batch.input_rows or 0
        of_all = f" of {max(self._total, self._done)}" if self._total else " so far"
        self._say(f"{describe_batch(batch)}; {self._done}{of_all}{self._left()}")

    def audited(self, quality: QualityRecord) -> None:
        """One line for the verdict."""
        self._say(describe_quality(quality))

    def warned(self, warning: Problem) -> None:
        """What is wrong, and what to do."""
        self._say(warning_line(warning))

    def _left(self) -> str:
        left = self._total - self._done
        if left <= 0:
            return ""
        return f", about {(time.monotonic() - self._began) / self._done * left:.0f} s left"

    def _say(self, text: str) -> None:
        print(f"sluice {self._stream}: {text}", file=sys.stderr, flush=True)
