"""What a transform gives that is called: the result, or one for each of several sinks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError, QueryRefusedError
from sluice.foreign_code import error_line, is_failure
from sluice.spark.plan_reader import PlanReader
from sluice.spark.shown_error import spark_message
from sluice.spark.transform import SqlTransform
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def call_transform(transform: Any, frames: Mapping[str, DataFrame], place: str) -> DataFrame:
    """The result of a transform.

    Args:
        transform: The function, or the SQL.
        frames: The sources by name.
        place: Where the transform is, for messages.

    Raises:
        DeclarationError: It fails, or gives something else.
    """
    return _checked(_called(transform, frames, place), frames, place, what="the transform")


def call_for_sinks(
    transform: Any, frames: Mapping[str, DataFrame], place: str, sinks: Collection[str]
) -> dict[str, DataFrame]:
    """The results of a transform by the names of the sinks, in their order.

    Args:
        transform: The function.
        frames: The sources by name: streams, or one batch of each.
        place: Where the transform is, for messages.
        sinks: The names of the sinks.

    Raises:
        DeclarationError: It fails, or gives something else.
    """
    found = _called(transform, frames, place)
    if not isinstance(found, Mapping) or set(found) != set(sinks):
        what = f"a mapping with {', '.join(map(repr, found))}" if isinstance(found, Mapping) else type(found).__name__
        raise DeclarationError(
            f"the transform returns {what}, and the sinks are {', '.join(map(repr, sinks))}",
            where=place,
            remedy="return a result for each: {" + ", ".join(f'"{name}": ...' for name in sinks) + "}",
        )
    return {name: _checked(found[name], frames, place, what=f"for sink `{name}` the transform") for name in sinks}


def check_stream(plans: PlanReader, result: DataFrame, stream: Stream, place: str, what: str, *, remedy: str) -> None:
    """Make sure that Spark runs a result as a stream.

    Raises:
        QueryRefusedError: It does not.
    """
    try:
        plans.check_stream(result, stream.output_mode)
    except Exception as exc:
        raise QueryRefusedError(
            f"Spark does not run {what} as a stream: {spark_message(exc)}", where=place, remedy=remedy
        ) from exc


def _called(transform: Any, frames: Mapping[str, DataFrame], place: str) -> object:
    try:
        result = transform(**frames)
        for found in result.values() if isinstance(result, Mapping) else (result,):
            # A server analyses it only now.
            _ = getattr(found, "isStreaming", None)
    except BaseException as exc:
        if not is_failure(exc):
            raise
        raise DeclarationError(
            f"the transform fails: {spark_message(exc)}",
            where=_line_of(transform, exc) or place,
            remedy="correct the transform",
        ) from exc
    return result


def _checked(result: object, frames: Mapping[str, DataFrame], place: str, *, what: str) -> DataFrame:
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame):
        raise DeclarationError(
            f"{what} returns {type(result).__name__}, not a DataFrame", where=place, remedy="return the result"
        )
    reads_stream = any(frame.isStreaming for frame in frames.values())
    if reads_stream and not result.isStreaming:
        raise DeclarationError(
            f"{what} returns a DataFrame that is no stream",
            where=place,
            remedy="build the result from the sources, without collecting or reading them again",
        )
    if result.isStreaming and not reads_stream:
        raise DeclarationError(
            f"{what} returns a stream for a batch",
            where=place,
            remedy="let it find what it registers by the session of its source: `visits.sparkSession.sql(...)`",
        )
    return result


def _line_of(transform: Any, exc: BaseException) -> str | None:
    """Where in a transform something has failed; None where it does not tell."""
    if isinstance(transform, SqlTransform):
        return transform.line_of(exc)
    code = getattr(transform, "__code__", None)
    return None if code is None else error_line(exc, code.co_filename)
