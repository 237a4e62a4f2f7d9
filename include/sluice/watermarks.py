"""How far each `withWatermark` of a query has come: Spark forgets it at the end of every start.

Spark's logs hold one number, the watermark of the whole query. A query with several inputs needs all of them: the
whole is the smallest (or, by the policy that is pinned in the checkpoint, the largest), and an input that brings
nothing in one start is still where it was.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from sluice.documents import Document

Policy = Literal["min", "max"]
WATERMARK_METRICS = "sluice.watermark."
"""What the observed event time of a `withWatermark` is named with, before its number; see `connect_plan.py`."""
_NUMBER = re.compile(r" \(\d+\)$")


def shared_name(name: str) -> str:
    """What inputs of the same sources and column are called: the second of them is `clicks.clicked_at (2)`."""
    return _NUMBER.sub("", name)


class InputWatermark(msgspec.Struct, frozen=True, kw_only=True):
    """One `withWatermark`."""

    input: str
    """`clicks.clicked_at`: the sources below it, and its column."""
    delay_ms: int
    event_ms: int | None = None
    """The newest event time that was measured, in milliseconds since the epoch; None before there is one."""
    floor_ms: int = 0
    """What its watermark has reached at least, by what was known before anything was measured."""
    since: int | None = 0
    """The first batch from which on nothing is missing: 0 when all was measured, None when it can't be measured."""
    feed: str = ""
    """Tells what it was fed by from anything else; empty where nobody has looked."""

    @property
    def name(self) -> str:
        """What it shares with others of the same sources and column."""
        return shared_name(self.input)

    @property
    def watermark_ms(self) -> int:
        """Its watermark, in milliseconds since the epoch; 0 for none."""
        return max(self.floor_ms, 0 if self.event_ms is None else self.event_ms - self.delay_ms)

    @property
    def unknown(self) -> str:
        """What is not known of it; empty when its watermark is exact."""
        if self.since is None:
            return "it can't be measured here: its watermark is at least this"
        return f"measured from batch {self.since} on: its watermark is at least this" if self.since else ""


class BatchTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How far a batch took each `withWatermark`."""

    batch_id: int
    event_times: dict[str, int]
    """The newest event time by input, in milliseconds since the epoch; inputs without an event are absent."""

    def as_one(self, inputs: Collection[str]) -> BatchTimes:
        """The same with each of these as far as the last of them."""
        ours = [self.event_times[name] for name in inputs if name in self.event_times]
        others = {name: event_ms for name, event_ms in self.event_times.items() if name not in inputs}
        alike = dict.fromkeys(inputs, min(ours)) if ours and len(ours) == len(inputs) else {}
        return msgspec.structs.replace(self, event_times=others | alike)


class Watermarks(Document, frozen=True, kw_only=True):
    """Every `withWatermark` of a query, after a batch."""

    if_lost = "delete it: watermarks are measured anew, and what waits for one may come out later"
    query_id: str
    measured: int
    """The newest batch whose events are counted in; -1 before the first."""
    inputs: tuple[InputWatermark, ...]
    published: tuple[BatchTimes, ...] = ()
    """What was measured of batches before their rows counted: read again after a kill, they may be other rows. Of those
    that are not counted in, and of the newest that was counted in by this."""

    def reached_ms(self, policy: Policy) -> int:
        """The watermark of the whole query, in milliseconds since the epoch; 0 for none."""
        choose = max if policy == "max" else min
        return choose((known.watermark_ms for known in self.inputs), default=0)

    def held_back_by(self, policy: Policy) -> tuple[str, ...]:
        """The inputs that hold the others back; none when all are equal, or the policy is `max`."""
        reached = self.reached_ms(policy)
        if policy == "max" or all(known.watermark_ms == reached for known in self.inputs):
            return ()
        return tuple(known.input for known in self.inputs if known.watermark_ms == reached)

    def after(self, batch_id: int, event_times: Mapping[str, int]) -> Watermarks:
        """What is known after a batch.

        Args:
            batch_id: The batch.
            event_times: The newest event time by input, in milliseconds; inputs that it brought nothing for are absent.
        """
        inputs = tuple(_moved(known, event_times.get(known.input)) for known in self.inputs)
        published = tuple(found for found in self.published if found.batch_id > batch_id)
        return msgspec.structs.replace(self, measured=batch_id, inputs=inputs, published=published)

    def after_published(self, published: BatchTimes) -> Watermarks:
        """What is known after a batch that was measured before its rows counted, and maybe read again since."""
        known = self.after(published.batch_id, published.event_times)
        return msgspec.structs.replace(known, published=(published, *known.published))

    def publishing(self, batch_id: int, event_times: dict[str, int] | None) -> Watermarks:
        """What is known with a batch whose rows are about to count, measured anew; None where it is not."""
        others = tuple(found for found in self.published if found.batch_id != batch_id)
        own = () if event_times is None else (BatchTimes(batch_id=batch_id, event_times=event_times),)
        return msgspec.structs.replace(self, published=(*others, *own))

    def times_of(self, batch_id: int | None) -> BatchTimes | None:
        """What was measured of a batch before its rows counted; None where nobody has."""
        return next((found for found in self.published if found.batch_id == batch_id), None)

    def as_one(self, name: str) -> Watermarks:
        """What is known when nobody knows which input of a name is which: each has come as far as the last of them."""
        ours = [known for known in self.inputs if known.name == name]
        event_times = [known.event_ms for known in ours if known.event_ms is not None]
        begun = [known.since for known in ours if known.since is not None]
        alike = {
            "event_ms": min(event_times) if len(event_times) == len(ours) else None,
            "floor_ms": min(known.floor_ms for known in ours),
            "since": max(begun) if len(begun) == len(ours) else None,
        }
        return msgspec.structs.replace(
            self,
            inputs=tuple(msgspec.structs.replace(known, **alike) if known in ours else known for known in self.inputs),
            published=tuple(found.as_one([known.input for known in ours]) for found in self.published),
        )

    def missing(self, batch_id: int) -> Watermarks:
        """What is known after a batch of which nothing can be measured any more."""
        inputs = tuple(
            known if known.since is None else msgspec.structs.replace(known, since=batch_id + 1)
            for known in self.inputs
        )
        return msgspec.structs.replace(self, measured=batch_id, inputs=inputs)


@dataclass(frozen=True)
class WatermarkOutlook:
    """Every input's watermark, as a plan shows it."""

    next_ms: int
    """The watermark of the next batch."""
    policy: Policy
    known: Watermarks
    unmeasured: int = 0
    """How many committed batches are yet to be counted in."""

    @property
    def held_back_by(self) -> tuple[str, ...]:
        """The inputs that hold the others back."""
        return self.known.held_back_by(self.policy)


def _moved(known: InputWatermark, event_ms: int | None) -> InputWatermark:
    if event_ms is None or (known.event_ms is not None and event_ms <= known.event_ms):
        return known
    return msgspec.structs.replace(known, event_ms=event_ms)
