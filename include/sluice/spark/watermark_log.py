"""Keeps how far each `withWatermark` has come, batch by batch, and finds out again what a kill has lost.

A batch counts for the next plan once it is kept. A driver may die after Spark's commit and before that, or after the
sink's and before Spark's, where Spark passes the batch over at the next start. Where that can be, a batch is measured
before its rows count, and the home has it. Else it is run once more, without a sink, on a copy of the checkpoint: with
the same input, the same state and the same clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any

import msgspec

from sluice.checkpoint.offsets import OffsetFile, read_offset_file
from sluice.checkpoint.places import offset_file
from sluice.checkpoint.reader import CheckpointState
from sluice.home import Generation, SourceLine, StreamHome
from sluice.planning.next_watermark import next_watermark_ms, pinned_policy, usable
from sluice.sources.contract import Position
from sluice.spark.fingerprints import read_by
from sluice.spark.plan_reader import WatermarkNode
from sluice.spark.progress import ProgressLog
from sluice.spark.query import Query
from sluice.spark.replay import replay_batch
from sluice.times import iso_millis
from sluice.watermarks import BatchTimes, InputWatermark, Watermarks, shared_name

logger = logging.getLogger(__name__)


class WatermarkLog:
    """The watermarks of one generation's query.

    Args:
        query: The analysed query.
        home: The stream's folder in the home.
        generation: What is known of the generation.
        state: What the checkpoint says as the run begins.
    """

    def __init__(self, query: Query, home: StreamHome, generation: Generation, state: CheckpointState) -> None:
        self._query, self._home, self._generation = query, home, generation
        self._writing = Lock()
        self.known = self._begin(state)
        """How far each has come; None for a query without any."""

    def _begin(self, state: CheckpointState) -> Watermarks | None:
        if not self._query.watermarks:
            return None
        number = self._generation.generation
        kept = self._home.watermarks(number)
        known = usable(kept, state) or Watermarks(
            query_id=self._generation.query_id,
            measured=-1 if state.committed_id is None else state.committed_id,
            inputs=(),
        )
        nodes = self._query.watermarks
        for name in _mixed_up(known, nodes):
            known = known.as_one(name)
        begun = {found.input: found for found in known.inputs}
        # Of an only watermark, the commit log tells all.
        since = known.measured + 1 if len(nodes) > 1 else 0
        inputs = tuple(_declared(node, begun.get(node.input), state, since) for node in nodes)
        known = msgspec.structs.replace(known, inputs=inputs)
        if known != kept:
            self._home.keep_watermarks(number, known)
        return known

    def keep(self, batch_id: int, event_times: Mapping[str, int]) -> None:
        """Count a committed batch, and all before it, in."""
        if self.known is not None and batch_id > self.known.measured:
            self._keep(lambda known: known.after(batch_id, event_times))

    def keep_published(self, batch_id: int) -> bool:
        """Count a committed batch in by what was measured before its rows counted; tells whether anything was."""
        published = self.known.times_of(batch_id) if self.known is not None else None
        if published is not None:
            self._keep(lambda known: known.after_published(published))
        return published is not None

    def note_published(self, batch_id: int) -> None:
        """Keep how far a batch takes each, whose rows are computed and about to count.

        A kill may come before Spark commits it; read again by then, it may be other rows.
        """
        event_times = None if self.known is None else self._query.times_of_batch(self._generation.query_id, batch_id)
        if event_times is not None:
            self._keep(lambda known: known.publishing(batch_id, event_times))

    def forget_published(self, batch_id: int) -> None:
        """Forget what a try before has measured of a batch whose rows do not count: it is done again."""
        if self.known is not None and self.known.times_of(batch_id) is not None:
            self._keep(lambda known: known.publishing(batch_id, None))

    def is_overruled(self, state: CheckpointState) -> bool:
        """Whether Spark's own log takes the watermark further than what was written; see `next_watermark_ms`."""
        return next_watermark_ms(state, self.known) < state.next_watermark_ms

    def catch_up(
        self,
        state: CheckpointState,
        progress: ProgressLog,
        *,
        check: Callable[[], None],
        position: Callable[[SourceLine, str | None], Position],
    ) -> None:
        """Measure every committed batch that is not counted in.

        Args:
            state: What the checkpoint says.
            progress: Hears Spark's reports.
            check: Called before each batch: raises when this run may not go on.
            position: Where a source is at an offset, with what is known of it.

        Raises:
            BatchFailedError: Spark failed.
        """
        while self.known is not None and state.committed_id is not None and self.known.measured < state.committed_id:
            check()
            batch_id = self.known.measured + 1
            if self.keep_published(batch_id):
                continue
            obstacle = self._obstacle(state, batch_id, position)
            if obstacle is None:
                storage = self._home.storage
                event_times = replay_batch(self._query, state.location, batch_id, progress, storage=storage)
                self.keep(batch_id, event_times)
            else:
                logger.warning("how far batch %d took the watermarks can't be measured: %s", batch_id, obstacle)
                self._keep(partial(Watermarks.missing, batch_id=batch_id))

    def shown(self, planned: OffsetFile | None) -> dict[str, Any]:
        """What the record of a batch says."""
        if self.known is None:
            return {}
        at = {known.input: iso_millis(known.watermark_ms or None) for known in self.known.inputs}
        return {"watermarks": at, "held_back_by": self.known.held_back_by(pinned_policy(planned))}

    def _keep(self, changed: Callable[[Watermarks], Watermarks]) -> None:
        # A query that drains its sources measures its next batch while the one before is counted in.
        with self._writing:
            if self.known is not None:
                known = changed(self.known)
                self._home.keep_watermarks(self._generation.generation, known)
                self.known = known

    def _obstacle(
        self, state: CheckpointState, batch_id: int, position: Callable[[SourceLine, str | None], Position]
    ) -> str | None:
        """Why a committed batch can't be run again; None when it can."""
        before, after = self._logged(state, batch_id - 1), self._logged(state, batch_id)
        if after is None or (before is None and batch_id > 0):
            return "Spark has deleted it from its log"
        then, now = self._generation.declared_at(batch_id), self._generation.newest_declared
        if changed := read_by(then, now, with_tables=True):
            return f"it was read by another {', '.join(changed)}"
        for index, line in enumerate(self._generation.lines):
            start = None if before is None else list(before.offsets.values())[index]
            end = list(after.offsets.values())[index]
            if end is None or end == start:
                continue
            source, storage = self._query.stream.sources[line.source], self._home.storage
            begun = position(line, start)
            problems = source.check_inputs(begun, end, storage=storage) or source.read_otherwise(begun, end, storage)
            if problems:
                return next(iter(problems)).cause
        return None

    def _logged(self, state: CheckpointState, batch_id: int) -> OffsetFile | None:
        return read_offset_file(offset_file(state.location, batch_id), batch_id, storage=self._home.storage)


