"""What Spark says of a declaration is told with its own words or condition, the line that it is about, and a remedy."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError
from sluice.sources.other import OtherSource
from sluice.spark.first_batch_check import first_batch_checked
from sluice.spark.query import build_query
from tests.spark import catalogue_transforms
from tests.spark.lab import Lab, write_numbers

pytestmark = pytest.mark.spark

LINE = "streams/catalogue.py:7"
FILE = catalogue_transforms.__file__
OF_TRANSFORMS = {
    ("negative_delay", "append"): "requirement failed: delay threshold (-1 minute) should not be negative.",
    ("unparsed_delay", "append"): "[CANNOT_PARSE_INTERVAL]",
    ("no_time", "append"): '[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE] The event time `id` has the invalid type "BIGINT"',
    ("within_no_watermark", "append"): "dropDuplicatesWithinWatermark is not supported on streaming DataFrames",
    ("two_windows", "append"): "Multiple time/session window expressions would result in a cartesian product of rows",
    ("long_slide", "append"): "The `slide_duration`(?) must be <= the `window_duration`(?)",
    ("negative_window", "append"): "[DATATYPE_MISMATCH.VALUE_OUT_OF_RANGE]",
    ("late_start", "append"): "[DATATYPE_MISMATCH.PARAMETER_CONSTRAINT_VIOLATION]",
    ("distinct", "append"): "Distinct aggregations are not supported on streaming DataFrames/Datasets.",
    ("of_windows_of_windows", "update"): "Detected pattern of possible 'correctness' issue due to global watermark.",
    ("counts", "append"): "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append.",
    ("plain", "complete"): "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: complete.",
    ("ordered", "append"): "Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated",
    ("limited", "update"): "Limits are not supported on streaming DataFrames/Datasets in Update output mode",
    ("looked_at", "append"): "Queries with streaming sources must be executed with writeStream.start()",
    ("writing", "append"): "[WRITE_STREAM_NOT_ALLOWED] `writeStream` can be called only on streaming",
    ("anti", "append"): "LeftAnti joins with a streaming DataFrame/Dataset on the right are not supported",
    ("outer", "append"): "is not supported without a watermark in the join keys, or a watermark on the nullable side",
    ("outer", "update"): "LeftOuter join between two streaming DataFrames/Datasets is not supported in Update output",
    ("crossed", "append"): "Stream-stream join without equality predicate is not supported.",
    ("outer_of_a_table", "append"): "RightOuter join with a streaming DataFrame/Dataset on the left and a static",
    ("kept_in_complete", "append"): "The output mode of function should be append or update",
    ("kept_in_append", "update"): "applyInPandasWithState in append mode is not supported with Update output mode",
    ("timeouts_without_watermark", "append"): "using '[Dataset/DataFrame].withWatermark()' for using event-time",
}
OF_SOURCES = [
    (sources.other("rate", schema="n int"), "RateStreamProvider source does not support user-specified schema."),
    (sources.other("rate", rowsPerSecond=0), "Invalid value '0'. The option 'rowsPerSecond' must be positive"),
    (sources.other("socket", port=1), 'Set a host to read from with option("host", ...).'),
    (
        sources.other("hive"),
        "Hive data source can only be used with tables, you can not read files of Hive data source directly.",
    ),
    (sources.other("jdbc", url="jdbc:h2:mem:"), "Data source jdbc does not support streamed reading"),
    (sources.other("no.such"), "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: no.such."),
]
IN_BATCHES = [("too_early", "[INVALID_TIMEOUT_TIMESTAMP]"), ("without_timeouts", "[CANNOT_WITHOUT]")]


def declared(transform: str, **changes: Any) -> Stream:
    function = getattr(catalogue_transforms, transform)
    source = sources.files("in", format="json", schema="id bigint")
    known: dict[str, Any] = {
        "name": "catalogue",
        "sources": dict.fromkeys(inspect.signature(function).parameters, source),
        "transform": f"{catalogue_transforms.__name__}:{transform}",
        "sink": sinks.noop(),
        "declared_at": LINE,
    }
    return Stream(**known | changes)


def refused(lab: Lab, stream: Stream) -> DeclarationError:
    """What check says of a stream that has not run yet, and what a run says before it plans."""
    project = lab.project
    resolved = project.resolve(stream)

    def check() -> None:
        query = build_query(project, resolved, lab.spark, {})
        with first_batch_checked(query, project.conf_of(resolved)):
            pass

    with pytest.raises(DeclarationError) as told:
        check()
    return told.value


def is_within(place: str, function: str) -> bool:
    """Whether a place begins with a line of a function of the module."""
    lines, first = inspect.getsourcelines(getattr(catalogue_transforms, function))
    found = re.match(rf"{re.escape(FILE)}:(\d+)", place)
    return found is not None and first <= int(found[1]) < first + len(lines)


@pytest.mark.parametrize(("transform", "mode"), OF_TRANSFORMS)
def test_a_transform(lab: Lab, transform: str, mode: str) -> None:
    """Spark's words, a line of the transform, and what to change."""
    (lab.root / "in").mkdir()
    told = refused(lab, declared(transform, output_mode=mode))
    assert OF_TRANSFORMS[transform, mode] in told.problem
    assert is_within(str(told.where), transform)
    assert "transform" in str(told.remedy)


@pytest.mark.parametrize(("source", "words"), OF_SOURCES)
def test_a_source(lab: Lab, source: OtherSource, words: str) -> None:
    """Spark's words, the line of the stream, and what to change."""
    told = refused(lab, declared("plain", sources={"numbers": source}))
    assert words in told.problem
    assert str(told.where).startswith(f"{LINE}: stream `catalogue`, ")
    assert "declaration" in str(told.remedy)


def test_a_sink(lab: Lab) -> None:
    """Spark's words, the line of the stream, and what to change."""
    (lab.root / "in").mkdir()
    told = refused(lab, declared("plain", sink=sinks.other("hive")))
    assert "you can not write files of Hive data source directly." in told.problem
    assert told.where == f"{LINE}: stream `catalogue`, sink"
    assert "correct the format" in str(told.remedy)


@pytest.mark.parametrize(("transform", "condition"), IN_BATCHES)
def test_a_function_of_state(lab: Lab, transform: str, condition: str) -> None:
    """The condition, and the line of the function that called pyspark; what it was called with is not told."""
    write_numbers(lab.root / "in", 2)
    with pytest.raises(BatchFailedError) as told:
        lab.run(declared(transform))
    assert f": {condition} ? at {FILE}:" in told.value.problem
    place = told.value.problem.partition(f"{condition} ? at ")[2]
    assert is_within(place, f"_{transform}")
    assert str(told.value.where).startswith(f"{LINE}: stream `catalogue`, ")
    assert "mend the cause" in str(told.value.remedy)


def test_a_function_of_batches(lab: Lab) -> None:
    """Spark's condition, and the line that has raised."""
    write_numbers(lab.root / "in", 1)
    sink = sinks.foreach_batch(f"{catalogue_transforms.__name__}:fails")
    with pytest.raises(BatchFailedError) as told:
        lab.run(declared("plain", sink=sink))
    assert "[FOREACH_BATCH_USER_FUNCTION_ERROR] ValueError: ? at " in told.value.problem
    assert is_within(told.value.problem.partition("? at ")[2], "fails")
    assert str(told.value.where).startswith(f"{LINE}: stream `catalogue`, ")
