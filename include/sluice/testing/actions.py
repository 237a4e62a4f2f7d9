"""The bench: a stream under test, step by step, on real Spark and by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from sluice.errors import DeclarationError, SluiceError
from sluice.project import Project, find_project
from sluice.runs.record import RunRecord, describe_batch
from sluice.sinks.contract import Sink
from sluice.sources.bench import Feed
from sluice.sources.contract import Source
from sluice.spark.state_rows import find_operator, read_state
from sluice.stream import Stream
from sluice.testing.bench_folder import BenchFolder
from sluice.testing.clock import duration, moment
from sluice.testing.crash import Moment, check_moment
from sluice.testing.difference import Rows, difference
from sluice.testing.inputs import Input, write_input
from sluice.testing.opened import OpenedStream
from sluice.testing.project import bench_project
from sluice.testing.rows import as_dicts, given_rows, rows_of
from sluice.testing.state_stores import STATE_STORES
from sluice.times import iso_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_READS_STATE = {
    "join_side": "joinSide",
    "state_var_name": "stateVarName",
    "store_name": "storeName",
    "read_registered_timers": "readRegisteredTimers",
}


class Bench:
    """A stream under test: rows go in, runs are made, stopped and killed, and what came of it is checked.

    Everything is real: rows become files and table versions of the declared kinds, runs are planned and made as
    `sluice run` does, on a Spark of this process. But it all happens in the bench's folder, and by its clock: plans,
    `current_timestamp()`, time-outs of state and `until` go by that, and not by the time of day.

    Args:
        folder: Where everything lies: a new one, or an empty one.
        project: The user's project, or a folder in it, in which streams have names. None where there is none.
    """

    def __init__(self, folder: Path, project: Project | str | None = None) -> None:
        self._shared = BenchFolder(folder.absolute(), project)
        self._stream: OpenedStream | None = None
        self._seen: dict[str, list[Mapping[str, Any]]] = {}
        self._is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._shared.close()

    def open(
        self,
        stream: Stream | str,
        *,
        sources: Mapping[str, Source] | None = None,
        sink: Sink | None = None,
        conf: Mapping[str, str | int | float | bool] | None = None,
        state_store: str | None = None,
        now: str | datetime | None = None,
    ) -> Bench:
        """Open a stream: this bench is about it from now on.

        Called again, for a stream that reads what this one writes, say, it gives a bench of that one: with the same
        folder and the same clock.

        Args:
            stream: A stream, or the name of one of the project's.
            sources: Others in the place of those that it declares, by name.
            sink: Another one in the place of its own. One that is no place (`foreach_batch`, Kafka) is written as it
                is; a stream that declares such a one is not opened without.
            conf: Settings of Spark, beside those that it declares.
            state_store: The kind of state store: one of `STATE_STORES`.
            now: Where the clock begins; 2026-01-01 unless told.

        Raises:
            DeclarationError: The stream can't be run in a bench.
        """
        bench = self if self._stream is None else self._beside()
        declared = self._declared(stream, sources, sink, {**_store_conf(state_store), **(conf or {})})
        project, places = bench_project(self._shared.user_project, self._shared.folder, self._shared.watch)
        opened = OpenedStream(places.stream(declared, sink), project, self._shared.clock)
        if now is not None:
            self._shared.clock.begin(moment(now, "bench.open(now=...)"))
        self._shared.opened.append(opened)
        bench._stream = opened  # noqa: SLF001 - of its own class
        store = "" if state_store is None else f", with its state in {state_store}"
        self._note(f"open `{declared.name}` at {iso_time(self._shared.clock.now)}{store}")
        return bench

    @property
    def stream(self) -> Stream:
        """The stream, in its places below the bench's folder."""
        return self._opened.stream

    @property
    def spark(self) -> SparkSession:
        """The session that the stream's runs take: for what a test computes or reads by itself."""
        return self._opened.session

    @property
    def now(self) -> datetime:
        """The time of the bench, in UTC."""
        return self._shared.clock.now

    def add(self, source: str, rows: object, *, schema: str | None = None, folder: str = "") -> None:
        """Give a source rows: one file, or one version of a table, that arrives now.

        Args:
            source: Its name.
            rows: Dicts by column (one that is left out is null), tuples of all columns, or a DataFrame. Of a source of
                files, text or bytes are the whole content of a file.
            schema: The columns of a Delta table as DDL, with its first rows.
            folder: Of files, a folder below the source's: `day=2026-01-01`.

        Raises:
            DeclarationError: There is no such source, or the rows are not of its columns.
        """
        found = self._opened.stream.sources.get(source)
        if found is None:
            names = ", ".join(self._opened.stream.sources)
            raise DeclarationError(f"there is no source `{source}`", where="bench.add()", remedy=f"there are: {names}")
        self._shared.inputs += 1
        place = f"bench.add({source!r})"
        how = Feed(self._shared.inputs, folder, self._shared.clock(), place)
        given = Input(rows, schema, how)
        told = write_input(found, given, lambda: self._opened.session)
        self._note(f"add to `{source}`: {told}")

    def advance(self, by: str | timedelta | None = None, *, to: str | datetime | None = None) -> None:
        """Move the clock.

        Args:
            by: For how long: `"10 minutes"`, `"1 hour 30 minutes"`.
            to: Or to which time.

        Raises:
            DeclarationError: It is neither, or a time before now.
        """
        if (by is None) is (to is None):
            raise DeclarationError(
                "the clock is moved by a time that passes, or to one",
                where="bench.advance()",
                remedy='write bench.advance("10 minutes"), or bench.advance(to="2026-01-01T10:00:00Z")',
            )
        clock = self._shared.clock
        if to is not None:
            clock.set(moment(to, "bench.advance(to=...)"))
        elif by is not None:
            clock.set(clock.now + duration(by, "bench.advance()"))
        self._note(f"it is {iso_time(clock.now)}")

    def run(self, *, until: str | datetime | None = None) -> RunRecord:
        """Run the stream until nothing is left to do.

        Args:
            until: What arrived before it counts.

        Returns:
            The run's record: status `succeeded` or `skipped`, and what each batch did.

        Raises:
            SluiceError: As `sluice run` does; `check_error` is for one that is expected.
        """
        return self._run("run", until)

    def stop(self, *, after: int = 1, until: str | datetime | None = None) -> RunRecord:
        """Run the stream, and ask the run to stop once it has done some batches.

        Args:
            after: After how many.
            until: What arrived before it counts.

        Raises:
            SluiceError: As `run`.
        """
        record = self._run(f"stop after {after}", until, stop_after=after)
        self._is_cut = True
        return record

    def crash(self, *, at: Moment, batch: int = 1, until: str | datetime | None = None) -> None:
        """Run the stream, and kill it: what it leaves on the disk is what a kill leaves there.

        Args:
            at: When: one of `Moment`.
            batch: Of which batch of the run, from 1 on.
            until: What arrived before it counts.

        Raises:
            DeclarationError: There is no such moment.
            SluiceError: The run failed before it.
        """
        __tracebackhide__ = True
        opened, bound = self._opened, _until(until)
        check_moment(at, opened.written_last)
        self._note(f"crash {at} of batch {batch}")
        self._is_cut = True
        with self._telling():
            record = opened.crash(at, batch, bound)
        if record is not None:
            self._is_cut = False
            had = f"{len(record.batches)}" if record.plan.strategy == "exact" else "those that Spark decides"
            had += ", the first of which was planned before" if record.plan.verdict == "resume" else ""
            self._fail(f"the run ended before its batch {batch} could be killed {at}: it had {had}", _told(record))

    def restart(self, *, until: str | datetime | None = None) -> RunRecord:
        """Run the stream again, after a crash, a stop or an error.

        Raises:
            DeclarationError: The run before has ended well.
            SluiceError: As `run`.
        """
        if not self._is_cut:
            raise DeclarationError(
                "nothing was cut off that could be gone on with", where="bench.restart()", remedy="use bench.run()"
            )
        return self._run("restart", until)

    def check_error(
        self,
        match: str = "",
        *,
        kind: type[SluiceError] = SluiceError,
        until: str | datetime | None = None,
    ) -> SluiceError:
        """Run the stream, which must fail.

        Args:
            match: What the message has in it.
            kind: The error's class.
            until: What arrived before it counts.

        Returns:
            The error.

        Raises:
            AssertionError: It did not fail, or with another error.
        """
        __tracebackhide__ = True
        opened, bound = self._opened, _until(until)
        self._note(f"run, which must fail with {kind.__name__}" + (f": {match}" if match else ""))
        try:
            record = opened.run(bound)
        except SluiceError as exc:
            error = exc
        else:
            self._fail("the run was to fail, and did not", _told(record))
        self._is_cut = True
        told = f"{type(error).__name__}: {error}"
        self._shared.history[-1] += f"\n     {told}"
        if not isinstance(error, kind) or match not in str(error):
            self._fail(f"the run failed with another error: {told}", because=error)
        return error

    def check_rows(self, expected: object, *, sink: str | None = None) -> None:
        """Compare every row of the sink, in any order.

        Args:
            expected: Dicts with the columns that count, or tuples of all columns.
            sink: Which one, by its name, of a stream with several.

        Raises:
            AssertionError: Other rows are there.
        """
        __tracebackhide__ = True
        self._check(_of("rows", sink), self._opened.sink(sink), expected, only_new=False)

    def check_new_rows(self, expected: object, *, sink: str | None = None) -> None:
        """Compare the rows that the sink has got since it was last checked, in any order.

        Args:
            expected: As in `check_rows`.
            sink: As in `check_rows`.

        Raises:
            AssertionError: Other rows have come.
        """
        __tracebackhide__ = True
        self._check(_of("new rows", sink), self._opened.sink(sink), expected, only_new=True)

    def check_quarantine(self, expected: object) -> None:
        """Compare the rows that the suite has put into quarantine.

        Args:
            expected: As in `check_rows`.

        Raises:
            AssertionError: Other rows are there.
            DeclarationError: The stream has no quarantine.
        """
        __tracebackhide__ = True
        self._check("quarantined rows", self._opened.quarantine, expected, only_new=False)

    def check_state(self, expected: object, *, operator: int = 0, **options: Any) -> None:
        """Compare the state that an operator keeps, as Spark's own reader of state tells it.

        Args:
            expected: As in `check_rows`; the columns are those of keys and values (`key` and `value`, where two of them
                are called alike).
            operator: Its number, from 0 on.
            options: Of Spark's reader: `join_side`, `store_name`, `state_var_name`, `read_registered_timers`.

        Raises:
            AssertionError: The state is another one.
            DeclarationError: There is no such operator, or Spark wants to be told more.
        """
        __tracebackhide__ = True
        where, checkpoint = "bench.check_state()", self._opened.checkpoint
        unknown = next((name for name in options if name not in _READS_STATE), None)
        if unknown is not None:
            raise DeclarationError(
                f"there is no `{unknown}`", where=where, remedy=f"there are: {', '.join(_READS_STATE)}"
            )
        given = {_READS_STATE[name]: str(value) for name, value in options.items()}
        frame = None
        if checkpoint.committed_id is not None and checkpoint.operators:
            keeping = find_operator(checkpoint, operator, where=where)
            frame = read_state(checkpoint, self._opened.session, keeping, given, where=where)
        found = [] if frame is None else rows_of(frame)
        self._compare(f"state of operator {operator}", None if frame is None else frame.schema, found, expected)

    def check_watermark(self, expected: str | datetime | None) -> None:
        """Compare the watermark that the committed batches leave.

        Args:
            expected: A time; None for none.

        Raises:
            AssertionError: It is another one.
        """
        __tracebackhide__ = True
        wanted = None if expected is None else moment(expected, "bench.check_watermark()")
        found = self._opened.watermark
        told = [None if time is None else iso_time(time) for time in (wanted, found)]
        self._note(f"check the watermark: {told[0]}")
        if wanted != found:
            self._fail("the watermark is another one", f"  - {told[0]}\n  + {told[1]}")

    @property
    def _opened(self) -> OpenedStream:
        if self._stream is None:
            raise DeclarationError("no stream is open", where="bench", remedy='begin with bench.open("NAME")')
        return self._stream

    def _beside(self) -> Bench:
        bench = Bench(self._shared.folder)
        bench._shared = self._shared
        return bench

    def _declared(
        self, stream: Stream | str, sources: Mapping[str, Source] | None, sink: Sink | None, conf: Mapping[str, Any]
    ) -> Stream:
        """The stream as it is declared, with what the test says otherwise."""
        found = stream
        if isinstance(found, str):
            found = (self._shared.user_project or find_project()).stream(found)
        unknown = next((name for name in sources or {} if name not in found.sources), None)
        if unknown is not None:
            raise DeclarationError(
                f"there is no source `{unknown}`",
                where="bench.open(sources=...)",
                remedy=f"there are: {', '.join(found.sources)}",
            )
        return replace(
            found,
            sources={**found.sources, **(sources or {})},
            sink=sink or found.sink,
            conf={**(found.conf or {}), **conf} or None,
        )

    def _run(self, action: str, until: str | datetime | None, **how: Any) -> RunRecord:
        opened, bound = self._opened, _until(until)
        self._note(action if bound is None else f"{action} until {iso_time(bound)}")
        self._is_cut = True
        with self._telling():
            record = opened.run(bound, **how)
        self._is_cut = False
        self._shared.history[-1] += f"\n{_told(record)}"
        return record

    def _check(self, what: str, sink: Sink, expected: object, *, only_new: bool) -> None:
        __tracebackhide__ = True
        schema, found = self._opened.rows(sink)
        before = self._seen.get(sink.location or sink.kind, [])
        self._seen[sink.location or sink.kind] = list(found)
        new = difference(before, found).unexpected if only_new else found
        self._compare(what, schema, new, expected)

    def _compare(self, what: str, schema: StructType | None, found: Rows, expected: object) -> None:
        __tracebackhide__ = True
        self._note(f"check the {what}")
        if schema is None:
            if given_rows(expected, f"bench, expected {what}"):
                self._fail(f"there are no {what}: nothing was written yet")
            return
        wanted = as_dicts(expected, schema, f"bench, expected {what}")
        named = {tuple(row) for row in wanted}
        if len(named) == 1:
            found = [{name: row[name] for name in next(iter(named))} for row in found]
        if differs := difference(wanted, found):
            self._fail(
                f"the {what} differ: {len(differs.missing)} missing (-), {len(differs.unexpected)} not expected (+)",
                "\n".join(differs.lines()),
            )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Let an error say what was done before."""
        try:
            yield
        except SluiceError as exc:
            exc.add_note(self._shared.told())
            raise

    def _note(self, text: str) -> None:
        self._shared.history.append(text)

    def _fail(self, message: str, *more: str, because: BaseException | None = None) -> NoReturn:
        __tracebackhide__ = True
        name = f"`{self._opened.stream.name}`"
        raise AssertionError("\n".join([f"{name}: {message}", *more, self._shared.told()])) from because


def _until(given: str | datetime | None) -> datetime | None:
    return None if given is None else moment(given, "until")


def _told(record: RunRecord) -> str:
    """A run in a line, and each of its batches in one."""
    return "\n".join(
        [f"     {record.status}: {record.plan.reason}", *(f"     {describe_batch(batch)}" for batch in record.batches)]
    )


def _store_conf(name: str | None) -> Mapping[str, str]:
    if name is None:
        return {}
    if name not in STATE_STORES:
        raise DeclarationError(
            f"there is no state store `{name}`",
            where="bench.open(state_store=...)",
            remedy=f"there are: {', '.join(STATE_STORES)}",
        )
    return STATE_STORES[name]


def _of(what: str, sink: str | None) -> str:
    return what if sink is None else f"{what} of sink `{sink}`"