def came_out_otherwise(published: BatchTimes, now: Mapping[str, int] | None) -> Iterator[str]:
    """What to tell of a batch that was read again by now, after its rows had counted: that it came out as another one.

    Args:
        published: How far it took each watermark before its rows counted.
        now: How far by what was read again; None where nothing was, or Spark does not tell.
    """
    then = published.event_times
    others = sorted(name for name in now.keys() | then if now.get(name) != then.get(name)) if now is not None else []
    if others:
        yield (
            f"read again after a kill, batch {published.batch_id} has other event times of {', '.join(others)} than"
            " when its rows were written: the transform reads something beside its sources that has changed since. The"
            " watermark goes on by what was written"
        )


def not_kept(batch_id: int) -> str:
    """What to tell of a batch that counted before a kill, and whose event times are measured by what is read now."""
    return (
        f"how far batch {batch_id} takes the watermarks was not kept before its rows counted, and is measured by what"
        " is read now: where the transform reads something beside its sources that has changed since, rows may be taken"
        " for late ones"
    )


def _declared(node: WatermarkNode, begun: InputWatermark | None, state: CheckpointState, since: int) -> InputWatermark:
    """What is known of an input as a run begins: by what was measured, or, of a new one, by the checkpoint alone."""
    if begun is None:
        # By the smallest of all, each has come at least as far as the whole.
        floor_ms = state.watermark_ms if pinned_policy(state.planned) == "min" else 0
        begun = InputWatermark(input=node.input, delay_ms=node.delay_ms, floor_ms=floor_ms, since=since)
    since_batch = None if node.key is None else begun.since
    return msgspec.structs.replace(begun, delay_ms=node.delay_ms, since=since_batch, feed=node.feed)


def _mixed_up(known: Watermarks, nodes: Sequence[WatermarkNode]) -> Iterator[str]:
    """The names that several inputs share, or have shared, which after an edit may be others by the same number."""
    then: dict[str, dict[str, str]] = {}
    now: dict[str, dict[str, str]] = {}
    for found in known.inputs:
        then.setdefault(found.name, {})[found.input] = found.feed
    for node in nodes:
        now.setdefault(shared_name(node.input), {})[node.input] = node.feed
    for name, feeds in then.items():
        becomes = now.get(name, {})
        is_other = feeds != becomes if all(feeds.values()) else len(feeds) != len(becomes)
        if len(feeds) > 1 and is_other:
            yield name
