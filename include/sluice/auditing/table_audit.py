"""Audits a table as it stands: a suite over all of it, over rows that meet a condition, or over what versions added.

    <home>/<stream>/table_audits/<audit_id>.json    what was asked, and what came of it

It is no run: it writes no row, takes no lease and holds no stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from sluice.auditing.told_work import told_work
from sluice.auditing.written_rows import measure
from sluice.datasets import dataset_at
from sluice.delta_log.table import open_log
from sluice.documents import Document, encode_document, read_document
from sluice.errors import BatchFailedError, DeclarationError, QueryRefusedError, SluiceError
from sluice.gate.audit_record import quality_record
from sluice.gate.judged_runs import judged
from sluice.home import StreamHome
from sluice.lineage.sending import lineage_sent
from sluice.lineage.table_work import TableWork
from sluice.locations import join
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.project import Project
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.judgement import judge_run
from sluice.quality.report import JudgedRun
from sluice.quality.reread import reread
from sluice.quality.suite import Suite
from sluice.runs.driver import Drivers
from sluice.runs.record import QualityRecord, new_run_id
from sluice.sinks.contract import ReadableSink, VersionedSink
from sluice.spark.named_tables import check_tables
from sluice.spark.session import found_with_spark
from sluice.spark.shown_error import spark_message
from sluice.stream import Stream
from sluice.times import Clock, system_clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TableAuditRequest:
    """What is to be audited."""

    stream: Stream
    """Its sink is the table."""
    suite: str | None = None
    """Another suite than the stream's, named as `Stream(quality=...)` names one."""
    where: str | None = None
    """A condition in Spark SQL; on a partition column, only those partitions are read."""
    from_version: int | None = None
    """Only what this version and later ones added, also what has been rewritten or deleted since."""
    to_version: int | None = None
    """The table as this version left it; the newest one when it is not given."""


class TableAudit(Document, frozen=True, kw_only=True):
    """What came of an audit."""

    if_lost = "delete it, and audit the table again"
    audit_id: str
    stream: str
    table: str
    """Where the table is."""
    version: int
    """The table's version that was read, or the last one of a range."""
    from_version: int | None = None
    where: str | None = None
    started_at: Annotated[datetime, msgspec.Meta(tz=True)]
    ended_at: Annotated[datetime, msgspec.Meta(tz=True)]
    quality: QualityRecord
    """`rows` counts those that were looked at; none leave the table, whatever the policies."""


def new_audit_id(clock: Clock = system_clock) -> str:
    """A name for an audit; names sort by time."""
    return new_run_id(clock(), None)


@lineage_sent()
def audit_table(
    project: Project,
    request: TableAuditRequest,
    *,
    audit_id: str | None = None,
    session: SparkSession | None = None,
    clock: Clock = system_clock,
) -> TableAudit:
    """Measure a suite on a stream's Delta table, write down what came of it, and give it back, whatever the verdict.

    What compiles is measured in one pass; the rest by Great Expectations. `drop` and `quarantine` only warn, and rules
    about history, which are about runs, are left out.

    Args:
        project: The project of the stream.
        request: What is to be audited.
        audit_id: Names the audit; made up when not given.
        session: A Spark session to use in place of one that the project's settings describe.
        clock: Tells the time.

    Raises:
        DeclarationError: See `check_audit`; or the suite does not fit the table.
        QueryRefusedError: The condition is none.
        RefusedError: A version can't be read any more.
        RunError: Spark can't be started, or can't read the table.

    Errors that quote what others must not read name the log that has all of it: `drivers/<audit_id>.log`.
    """
    suite, sink, version = check_audit(project, request)
    stream, home = request.stream, project.stream_home(request.stream)
    audit_id = audit_id or new_audit_id(clock)
    started_at = clock()
    table = replace(dataset_at(sink.location or ""), version=version)
    begun = TableWork(kind="audit", work_id=audit_id, began_at=started_at, reads=table)
    with Drivers(home).telling(audit_id), told_work(project, stream, begun, clock) as told:
        quality = found_with_spark(
            project,
            stream,
            lambda opened: _measure(suite, _rows(request, sink, version, opened, home), request, clock),
            session,
        )
        audit = TableAudit(
            audit_id=audit_id,
            stream=stream.name,
            table=stream.sink.location or "",
            version=version,
            from_version=request.from_version,
            where=request.where,
            started_at=started_at,
            ended_at=clock(),
            quality=quality,
        )
        home.storage.replace(_file(home, audit.audit_id), encode_document(audit))
        told.append(replace(begun, quality=quality))
    return audit


def check_audit(project: Project, request: TableAuditRequest) -> tuple[Suite, ReadableSink, int]:
    """Make sure, without a JVM, that there is a suite, and a table with these versions.

    Returns:
        The suite, and the version to read.

    Raises:
        DeclarationError: There is not, or the stream's declaration is wrong.
        StorageError: The table's log can't be read.
    """
    home = project.stream_home(request.stream)
    declared = CheckedDeclaration.of(project, request.stream, project.streams())
    suite, (sink, version) = _suite(declared, request), _table(request, home)
    declared.check_table(storage=home.storage)
    return suite, sink, version


