"""Run records: what a run planned, did, measured and decided, as JSON on disk."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import DeclarationError, LeaseLostError, RefusedError
from sluice.home import StreamHome
from sluice.locations import join
from sluice.plan import Strategy
from sluice.plan_document import PlanDocument
from sluice.runs.kept_table import Table
from sluice.runs.recorded_columns import RecordedColumns
from sluice.runs.stop import stop_request
from sluice.runs.summary import RECORD_LOST, RecordedInterval, Status, keep_summary
from sluice.times import iso_time
from sluice.trigger import LiveTrigger
from sluice.typed_json import decode_as

_RECORD_NAME = re.compile(r"\d{8}T\d{9}Z-[0-9a-f]{8}\.json")
"""Others in the folder are none of ours."""


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one stateful operator kept after a batch, and what the batch has changed of it, as Spark counts."""

    operator: str
    """Spark's name of it, such as `stateStoreSave`."""
    rows: int
    updated_rows: int = 0
    removed_rows: int = 0
    late_rows: int = 0
    """Which of the batch's it has dropped, for they came after the watermark."""
    memory_bytes: int = 0
    """Of all of the stores, as their provider measures it."""


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch did."""

    batch_id: int
    kind: str
    input_rows: int | None
    output_rows: int | None
    watermark: str | None
    result_rows: int | None = None
    """How many rows came out of the transform; None where nobody has counted them: neither a suite, nor a filter."""
    quarantined_rows: int = 0
    dropped_rows: int = 0
    """How many rows the suite's `drop` left out."""
    unmatched_rows: int | None = None
    """How many of the rows that were read the transform left out, which makes of each a row or none; None where it may
    make more of one, or a part of one."""
    duration_ms: dict[str, int] = {}
    observed: dict[str, dict[str, Any]] = {}
    malformed_rows: dict[str, int] = {}
    """By source, the rows that could not be parsed: nulls in them, or dropped, by the format's mode."""
    unread_files: dict[str, int] = {}
    """By source that ignores corrupt or missing files, the planned files of which no row was read."""
    late_rows: int | None = None
    """The rows that were dropped because they came after the watermark, as Spark counts them: windows count what is
    left of them once each task has summed up its own. None for queries without state, and where it is not known."""
    state: tuple[StateRecord, ...] = ()
    """What each stateful operator keeps; empty for queries without state, and where it is not known."""
    watermarks: dict[str, str | None] = {}
    """How far each `withWatermark` had come after the batch, by `source.column`; None for none yet."""
    held_back_by: tuple[str, ...] = ()
    """Those of them that hold the others back."""
    rows_by_sink: dict[str, int] = {}
    """By each of several sinks, how many rows it got; together they are `output_rows`. Empty with one sink."""
    sink_version: int | None = None
    """The table version that the batch made; None for sinks without versions, and for batches without rows."""
    was_in_sink: bool = False
    """Whether the batch was in the sink already (a crash came between the sink and the commit): nothing was read."""
    warnings: tuple[str, ...] = ()
    """What looked odd once it was committed, and proves no harm."""
    decided_by: str | None = None
    """The run that had decided the batch, and died: its transform, its suite and its tables counted. None where the
    run that committed it has decided it."""
    changed: tuple[str, ...] = ()
    """What was declared otherwise when the batch was begun: `transform`, `suite`, `quarantine`, `output mode`."""


class BackfillRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill replaced."""

    attempt: int
    """How often it has begun to write rows; each time under new names."""
    version: int
    """The version of the sink whose rows it replaces."""
    first_version: int | None = None
    """The same of the first attempt; None where that is the only one, and in records from before that was kept."""
    batch_id: int | None = None
    """The batch of the live stream up to which it has read."""
    interval_column: str | None = None
    """The stream's when it began; None in records from before that was kept."""
    quarantine: Table | msgspec.UnsetType | None = msgspec.UNSET
    """The stream's when it began, of which whoever finishes it takes the rows that are elsewhere by then; None where
    there was none. Unset in records from before that was kept."""
    sink_version: int | None = None
    """The version that the replacement made."""
    damage: str | None = None
    """What is wrong with the interval's rows in the sink since an attempt was committed beside a change by others."""
    rows_replaced: int | None = None
    """None when the sink's log does not know."""
    rows_written: int | None = None
    late_rows: int | None = None
    """How many rows the live stream had dropped as late, of whatever interval, since this generation began: those of
    this one are counted in now. None where its records do not tell."""

    @property
    def since(self) -> int:
        """The version of the sink behind which all is that any of its attempts has replaced."""
        return self.version if self.first_version is None else self.first_version


