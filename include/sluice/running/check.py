"""`sluice check`: loads every declaration, imports every transform, lets Spark analyse every query. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sluice.auditing.suite_fit import fit_suite
from sluice.errors import DeclarationError, SluiceError
from sluice.extras import is_installed
from sluice.gate.judging import choose_judging
from sluice.planning.begun_stream import as_begun
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.project import Project
from sluice.quality.judgement import failing_columns, quality_failed
from sluice.quality.suite import Suite
from sluice.running.begun_query import Begun, check_fits, check_order
from sluice.running.result_columns import check_result, newest_written
from sluice.running.warm_runs import why_own_query, why_own_sink
from sluice.sources.coded import CodedSource
from sluice.spark.first_batch_check import first_batch_checked
from sluice.spark.java import Work
from sluice.spark.query import Query, build_query
from sluice.spark.served import NotServed, served_session
from sluice.spark.session import found_with_spark
from sluice.storage import Storage
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Finding:
    """What is wrong with one declaration, or that nothing is."""

    stream: str | None
    file: str
    error: SluiceError | None = None


def check_project(project: Project, wanted: str | None = None, *, analyse: bool = True) -> Iterator[Finding]:
    """Check the declarations of a project; yields one finding per stream, and one per file that does not import.

    Args:
        project: What to check.
        wanted: The one stream to check, and nothing else; None for all.
        analyse: Whether Spark is started to analyse the queries.

    Raises:
        DeclarationError: A folder of declarations does not exist.
        UnknownStreamError: No declaration has the wanted name.
    """
    declarations = project.declarations()
    if wanted is not None and wanted not in declarations.names:
        project.stream(wanted)
    for file, error in declarations.unreadable.items() if wanted is None else ():
        yield Finding(None, file, error)
    for name, unusable in declarations.unusable.items():
        if wanted in {None, name}:
            yield Finding(name, unusable.file, unusable.error)
    streams = declarations.usable()
    for name, declared in declarations.streams.items():
        if wanted in {None, name}:
            yield Finding(name, declared.file, _check_stream(project, declared.stream, streams, analyse=analyse))


def _check_stream(
    project: Project, stream: Stream, streams: Mapping[str, Stream], *, analyse: bool
) -> SluiceError | None:
    try:
        declared = CheckedDeclaration.of(project, stream, streams)
        # Without Spark's packages hardly any transform can be imported; its text was read.
        for function in (stream.transform, stream.sink.function) if is_installed("spark") else ():
            project.check_function(function)
        _check_readers(stream)
        storage = project.storage()
        declared.check_table(storage=storage)
        suite = declared.suite
        if suite is not None:
            choose_judging(project, stream, suite, (), storage=storage)
        if analyse:
            found_with_spark(project, stream, partial(_check_query, declared, suite), work=Work(0))
    except SluiceError as exc:
        return exc
    return None


def _check_readers(stream: Stream) -> None:
    """Import the classes of the project that read its sources: a plan does, too."""
    for name, source in stream.sources.items():
        if isinstance(source, CodedSource):
            try:
                source.load()
            except DeclarationError as exc:
                raise exc.at(f"{stream.place}, source `{name}`") from exc


def _check_query(declared: CheckedDeclaration, suite: Suite | None, session: SparkSession) -> None:
    """Raises `NotServed` where a warm Spark tells less than one of its own, of which a run would take that one."""
    project, stream, storage = declared.project, declared.stream, declared.project.storage()
    is_warm = served_session(session) is not None
    if is_warm and (why := why_own_sink(stream.sink)) is not None:
        raise NotServed(why)
    home = project.stream_home(stream)
    record = home.generation(home.current_generation())
    query = build_query(project, as_begun(stream, record), session, {})
    if is_warm and (why := why_own_query(query)) is not None:
        raise NotServed(why)
    begun = None if record is None else Begun.read(stream, home, record)
    if begun is None or begun.is_nothing:
        with first_batch_checked(query, declared.conf):
            pass
    newest = None
    if begun is not None:
        check_order(query, begun)
        # A batch that counts nowhere is done again from nothing.
        if begun.has_written(stream):
            check_fits(query, begun, storage=storage)
        newest = newest_written(begun.checkpoint.committed_id, begun.sink)
    check_result(query, record, newest, declared.conf, storage=storage)
    if suite is not None:
        _check_suite(stream, suite, query, storage)


def _check_suite(stream: Stream, suite: Suite, query: Query, storage: Storage) -> None:
    plan = fit_suite(suite, stream, query.frame, storage=storage)
    judged = failing_columns(plan)
    if judged is not None:
        raise quality_failed(judged, suite, "every run would fail: correct the transform or the suite")
