"""What is told of a failure: neither a salt of the transform nor a row, but what, where and why."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluice import Stream, sinks, sources
from sluice.errors import SluiceError
from sluice.runs.record import RunRecords
from sluice_airflow.ui.reading import RunFile
from sluice_airflow.ui.run_view import run_page
from tests.spark import salted_transforms
from tests.spark.lab import Lab, write_files

pytestmark = pytest.mark.spark

SALT, OTHER_SALT, ROW = "hush4canary", "psst5canary", "r0wcanary"
FILE = salted_transforms.__file__


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("type_mismatch", ['"(concat(?, id) AND id)"', '"BOOLEAN", not "BIGINT"', f"{FILE}:"]),
        ("broken_sql", ["PARSE_SYNTAX_ERROR", "line 1, pos 43", f"{FILE}:"]),
        ("broken_expression", ["PARSE_SYNTAX_ERROR", "line 1, pos ", f"{FILE}:"]),
        ("unterminated_sql", ["PARSE_SYNTAX_ERROR", "line 1, pos 19"]),
        ("missing_column", ["`idd` cannot be resolved", "[`id`, `text`]"]),
        ("missing_beside_unnamed", ["`idd` cannot be resolved", "`id`, `***`, `concat("]),
        ("missing_beside_another_salt", ["`idd` cannot be resolved", "`id`, `***`"]),
        ("missing_function", ["UNRESOLVED_ROUTINE", "`shaa`"]),
        ("mixed_types", ["DATATYPE_MISMATCH", '"ARRAY<BIGINT>"', '"BIGINT"']),
        ("bad_cast", ["CAST_INVALID_INPUT", '"STRING" cannot be cast to "BIGINT"', f'"cast" was called from {FILE}:']),
        ("bad_date", ["CANNOT_PARSE_TIMESTAMP", "try_to_date", "22007"]),
        ("bad_pattern", ["INVALID_PARAMETER_VALUE.PATTERN", "regexp_replace"]),
        ("bad_url", ["INVALID_URL", "java.net.URISyntaxException"]),
        ("bad_variant", ["INVALID_VARIANT_GET_PATH"]),
        ("bad_variant_cast", ["INVALID_VARIANT_CAST", '"INT"']),
        ("bad_mode", ["UNSUPPORTED_FEATURE.AES_MODE"]),
        ("raised_error", ["USER_RAISED_EXCEPTION"]),
        ("bad_number", ["ValueError: ?", f"{FILE}:"]),
        ("bad_function", ["ValueError: ?", f"{FILE}:"]),
        ("bad_pandas", ["KeyError: ?", f"{FILE}:"]),
        ("unnamed_column", ["column 2 of the result", "in its name, which Delta does not take"]),
        ("unnamed_twice", ["of the result have one name"]),
        ("wrong_key", ["the transform fails", f"{FILE}:"]),
        ("hostile", ["the transform fails: HostileError", f"{FILE}:"]),
        ("sorted_rows", ["Sorting is not supported on streaming DataFrames"]),
        ("fail_with_a_row", ["ValueError: ?", f"{FILE}:"]),
        ("cast_in_batch", ["CAST_INVALID_INPUT", '"STRING" cannot be cast to "INT"']),
    ],
)
def test_a_failure(lab: Lab, monkeypatch: pytest.MonkeyPatch, function: str, told: list[str]) -> None:
    """The exception, the record and the page say what failed, without the salt and without the row."""
    monkeypatch.setenv("SALT_OF_TEST", OTHER_SALT)
    write_files(lab.root / "land", {"0.json": f'{{"id": 1, "text": "{ROW}"}}'})
    is_sink = function in {"fail_with_a_row", "cast_in_batch"}
    place = f"{salted_transforms.__name__}:"
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("land", format="json", schema="id bigint, text string")},
        transform=place + ("fine" if is_sink else function),
        sink=sinks.foreach_batch(place + function) if is_sink else sinks.delta("out"),
    )

    with pytest.raises(SluiceError) as caught:
        lab.run(stream)

    home = lab.project.stream_home(lab.project.resolve(stream))
    [record] = RunRecords(home).newest(2)
    run, now = RunFile(record.run_id, record), datetime.now(UTC)
    page = repr(run_page("s", run, None, now, owner=None, is_visible=lambda _: True))
    kept = "".join(file.read_text() for file in Path(home.location, "runs").rglob("*") if file.is_file())
    assert record.error is not None
    for text in (str(caught.value), record.error.message, page, kept):
        for secret in (SALT, OTHER_SALT, ROW):
            assert secret not in text
    for words in told:
        assert words in str(caught.value)
        assert words in record.error.message


def test_a_failure_that_nobody_foresaw(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has Spark's words as any other failure's: no literal, and no stack of the JVM."""
    write_files(lab.root / "land", {"0.json": '{"id": 1}'})
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("land", format="json", schema="id bigint")},
        transform=f"{salted_transforms.__name__}:sorted_rows",
        sink=sinks.noop(),
    )

    def fail(*_: object) -> None:
        lab.spark.sql(f"SELECT raise_error('{SALT}')").collect()

    monkeypatch.setattr("sluice.running.analysed_query.name_writer", fail)
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        lab.run(stream)
    (record,) = lab.records(stream)
    told = record["error"]["message"]
    assert (record["status"], "USER_RAISED_EXCEPTION" in told) == ("failed", True)
    assert SALT not in told
    assert "JVM stacktrace" not in told
    assert "\n\tat " not in told