class RecordedPhase(msgspec.Struct, frozen=True):
    """Something that takes a while; it ends when the next one begins, or the run ends."""

    text: str
    began_at: str


class CheckRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one expectation in a run."""

    id: str = ""
    type: str = ""
    kwargs: dict[str, Any] = {}
    policy: str = ""
    success: bool = False
    result: dict[str, Any] = {}
    """Great Expectations' own."""
    path: str = ""
    """How it was measured."""


Quality = Literal["pass", "warn", "fail"]
"""The verdict of quality on a run."""


class QualityRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the suite in a run."""

    verdict: Quality
    checks: tuple[CheckRecord, ...] = ()
    suite: str = ""
    where: str = msgspec.field(default="", name="gate")
    """Where the run was judged: `publish`, `cache` or `write`."""
    rows: int | None = None
    """How many rows came in; None when they were not measured."""
    dropped: int = 0
    quarantined: int = 0
    columns: dict[str, str] = {}
    """The types of the result, by name: a later run judges these measures anew by them."""
    released_by: str | None = None
    """Who let the rows through, or the stream go on, in spite of the verdict."""

    @property
    def failed_checks(self) -> int:
        """How many checks did not pass."""
        return sum(not check.success for check in self.checks)


def describe_quality(quality: QualityRecord) -> str:
    """The verdict in one line."""
    said = f"quality: {quality.verdict}, {quality.failed_checks} of {len(quality.checks)} checks failed"
    for count, what in ((quality.dropped, "dropped"), (quality.quarantined, "quarantined")):
        said += f", {count:,} rows {what}" if count else ""
    return said + (f", released by {quality.released_by}" if quality.released_by else "")


def describe_batch(batch: BatchRecord) -> str:
    """One batch in one line."""
    is_staged = batch.decided_by is not None and batch.input_rows is None
    rows = "not read again" if is_staged else f"{_number(batch.input_rows)} rows in"
    rows = "already in the sink" if batch.was_in_sink else rows
    out = "" if batch.output_rows is None else f", {batch.output_rows:,} out"
    out += "".join(f", {rows:,} into {name}" for name, rows in batch.rows_by_sink.items())
    out += f", {batch.quarantined_rows:,} quarantined" if batch.quarantined_rows else ""
    out += f", {batch.dropped_rows:,} dropped" if batch.dropped_rows else ""
    out += f", {batch.late_rows:,} late" if batch.late_rows else ""
    out += _counts(batch.malformed_rows, "malformed rows") + _counts(batch.unread_files, "files without rows")
    out += f", {sum(kept.rows for kept in batch.state):,} in state" if batch.state else ""
    watermark = "" if batch.watermark is None else f", watermark {batch.watermark}"
    watermark += f", held back by {', '.join(batch.held_back_by)}" if batch.held_back_by else ""
    seconds = batch.duration_ms.get("triggerExecution", 0) / 1000
    how = "" if batch.decided_by is None else f", as run {batch.decided_by} had decided"
    how += f"; begun with another {', '.join(batch.changed)}" if batch.changed else ""
    how += "".join(f"; {warning}" for warning in batch.warnings)
    return f"batch {batch.batch_id} ({batch.kind.replace('_', ' ')}): {rows}{out}{watermark}, {seconds:.1f} s{how}"


def _counts(counts: Mapping[str, int], what: str) -> str:
    found = [f"{count:,} {what} in {source}" for source, count in counts.items() if count]
    return "".join(f", {text}" for text in found)


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


class RecordedError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed, as far as its record tells."""

    type: str = ""
    message: str = "its record does not say why"
    retryable: bool = True
    log: str = ""
    """Where all of it is, on the machine of the driver."""

    @property
    def whole(self) -> str:
        """The message, and where all of it is."""
        return f"{self.message}; all of it is in {self.log}" if self.log else self.message


class LiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far a live run has come, as its driver saw it last."""

    began_at: str
    """When the first try's query began."""
    ends_at: str
    """When the time of the run is over, also that of its retries: the batch under way then is the last."""
    seen_at: str
    committed_at: str | None = None
    """When a batch was committed last; None before the first."""
    doing: str = ""
    """What Spark said that the query was doing."""


