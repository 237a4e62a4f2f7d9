"""What a driver runs that several streams share: the runs that were asked for, one after the other, with one Spark.

What becomes of a run stands in its record, which whoever asked for it reads. A run that is not begun, for whatever
reason, leaves none, and is done later, by a driver of its own; but for one that somebody has asked to end: its record
says so.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from sluice.errors import SluiceError
from sluice.lineage.sending import tell_end
from sluice.planning.planner import Limits
from sluice.planning.stream_order import version_writer
from sluice.project import Project
from sluice.running.observers import Lines
from sluice.running.packed_runs import Pack, PackedRun, PackStop, worst_exit_code
from sluice.runs.driver import end_group_when_asked
from sluice.runs.record import RunRecord, RunRecords
from sluice.runs.stop import StopEvent, stop_request
from sluice.stream import Stream
from sluice.times import system_clock

logger = logging.getLogger(__name__)


def run_asked(project: Project, keys: Mapping[str, str], stop: PackStop) -> int:
    """Run the streams whose runs are planned; returns the exit code of the worst of them.

    Args:
        project: Their project.
        keys: By stream, the key of its run.
        stop: Ends all of them.
    """
    asked = _Asked(project, _planned(project, keys), _declared(project, keys))
    ended = [PackedRun(name, error=error) for name, error in asked.broken.items()]
    pack = Pack(project, asked.usable, Limits(), Lines, _say, stop, keys=keys, guard=asked.guard)
    try:
        for run in pack.run():
            ended.append(run)
            if run.error is not None:
                _tell(run.stream, run.error)
    finally:
        asked.end_planned()
    return worst_exit_code(ended)


@dataclass(frozen=True)
class _Asked:
    """The runs of one driver."""

    project: Project
    planned: Mapping[str, str]
    """By stream, the id of its run; nothing of one of which there is no planned run any more."""
    declared: Mapping[str, Stream | SluiceError]

    @property
    def usable(self) -> dict[str, Stream]:
        """The streams by name."""
        return {name: found for name, found in self.declared.items() if isinstance(found, Stream)}

    @property
    def broken(self) -> dict[str, SluiceError]:
        """What is wrong with the declarations of the others."""
        return {name: found for name, found in self.declared.items() if isinstance(found, SluiceError)}

    @contextmanager
    def guard(self, name: str, stop: StopEvent) -> Iterator[None]:
        """While a run is at work, end this process once somebody has asked it to end and it does not end by itself.

        The others are done later then. A run that was asked to end before its turn is not begun, nor one that reads a
        stream whose declaration is wrong by now, nor one whose record is gone, or is no longer planned: nobody waits.
        """
        stream = self.usable[name]
        home = self.project.stream_home(stream)
        records = RunRecords(home)
        run_id = self.planned.get(name)
        planned = None if run_id is None else records.read(run_id)
        if planned is None or planned.status != "planned" or not self.broken.keys().isdisjoint(planned.after):
            stop.set()
        elif stop_request(home, planned.run_id) is not None:
            self._end(name, planned.run_id)
            stop.set()
        else:
            self._bound(stream, planned)

        def tell(record: RunRecord) -> None:
            tell_end(self.project, stream, record)
            self.end_planned()

        is_over = end_group_when_asked(stop, records, tell)
        try:
            yield
        finally:
            is_over.set()

    def _bound(self, stream: Stream, planned: RunRecord) -> None:
        """Let a run go up to the version that the one before it has left, as the task of its stream would."""
        writer = version_writer(stream, [self.usable[other] for other in planned.after if other in self.planned])
        if writer is None or planned.strategy is not None:
            return
        before = RunRecords(self.project.home_named(writer)).read(self.planned[writer])
        if before is not None and before.sink_version is not None:
            # Nobody has typed it.
            bounded = msgspec.structs.replace(planned, to_version=before.sink_version, is_default_bound=True)
            RunRecords(self.project.stream_home(stream)).save(bounded)

    def end_planned(self) -> None:
        """End the runs that were not begun; never raises."""
        for name, run_id in self.planned.items():
            self._end(name, run_id)

    def _end(self, name: str, run_id: str) -> None:
        # Whoever plans under the key of such a run by now has another id.
        records = RunRecords(self.project.home_named(name))
        try:
            ended = records.end_planned(run_id, system_clock())
        except SluiceError:
            logger.warning("the planned run of `%s` can't be ended", name, exc_info=True)
            return
        if ended is not None and ended.error is not None:
            _say(f"the run of `{name}` was {ended.error.message}")
        elif ended is not None:
            _say(f"the run of `{name}` was not begun: it is done by itself")


def _planned(project: Project, keys: Mapping[str, str]) -> dict[str, str]:
    found = {name: RunRecords(project.home_named(name)).find(key) for name, key in keys.items()}
    return {name: record.run_id for name, record in found.items() if record is not None}


def _declared(project: Project, names: Mapping[str, str]) -> dict[str, Stream | SluiceError]:
    found: dict[str, Stream | SluiceError] = {}
    for name in names:
        try:
            found[name] = project.stream(name)
        except SluiceError as exc:
            _tell(name, exc)
            found[name] = exc
    return found


def _tell(stream: str, exc: SluiceError) -> None:
    print(f"sluice {stream}: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(f"sluice: {text}", file=sys.stderr, flush=True)
