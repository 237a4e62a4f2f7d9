"""The home: where a stream's checkpoints, leases and run records are, and what is known of each generation.

<home>/definitions.json                   what the Python files of the project's pipeline define
<home>/<stream>/current.json              which generation is live
<home>/<stream>/generations/0001/         a Spark checkpoint, untouched Spark layout
<home>/<stream>/generations/0001.json     what we know of it
<home>/<stream>/generations/0001.replay/  a copy of the checkpoint, while a batch is measured or tried on it
<home>/<stream>/leases/0001/<token>.json
<home>/<stream>/leases/<interval>/        the same for the backfill of an interval
<home>/<stream>/backfills/<interval>/     checkpoints of backfills that run as a stream; removed afterwards
<home>/<stream>/drivers/<run_id>.json     which process drives a run that Airflow has started; its log beside it
<home>/<stream>/stops/<run_id>.json       somebody wants the run ended
<home>/<stream>/runs/<run_id>.json
<home>/<stream>/summary.json              what lists tell of the newest runs; the records are the truth
<home>/<stream>/told.json                 which runs the events of Airflow have told of
<home>/<stream>/checked.json              the last skip
<home>/<stream>/watermarks/0001.json      how far each `withWatermark` of the query has come
<home>/<stream>/started.json              where its sources begin, from the first run on that was planned
<home>/<stream>/taken/0001/<n>/<id>.json  the sizes of the files that a file source took, by the ids of its log
<home>/<stream>/taken/0001/<n>/unread.json  those of which Spark has read nothing, for they were away just then
<home>/<stream>/taken/0001/<n>/times.json  the times of those that were mended, or brought back, before their batch ran
<home>/<stream>/gate.json                 what quality has yet to say, or has failed
<home>/<stream>/audits/0001.json          what was measured of the newest batch, before it was published
<home>/<stream>/staged/0001/              a batch on its way into several tables: its rows, and what was decided of them
<home>/<stream>/quarantines/<digest>.json a table that has taken rows of the stream
<home>/<stream>/releases/<release_id>.json  rows of the quarantine that were sent back
<home>/<stream>/table_audits/<audit_id>.json  what came of an audit of the sink's table
<home>/<stream>/first-run                 somebody says that the stream has no past, whatever its sink says
<checkpoint>/_sluice/leases/<token>.json  those of a checkpoint that is elsewhere: whoever names it finds them
<checkpoint>/_sluice/owner.json           whose it is
<checkpoint>/_sluice/taken/<n>/           what is noted of the files that its sources took
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import Problem, RefusedError
from sluice.generation_notes import BegunRun, BegunWith, DropsDuplicates, KeptState, KnownTimers, Unproven, WrittenBatch
from sluice.locations import is_local, join, real_location
from sluice.storage import Storage
from sluice.taken_file_notes import TakenNotes
from sluice.times import iso_time
from sluice.watermarks import Watermarks

_GENERATION = re.compile(r"(.+)/generations/(\d{4})")
"""Where the checkpoint of a generation is, in whatever home."""
_GENERATION_FILE = re.compile(r"([0-9]{4,9})\.json")
_BESIDE = "_sluice"
"""The folder of ours in a checkpoint that is elsewhere; Spark passes over it."""


_MOST_RUNS = 50
"""Of how many tries of runs a generation knows whose batches are whose: one that died is looked at by the next."""


class SourceLine(msgspec.Struct, frozen=True):
    """One source line of an offset file: Spark numbers sources by its analysed plan, not by the declaration."""

    source: str
    """The declared name; a source that the plan uses twice has two lines."""
    log: str
    """The folder below `sources/` that holds the source's own log, if it keeps one."""


def lines_by_log(lines: Iterable[SourceLine]) -> dict[str, tuple[int, SourceLine]]:
    """The first line of each log, and which one it is: Spark reads a source once, however often its plan does."""
    found: dict[str, tuple[int, SourceLine]] = {}
    for index, line in enumerate(lines):
        found.setdefault(line.log, (index, line))
    return found