class RunRecord(Document, frozen=True, kw_only=True):
    """One run. It exists, with its plan, before anything starts."""

    if_lost = RECORD_LOST
    run_id: str
    stream: str
    generation: int
    query_id: str | None = None
    token: int | None = None
    """The lease's of whoever wrote it last, or planned it anew: no driver with a lower one writes it any more."""
    run_key: str | None = None
    """Names the run for its retries: they find this record and keep its plan."""
    tries: int = 1
    """How often a driver has begun it; 0 when it is planned and no driver has begun yet, or was stopped before."""
    planned_at: datetime
    """The clock of the first try's plan; every try plans by it."""
    until: datetime | None = None
    to_version: int | None = None
    is_default_bound: bool = False
    """Whether nobody has typed `until` and `to_version`: they give way where Spark alone decides the batches."""
    max_batches: int | None = None
    strategy: Strategy | None = None
    """What was asked for; None where the planner was to choose."""
    trigger: LiveTrigger | None = None
    """Of a live run: what keeps its query at work, and for how long."""
    after: tuple[str, ...] = ()
    """The streams that it reads and that run before it: it has no plan of its own until they are done."""
    live: LiveRecord | None = None
    """How far a live run has come; None before its query has begun, and of other runs."""
    plan: PlanDocument
    status: Status
    started_at: str | None = None
    ended_at: str | None = None
    batches: tuple[BatchRecord, ...] = ()
    quality: QualityRecord | None = None
    """What became of the suite; None for streams without one, and before anything was measured."""
    error: RecordedError | None = None
    """Why it failed; None when nothing failed."""
    passed_later: bool = False
    """Whether it failed its suite, and a later run found that it passes: nobody heard of its success."""
    interval: RecordedInterval | None = None
    """The rows that a backfill recomputes; None for a run of the live stream."""
    backfill: BackfillRecord | None = None
    """What a backfill replaced; None for a run of the live stream."""
    phases: tuple[RecordedPhase, ...] = ()
    """What the newest try of a backfill has done so far, for it has no batches to tell of."""
    explain: str | None = None
    """What Spark says of its physical plan, without literals; None before Spark has started, and for backfills that run
    as a stream."""
    columns: RecordedColumns | None = None
    """What the columns of the result are made of; None where nobody is told of lineage, where Spark does not tell, and
    for backfills."""

    @property
    def sink_version(self) -> int | None:
        """The newest version of the sink's table that its batches made; None for none."""
        return max((batch.sink_version for batch in self.batches if batch.sink_version is not None), default=None)