def read_table_audit(home: StreamHome, audit_id: str) -> TableAudit | None:
    """An audit by its name; None when it did not come to its end.

    Raises:
        RefusedError: Its file is damaged.
        StorageError: It can't be read.
    """
    return read_document(home.storage, _file(home, audit_id), TableAudit)


def _file(home: StreamHome, audit_id: str) -> str:
    return join(home.table_audits_folder(), f"{audit_id}.json")


def _suite(declared: CheckedDeclaration, request: TableAuditRequest) -> Suite:
    stream = request.stream
    if request.suite is not None:
        declared = replace(declared, stream=replace(stream, quality=request.suite))
    suite = declared.suite
    if suite is None:
        raise DeclarationError(
            "there is no suite to audit the table with",
            where=stream.place,
            remedy="declare `quality`, or name a suite",
        )
    # Nothing leaves a table that is only looked at.
    expectations = tuple(
        replace(found, policy="warn") if found.policy in {"drop", "quarantine"} else found
        for found in suite.expectations
    )
    return replace(suite, expectations=expectations).without_history()


def _table(request: TableAuditRequest, home: StreamHome) -> tuple[ReadableSink, int]:
    """The table, and the version to read; fixed before anything is read, for others may write meanwhile."""
    sink, place = request.stream.sink, request.stream.place
    if not isinstance(sink, ReadableSink):
        raise DeclarationError(
            f"{sink.named} is no table to audit", where=place, remedy="audit a stream with a Delta sink"
        )
    if request.from_version is not None and not isinstance(sink, VersionedSink):
        raise DeclarationError(
            f"{sink.named} does not tell what a version added: a merge writes rows of other batches again",
            where=place,
            remedy="audit the whole table, or the rows of a condition: leave out the first version",
        )
    log = open_log(sink.location or "", storage=home.storage)
    if log is None:
        raise DeclarationError("there is no table yet", where=sink.location, remedy="run the stream first")
    first = 0 if request.from_version is None else request.from_version
    version = log.latest if request.to_version is None else request.to_version
    if not 0 <= first <= version <= log.latest:
        raise DeclarationError(
            f"versions {first} to {version} are no range of the table",
            where=sink.location,
            remedy=f"give versions from 0 to {log.latest}, the newest",
        )
    return sink, version


def _rows(
    request: TableAuditRequest, sink: ReadableSink, version: int, session: SparkSession, home: StreamHome
) -> DataFrame:
    check_tables(request.stream, session)
    try:
        if request.from_version is not None and isinstance(sink, VersionedSink):
            rows = sink.read_versions(session, range(request.from_version, version + 1), storage=home.storage)
        else:
            rows = sink.read_table(session, version)
        if request.where is not None:
            rows = rows.where(request.where)
            rows.schema  # noqa: B018 - over Spark Connect, analysis waits until somebody asks
    except SluiceError:
        raise
    except Exception as exc:
        reason = spark_message(exc)
        if request.where is not None and _is_analysis_error(exc):
            raise QueryRefusedError(
                f"the condition can't run: {reason}", where=f"where={request.where!r}", remedy="correct it"
            ) from exc
        raise _unread(request, reason) from exc
    return rows


def _measure(suite: Suite, rows: DataFrame, request: TableAuditRequest, clock: Clock) -> QualityRecord:
    columns = dict(rows.dtypes)
    plan: QualityPlan = compile_suite(suite, columns, sample=suite.sample)
    try:
        values, rereads = measure(plan, rows), reread(plan, rows)
    except SluiceError:
        raise
    except Exception as exc:
        raise _unread(request, spark_message(exc, is_of_rows=True)) from exc
    judgement = judge_run(plan, [values], [], now=clock(), rereads=rereads)
    return quality_record(judgement, suite.name, "", columns)


def _is_analysis_error(exc: Exception) -> bool:
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(exc, AnalysisException | ParseException)


def _unread(request: TableAuditRequest, reason: str) -> BatchFailedError:
    return BatchFailedError(
        f"the table could not be audited: {reason}", where=request.stream.sink.location, remedy="try again"
    )


def judged_audit(audit: TableAudit) -> JudgedRun:
    """An audit as reports and Data Docs have it."""
    return judged(audit.audit_id, audit.started_at, audit.quality)


def summary(audit: TableAudit) -> dict[str, Any]:
    """What downstream tasks may want to know of an audit.

    Keys: `audit_id`, `stream`, `version`, `from_version`, `verdict`, `rows`, `checks` (how many), `failed` (the types
    of those that failed).
    """
    quality = audit.quality
    return {
        "audit_id": audit.audit_id,
        "stream": audit.stream,
        "version": audit.version,
        "from_version": audit.from_version,
        "verdict": quality.verdict,
        "rows": quality.rows,
        "checks": len(quality.checks),
        "failed": [check.type for check in quality.checks if not check.success],
    }