def source_order(lines: tuple[SourceLine, ...]) -> str:
    """The sources in order; a source that comes twice with the logs, which tell a union of it from two reads."""
    is_reused = len({line.source for line in lines}) < len(lines)
    return ", ".join(f"{line.source} in log {line.log}" if is_reused else line.source for line in lines)


class Generation(Document, frozen=True, kw_only=True):
    """What we know of one checkpoint beyond what Spark writes into it."""

    if_lost = "declare a new stream with a sink of its own: nothing else tells what the checkpoint belongs to"
    generation: int
    query_id: str
    created_at: str
    lines: tuple[SourceLine, ...]
    declared: tuple[str, ...] = ()
    """The names of the declared sources, also of those that the plan does not use, sorted."""
    checkpoint: str | None = None
    """Where the checkpoint is, when it is not the generation's own folder."""
    has_timers: bool = False
    """Whether an operator has time-outs or timers in processing time."""
    timers: KnownTimers | None = None
    """When the next one of them is due; None where that is not known: then with the next run."""
    drops_duplicates: DropsDuplicates | None = None
    """What the newest run found, for backfills that are planned without Spark; None without an interval column."""
    state: KeptState | None = None
    """What its stateful operators keep; None before a run that has noted it."""
    sink_identity: str | None = None
    """What told the sink's table from others after the first batch; None before, and for sinks without identity."""
    written: WrittenBatch | None = None
    """In the sink; None before, for sinks without versions, and in homes from before this was noted."""
    quarantined: WrittenBatch | None = None
    written_parts: dict[str, WrittenBatch] = msgspec.field(default_factory=dict)
    """In the quarantine, and in each of several sinks, likewise."""
    sources: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """By source, what `starting` was resolved to when the first run began."""
    folders: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """By source, the types of its columns that are names of folders, as they were found first."""
    marks: dict[str, str] = msgspec.field(default_factory=dict)
    """By source, what tells what it has read from something else: see `MarkedSource.mark`."""
    begun_with: tuple[BegunWith, ...] = ()
    """What was declared when batches were begun: the newest, and the one before, by which a batch may wait."""
    runs: tuple[BegunRun, ...] = ()
    """The newest tries of runs, the last one last: by them it is known whose batches are in the log."""
    unproven: Unproven | None = None
    """A batch that is done again beside drivers that may wake up, until it is known that none has written its state."""

    @property
    def newest_declared(self) -> Mapping[str, str]:
        """What the newest batch was begun with; empty before the first, and where that was not kept."""
        return self.begun_with[-1].declared if self.begun_with else {}

    def declared_at(self, batch_id: int) -> Mapping[str, str]:
        """What a batch was begun with; empty where that is not known."""
        known = [begun.declared for begun in self.begun_with if begun.from_batch <= batch_id]
        return known[-1] if known else {}

    def begun_by(self, run_id: str, committed_id: int | None) -> Generation:
        """The same generation, whose batches behind the newest committed one are those of a run from now on."""
        begun = BegunRun(run_id, -1 if committed_id is None else committed_id)
        return msgspec.structs.replace(self, runs=(*self.runs[1 - _MOST_RUNS :], begun))

    def batches_of(self, run_id: str) -> tuple[range, ...]:
        """The batches that the tries of a run have written, by their ids; the last range may end in the future."""
        ends = [begun.behind + 1 for begun in self.runs[1:]]
        found = zip(self.runs, [*ends, sys.maxsize], strict=True) if self.runs else ()
        return tuple(range(begun.behind + 1, end) for begun, end in found if begun.run_id == run_id)

    def beginning(self, batch_id: int, declared: Mapping[str, str]) -> Generation:
        """The same generation, whose batches from one on are begun with what is declared now."""
        before = tuple(begun for begun in self.begun_with if begun.from_batch < batch_id)
        if before and before[-1].declared == declared:
            return msgspec.structs.replace(self, begun_with=before)
        return msgspec.structs.replace(self, begun_with=(*before[-1:], BegunWith(batch_id, dict(declared))))


class _Started(Document, frozen=True, kw_only=True):
    if_lost = (
        "delete it, if the stream has run a batch: what is known of its generation says the same. Else it begins where"
        " `starting` is at its next run"
    )
    generation: int
    sources: dict[str, dict[str, Any]]
    checkpoint: str | None = None