class RunRecords:
    """The records of one stream."""

    def __init__(self, home: StreamHome) -> None:
        self._home, self._storage, self._folder = home, home.storage, home.runs_folder()

    def file(self, run_id: str) -> str:
        """The file of a run's record."""
        return join(self._folder, f"{run_id}.json")

    def lease_folder(self, record: RunRecord) -> str:
        """Where the leases are of which a run has one while it is at work: its record's token is one of those."""
        if record.interval is None:
            return self._home.lease_folder(record.generation)
        return self._home.interval_lease_folder(record.interval.start, record.interval.end)

    def save(self, record: RunRecord) -> None:
        """Write a record, durably, over its earlier content; where a run begins or ends, the summary follows.

        Not over that of a driver with a newer lease.

        Raises:
            LeaseLostError: Another try of the run has the record now.
            StorageError: It could not be written.
        """
        token, file = record.token or 0, self.file(record.run_id)
        if not self._storage.replace_if(file, encode_document(record), lambda found: _token(found) <= token):
            raise LeaseLostError(
                f"another try of run {record.run_id} has taken over",
                where=file,
                remedy="nothing more was written; the other try goes on from what is on disk",
            )
        if record.status != "running":
            keep_summary(self._home)

    def close_stopped(self, run_id: str, requested_by: str, now: datetime, *, token: int) -> RunRecord | None:
        """Save a run as stopped in the middle of its work; one of a newer try is left as it is.

        Returns:
            The record as it was saved; None where it was left.

        Raises:
            SluiceError: Its record could not be read or written.
        """
        record = self.read(run_id)
        if record is None or record.status not in {"planned", "running"} or (record.token or 0) > token:
            return None
        what = "a backfill; a retry goes on" if record.interval else "a batch, which replays at the next run"
        record = msgspec.structs.replace(record, token=token)
        return self._save_stopped(record, f"stopped by {requested_by} in the middle of {what}", now)

    def end_planned(self, run_id: str, now: datetime) -> RunRecord | None:
        """End a run that is planned, and that nobody is going to begin: it is forgotten, unless it was tried before.

        If somebody has asked it to end, its record is kept, and says so.

        Returns:
            The record as it was forgotten, or as it is kept with the status `stopped`; None of any other run.

        Raises:
            SluiceError: A file of it could not be read, written or deleted.
        """
        record = self.read(run_id)
        if record is None or record.status != "planned":
            return None
        request = stop_request(self._home, run_id)
        if request is not None:
            by = request.requested_by
            return self._save_stopped(record, f"stopped by {by} before it had begun; a retry runs it", now)
        if record.tries > 0:
            return None
        self.forget(run_id)
        return record

    def _save_stopped(self, record: RunRecord, message: str, now: datetime) -> RunRecord:
        error = RecordedError(type="Stopped", message=message)
        stopped = msgspec.structs.replace(record, status="stopped", error=error, ended_at=iso_time(now))
        self.save(stopped)
        return stopped

    def forget(self, run_id: str) -> None:
        """Delete a record; one that is not there is fine.

        Raises:
            StorageError: It is still there.
        """
        self._storage.delete(self.file(run_id))

    def read(self, run_id: str) -> RunRecord | None:
        """One record; None when there is none.

        Raises:
            RefusedError: Its file is damaged.
        """
        return read_document(self._storage, self.file(run_id), RunRecord)

    def find(self, run_key: str) -> RunRecord | None:
        """The record that bears a run key; None when there is none.

        Raises:
            RefusedError: Its file is damaged.
        """
        for run_id in self.run_ids():
            if run_id.endswith(_key_suffix(run_key)):
                record = self.read(run_id)
                if record is not None and record.run_key == run_key:
                    return record
        return None

    def find_try(self, run_key: str | None, interval: RecordedInterval | None) -> RunRecord | None:
        """The try before of a run, by its key; None when there is none.

        Args:
            run_key: Names the run; None for one that nobody tries again.
            interval: What it recomputes; None for a run of the live stream.

        Raises:
            DeclarationError: The key names another run: a retry would end that one's record, and do nothing.
            RefusedError: Its file is damaged.
        """
        found = self.find(run_key) if run_key else None
        if found is not None and found.interval != interval:
            own, other = _described(interval), _described(found.interval)
            raise DeclarationError(
                f"run key `{run_key}` names another run: {found.run_id}, {other}",
                where="--run-key",
                remedy=f"give this one, {own}, a key of its own",
            )
        return found

    def run_ids(self) -> list[str]:
        """Every run's id, newest first."""
        listed = self._storage.list_folder(self._folder)
        names = listed.files if listed is not None else []
        found = [name.removesuffix(".json") for name in names if _RECORD_NAME.fullmatch(name)]
        return sorted(found, reverse=True)

    def newest(self, count: int) -> Iterator[RunRecord]:
        """The newest records, newest first.

        Raises:
            RefusedError: A file is damaged.
        """
        for run_id in self.run_ids()[:count]:
            record = self.read(run_id)
            if record is not None:
                yield record

    def newest_readable(self, count: int) -> tuple[list[RunRecord], dict[str, RefusedError]]:
        """The newest records, newest first; and of the damaged ones among them, by id, what is wrong."""
        found: list[RunRecord] = []
        damaged: dict[str, RefusedError] = {}
        for run_id in self.run_ids()[:count]:
            try:
                record = self.read(run_id)
            except RefusedError as exc:
                damaged[run_id] = exc
                continue
            if record is not None:
                found.append(record)
        return found, damaged


def _described(interval: RecordedInterval | None) -> str:
    if interval is None:
        return "a run of the live stream"
    return f"a backfill of [{iso_time(interval.start)}, {iso_time(interval.end)})"


class _Fenced(msgspec.Struct):
    token: int | None = None


def _token(content: bytes | None) -> int:
    """The token that a record bears; 0 for none, and for a file that is no record any more."""
    try:
        return (decode_as(content, _Fenced).token or 0) if content else 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0


def new_run_id(now: datetime, run_key: str | None) -> str:
    """`YYYYMMDDTHHMMSSmmmZ-<8 hex>`: sorts by time; the end is drawn from the run key, so that it can be found."""
    stamp = iso_time(now).replace("-", "").replace(":", "").replace(".", "")
    return stamp + (_key_suffix(run_key) if run_key is not None else f"-{secrets.token_hex(4)}")


def _key_suffix(run_key: str) -> str:
    return "-" + hashlib.sha256(run_key.encode()).hexdigest()[:8]
