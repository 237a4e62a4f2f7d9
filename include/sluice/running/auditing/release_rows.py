"""Sends repaired rows of a quarantine back into the sink, exactly once.

    claim    one commit marks the rows in the quarantine with the release's id
    append   one commit puts the marked rows into the sink, with the release's id as its transaction
    remove   one commit deletes the marked rows from the quarantine

Each step counts once, however often it is tried, and the release's document is there before the first: a release that
was killed is finished by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from sluice.delta_table import open_log
from sluice.documents import Document, encode_document, read_document
from sluice.errors import DeclarationError, SluiceError
from sluice.home import StreamHome
from sluice.project import Project
from sluice.quality.compile import compile_suite
from sluice.quality.declared_suite import declared_suite
from sluice.quality.sql_text import any_of
from sluice.quality.suite import Suite
from sluice.running.auditing.quarantine import BATCH, FAILED, RELEASE, RUN, check_quarantine
from sluice.running.lease import Clock, Lease
from sluice.running.preparation import Preparation, Request, system_clock
from sluice.running.query import spark_failed, spark_message
from sluice.running.record import new_run_id
from sluice.running.runner import name_writer
from sluice.running.session import close_session, is_remote, open_session
from sluice.storage import join, spark_location
from sluice.stream import BatchSink, SinkBatch, StagingSink, Stream
from sluice.times import iso_time

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

_OURS = (FAILED, RUN, BATCH, RELEASE)


class Release(Document, frozen=True, kw_only=True):
    """One release of rows."""

    release_id: str
    state: Literal["begun", "claimed", "done"]
    released_by: str
    began_at: str
    where: str | None = None
    """The condition that somebody gave, in Spark SQL; None for every row that passes."""
    rows: int = 0
    """How many rows went back into the sink; 0 until they are claimed."""
    left: int = 0
    """How many rows that were asked for still fail, and stay."""


@dataclass(frozen=True)
class Released:
    """What came of asking for a release."""

    release: Release
    finished: tuple[Release, ...]
    """Former releases that had been killed, and are done now."""


def release_rows(
    project: Project,
    stream: Stream,
    where: str | None,
    released_by: str,
    *,
    session: SparkSession | None = None,
    clock: Clock = system_clock,
) -> Released:
    """Move the rows of a stream's quarantine that pass its suite by now into its sink.

    Rows pass by now because somebody has edited them in the quarantine, or because the suite was corrected. A row has
    to pass every expectation about rows with the policy `drop`, `quarantine` or `fail`; the table as a whole is not
    judged anew.

    Args:
        project: The project of the stream.
        stream: The stream, with its paths resolved.
        where: Only rows that meet this condition, in Spark SQL over the quarantine's columns; None for all.
        released_by: Who asks for it.
        session: A Spark session to use in place of one that the project's settings describe.
        clock: Tells the time.

    Raises:
        DeclarationError: The stream has no suite or no quarantine, or the condition is wrong.
        LeaseHeldError: A run of the stream is at work.
        RefusedError: A file of the home is damaged.
        BatchFailedError: Spark failed; asking again finishes what was begun.
    """
    home = project.stream_home(stream)
    suite, table = _declared(project, stream, home)
    preparation = Preparation.of(project, Request(stream), clock)
    release = Release(
        release_id=new_run_id(clock(), None),
        state="begun",
        released_by=released_by,
        began_at=iso_time(clock()),
        where=where,
    )
    with preparation.take_lease(home.current_generation(), release.release_id) as lease:
        preparation.close_dead(lease.taken_from)
        unfinished = [found for found in read_releases(home) if found.state != "done"]
        if open_log(table.location or "", storage=home.storage) is None:
            return Released(msgspec.structs.replace(release, state="done"), ())
        opened = session or open_session(project, stream)
        try:
            name_writer(preparation, opened, lease)
            work = _Work(project, stream, home, suite, table, lease, opened)
            finished = tuple(work.finish(found) for found in unfinished)
            return Released(work.begin(release), finished)
        except SluiceError:
            raise
        except Exception as exc:
            consequence = "ask for the release again: it finishes what was begun"
            raise spark_failed(exc, where=f"stream `{stream.name}`", consequence=consequence) from exc
        finally:
            if session is None:
                close_session(opened)


def read_releases(home: StreamHome) -> list[Release]:
    """Every release of rows of a stream, oldest first.

    Raises:
        RefusedError: A document is damaged.
        StorageError: The home can't be read.
    """
    listed = home.storage.list_folder(home.releases_folder())
    names = sorted(name for name in (listed.files if listed else []) if name.endswith(".json"))
    found = [read_document(home.storage, join(home.releases_folder(), name), Release) for name in names]
    return [release for release in found if release is not None]


def _declared(project: Project, stream: Stream, home: StreamHome) -> tuple[Suite, StagingSink]:
    suite, table = declared_suite(project, stream, storage=home.storage), stream.quarantine_table
    problem, remedy = None, "declare `quality`, with the policy `quarantine`"
    if suite is None:
        problem = "the stream has no suite"
    elif table is None:
        problem = f"a stream with a {stream.sink.kind} sink has no quarantine"
    elif is_remote(project):
        problem, remedy = "Spark Connect can't release rows", "use a Spark of its own: `[spark] master`"
    if problem is not None or suite is None or table is None:
        raise DeclarationError(str(problem), where=f"stream `{stream.name}`", remedy=remedy)
    return suite, table


@dataclass(frozen=True)
class _Work:
    project: Project
    stream: Stream
    home: StreamHome
    suite: Suite
    table: StagingSink
    lease: Lease
    session: SparkSession

    def begin(self, release: Release) -> Release:
        self._add_mark()
        passes, asked = self._passes(), self._asked(release.where)
        self._keep(release)
        from pyspark.sql import functions

        free = functions.col(RELEASE).isNull() & asked
        self.lease.check()
        self._quarantine().update(free & passes, {RELEASE: functions.lit(release.release_id)})
        left = self._frame().where(free).count()
        return self._move(msgspec.structs.replace(release, left=left))

    def finish(self, release: Release) -> Release:
        """Do what a release that was killed had yet to do; what it had not claimed is left to the one that asks now."""
        self._add_mark()
        return self._move(release)

    def _move(self, release: Release) -> Release:
        claimed = self._claimed(release)
        sink, application = self.stream.sink, f"sluice-release-{release.release_id}"
        assert isinstance(sink, BatchSink)
        if release.state == "begun":
            release = msgspec.structs.replace(release, state="claimed", rows=claimed.count())
            self._keep(release)
        if release.rows:
            self.lease.check()
            if sink.state(application, storage=self.home.storage).last_batch is None:
                batch = SinkBatch(application, 0, "append", self.lease.token)
                sink.write_batch(claimed.drop(*_OURS), batch, load_function=self.project.load_function)
            self._quarantine().delete(self._is_claimed(release))
        release = msgspec.structs.replace(release, state="done")
        self._keep(release)
        return release

    def _passes(self) -> Column:
        """The rows that the suite would let into the sink."""
        from pyspark.sql import functions

        frame = self._frame()
        columns = [(name, kind) for name, kind in frame.dtypes if name not in _OURS]
        plan = compile_suite(self.suite, dict(columns))
        failing = [
            check.unexpected
            for check in plan.row_checks("drop", "quarantine", "fail")
            if check.unexpected is not None and (check.expectation.policy != "fail" or check.expectation.mostly == 1.0)
        ]
        if not failing:
            return functions.lit(True)  # noqa: FBT003 - a literal of Spark's
        return functions.expr(f"NOT coalesce({any_of(failing)}, false)")

    def _asked(self, where: str | None) -> Column:
        from pyspark.sql import functions

        if where is None:
            return functions.lit(True)  # noqa: FBT003
        try:
            asked = functions.expr(where)
            self._frame().where(asked).schema  # noqa: B018 - Spark analyses it here
        except Exception as exc:
            raise DeclarationError(
                f"the condition is wrong: {spark_message(exc)}",
                where="--where",
                remedy="give one over the quarantine's columns, in Spark SQL: `dep_delay < 1440`",
            ) from exc
        return asked

    def _add_mark(self) -> None:
        """Give a quarantine that never had a release the column that claims rows."""
        check_quarantine(self.table, [], storage=self.home.storage)
        if RELEASE not in self._frame().columns:
            nothing = self._frame().limit(0).selectExpr("*", f"CAST(NULL AS STRING) AS `{RELEASE}`")
            writer = nothing.write.format("delta").mode("append").option("mergeSchema", value=True)
            writer.save(self._location())

    def _claimed(self, release: Release) -> DataFrame:
        return self._frame().where(self._is_claimed(release))

    def _is_claimed(self, release: Release) -> Column:
        from pyspark.sql import functions

        return functions.col(RELEASE) == release.release_id

    def _frame(self) -> DataFrame:
        return self.session.read.format("delta").load(self._location())

    def _quarantine(self) -> DeltaTable:
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self.session, self._location())

    def _location(self) -> str:
        return spark_location(self.table.location or "")

    def _keep(self, release: Release) -> None:
        file = join(self.home.releases_folder(), f"{release.release_id}.json")
        self.home.storage.replace(file, encode_document(release))