class _Current(Document, frozen=True, kw_only=True):
    if_lost = "delete it: a stream has one generation"
    generation: int


class _Owner(Document, frozen=True, kw_only=True):
    if_lost = "delete it, if no other stream has this checkpoint: the next run writes it anew"
    home: str
    """The folder of the stream that has a checkpoint, in its project's home; from the checkpoint, if both are local."""


class Checked(Document, frozen=True, kw_only=True):
    """The last skip: a skip makes no run record."""

    if_lost = "delete it: the next skip writes it anew"
    checked_at: str
    reason: str
    skips: int
    """How many since the last run that did something."""
    sources: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """By source, what `starting` was resolved to; in homes from before that had a file of its own."""
    until: datetime | None = None
    """Nothing new had arrived before this moment; None when nobody knows, for the bound was a version."""


@dataclass(frozen=True)
class StreamHome:
    """One stream's folder in the home."""

    location: str
    storage: Storage
    checkpoint: str | None = None
    """A checkpoint elsewhere that the stream uses in place of a generation in the home."""

    @property
    def root(self) -> str:
        """The home of the project, in which the stream has its folder."""
        return self.location.rpartition("/")[0]

    def current_generation(self) -> int:
        """The number of the live generation; 1 before the first run.

        Raises:
            RefusedError: `current.json` is damaged.
        """
        current = read_document(self.storage, self.current_file(), _Current)
        return 1 if current is None else current.generation

    def current_file(self) -> str:
        """Which generation is live."""
        return join(self.location, "current.json")

    def generation_numbers(self) -> list[int]:
        """The generations that something is known of, in order.

        Raises:
            StorageError: The home can't be read.
        """
        listed = self.storage.list_folder(join(self.location, "generations"))
        names = listed.files if listed is not None else ()
        return sorted(int(match[1]) for name in names if (match := _GENERATION_FILE.fullmatch(name)))

    def checkpoint_location(self, generation: int) -> str:
        """Where a generation's Spark checkpoint is."""
        return self.checkpoint or join(self.location, "generations", f"{generation:04d}")

    def generation(self, number: int) -> Generation | None:
        """What is known of a generation; None before its first run, and of another checkpoint than its own.

        Raises:
            RefusedError: Its file is damaged.
        """
        found = read_document(self.storage, self._generation_file(number), Generation)
        return found if found is not None and found.checkpoint == self.checkpoint else None

    def keep_generation(self, generation: Generation) -> None:
        """Write what is known of a generation, and make it the live one if none is.

        Raises:
            StorageError: It could not be written.
        """
        self.storage.replace(self._generation_file(generation.generation), encode_document(generation))
        current = _Current(generation=generation.generation)
        self.storage.put_if_absent(self.current_file(), encode_document(current))

    def watermarks(self, number: int) -> Watermarks | None:
        """How far each `withWatermark` of a generation's query has come; None when nothing was measured.

        Raises:
            RefusedError: Its file is damaged.
        """
        return read_document(self.storage, self.watermarks_file(number), Watermarks)

    def keep_watermarks(self, number: int, known: Watermarks) -> None:
        """Write how far each `withWatermark` has come.

        Raises:
            StorageError: It could not be written.
        """
        self.storage.replace(self.watermarks_file(number), encode_document(known))

    def watermarks_file(self, number: int) -> str:
        """Where that is kept."""
        return join(self.location, "watermarks", f"{number:04d}.json")

    def lease_folder(self, generation: int) -> str:
        """Where the leases of a generation are: the same folder for every stream that has its checkpoint."""
        if self.checkpoint is None:
            return join(self.location, "leases", f"{generation:04d}")
        generation_of = _GENERATION.fullmatch(real_location(self.checkpoint))
        if generation_of is not None:
            return join(generation_of[1], "leases", generation_of[2])
        return join(self.checkpoint, _BESIDE, "leases")

    def claim_checkpoint(self) -> None:
        """Note in a checkpoint that is elsewhere that it is this stream's, unless it is another one's already.

        Raises:
            StorageError: It could not be written.
        """
        if (beside := self._beside()) is not None and self.checkpoint is not None:
            home, checkpoint = real_location(self.location), real_location(self.checkpoint)
            owner = _Owner(home=os.path.relpath(home, checkpoint) if is_local(home) and is_local(checkpoint) else home)
            self.storage.put_if_absent(join(beside, "owner.json"), encode_document(owner))

    def foreign_owner(self) -> Problem | None:
        """The other stream that has this one's checkpoint; None when there is none.

        Raises:
            RefusedError: The note of whose it is is damaged.
        """
        if self.checkpoint is None:
            return None
        generation_of = _GENERATION.fullmatch(real_location(self.checkpoint))
        if generation_of is not None:
            owner, remedy = generation_of[1], "give this stream a checkpoint of its own"
        else:
            file = join(self.checkpoint, _BESIDE, "owner.json")
            noted = read_document(self.storage, file, _Owner)
            owner = None if noted is None else noted.home
            if owner is not None and is_local(owner):
                owner = os.path.normpath(join(real_location(self.checkpoint), owner))
            remedy = f"give this stream a checkpoint of its own; if that one is given up or has moved, delete {file}"
        if owner in {None, real_location(self.location)}:
            return None
        return Problem(
            code="CHECKPOINT_OF_ANOTHER_STREAM",
            file=self.checkpoint,
            cause=f"the checkpoint is that of the stream whose home is {owner}",
            consequence="each of the two would read what the other does not: rows would be missing in both sinks",
            remedy=remedy,
        )

    def has_begun(self, generation: int) -> bool:
        """Whether a generation had a checkpoint at some time, there or elsewhere.

        Raises:
            StorageError: The home can't be read.
        """
        files = (self._generation_file(generation), self.current_file())
        return any(self.storage.stat(file) is not None for file in files)

    def is_first_run(self) -> bool:
        """Whether somebody has said, by a file in the stream's folder, that there was no run before the first.

        Raises:
            StorageError: The home can't be read.
        """
        return self.storage.stat(self.first_run_file()) is not None

    def first_run_file(self) -> str:
        """What somebody makes to say that the stream has no past, whatever its sink says."""
        return join(self.location, "first-run")

    def known_queries(self) -> dict[str, str]:
        """The query ids of all streams of this home, and whose they are; what is damaged in one of them tells of none.

        Raises:
            StorageError: The home can't be read.
        """
        found: dict[str, str] = {}
        streams = self.storage.list_folder(self.root)
        for name in streams.folders if streams is not None else ():
            folder = join(self.root, name, "generations")
            listed = self.storage.list_folder(folder)
            # What a killed driver has half written has another ending.
            for file in (name for name in (listed.files if listed is not None else ()) if name.endswith(".json")):
                with contextlib.suppress(RefusedError):
                    generation = read_document(self.storage, join(folder, file), Generation)
                    found.update({} if generation is None else {generation.query_id: name})
        return found

    def interval_lease_folder(self, start: datetime, end: datetime) -> str:
        """Where the leases of an interval are: the right to backfill it."""
        return join(self.location, "leases", _interval_name(start, end))

    def interval_lease_folders(self) -> list[str]:
        """Where the leases of every interval are that was ever backfilled.

        Raises:
            StorageError: The home can't be read.
        """
        listed = self.storage.list_folder(join(self.location, "leases"))
        return [join(self.location, "leases", name) for name in (listed.folders if listed else ()) if "--" in name]

    def backfill_folder(self, start: datetime, end: datetime) -> str:
        """Where the backfills of an interval keep their own checkpoints."""
        return join(self.location, "backfills", _interval_name(start, end))

    def drivers_folder(self) -> str:
        """Where it is kept which processes drive runs, with their logs."""
        return join(self.location, "drivers")

    def stops_folder(self) -> str:
        """Where requests to end a run are."""
        return join(self.location, "stops")

    def runs_folder(self) -> str:
        """Where the run records are."""
        return join(self.location, "runs")

    def summary_file(self) -> str:
        """Where it is kept what lists tell of the newest runs."""
        return join(self.location, "summary.json")

    def told_file(self) -> str:
        """Where it is kept which runs the events of Airflow have told of."""
        return join(self.location, "told.json")

    def checked(self) -> Checked | None:
        """The last skip since the last run; None when there was none.

        Raises:
            RefusedError: `checked.json` is damaged.
        """
        return read_document(self.storage, join(self.location, "checked.json"), Checked)

    def started(self, generation: int) -> Mapping[str, Mapping[str, Any]]:
        """By source, what `starting` was resolved to since the generation's own file was written; also empty.

        Raises:
            RefusedError: `started.json` is damaged.
        """
        started = read_document(self.storage, join(self.location, "started.json"), _Started)
        if started is None or (started.generation, started.checkpoint) != (generation, self.checkpoint):
            return {}
        return started.sources

    def keep_started(self, generation: int, sources: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep what `starting` is resolved to, before anything is run: no later run begins elsewhere.

        Raises:
            StorageError: It could not be written.
        """
        found = {name: dict(start) for name, start in sources.items()}
        started = _Started(generation=generation, sources=found, checkpoint=self.checkpoint)
        self.storage.replace(join(self.location, "started.json"), encode_document(started))

    def taken(self, generation: int, log: str) -> TakenNotes:
        """What is known of the files that a file source took, by the folder of its own log."""
        # A checkpoint that comes after another one has not read what that one has.
        beside, own = self._beside(), join(self.location, "taken", f"{generation:04d}", log)
        return TakenNotes(own if beside is None else join(beside, "taken", log), self.storage)

    def _beside(self) -> str | None:
        """The folder of ours in a checkpoint that is elsewhere, and is in no home."""
        if self.checkpoint is None or _GENERATION.fullmatch(real_location(self.checkpoint)) is not None:
            return None
        return join(self.checkpoint, _BESIDE)

    def keep_skip(self, reason: str, now: datetime, *, until: datetime | None = None) -> None:
        """Note a skip.

        Raises:
            StorageError: It could not be written.
        """
        last = self.checked()
        skips = last.skips + 1 if last else 1
        checked = Checked(checked_at=iso_time(now), reason=reason, skips=skips, until=until)
        self.storage.replace(join(self.location, "checked.json"), encode_document(checked))

    def forget_skips(self) -> None:
        """Begin counting skips anew: a run did something."""
        self.storage.delete(join(self.location, "checked.json"))

    def gate_file(self) -> str:
        """Where the state of the gate is."""
        return join(self.location, "gate.json")

    def audit_file(self, generation: int) -> str:
        """Where the audit of a generation's newest batch is."""
        return join(self.location, "audits", f"{generation:04d}.json")

    def staged_folder(self, generation: int) -> str:
        """Where the batches of a generation are that go into several tables, until all have them."""
        return join(self.location, "staged", f"{generation:04d}")

    def quarantines_folder(self) -> str:
        """Where it is kept which tables have taken rows of the stream."""
        return join(self.location, "quarantines")

    def quarantine_file(self, name: str) -> str:
        """Where it is kept of one of these tables."""
        return join(self.quarantines_folder(), f"{name}.json")

    def returns_folder(self) -> str:
        """Where the releases of quarantined rows are."""
        return join(self.location, "releases")

    def return_file(self, return_id: str) -> str:
        """Where the document of one is."""
        return join(self.returns_folder(), f"{return_id}.json")

    def table_audits_folder(self) -> str:
        """Where the audits of the sink's table are."""
        return join(self.location, "table_audits")

    def _generation_file(self, number: int) -> str:
        return join(self.location, "generations", f"{number:04d}.json")


def _interval_name(start: datetime, end: datetime) -> str:
    """`20130101T000000Z--20130201T000000Z`."""
    return "--".join(iso_time(moment).replace("-", "").replace(":", "")[:15] + "Z" for moment in (start, end))


def log_keys(generation: Generation | None) -> Mapping[str, str] | None:
    """Which folder below `sources/` belongs to which line of an offset file; None when nothing is known."""
    if generation is None:
        return None
    return {str(index): line.log for index, line in enumerate(generation.lines)}
