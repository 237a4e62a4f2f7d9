"""Data Docs of runs, as Great Expectations renders them: read back from the pages."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from sluice.errors import DeclarationError, StorageError
from sluice.plan_document import PlanDocument
from sluice.quality.data_docs import write_data_docs
from sluice.runs.record import CheckRecord, QualityRecord, RunRecord


def check(kind: str, result: dict[str, Any], *, success: bool, path: str = "exact", **kwargs: Any) -> dict[str, Any]:
    return {
        "id": kind,
        "type": kind,
        "kwargs": kwargs,
        "policy": "warn",
        "success": success,
        "result": result,
        "path": path,
    }


def record(number: int, *checks: dict[str, Any]) -> RunRecord:
    return RunRecord(
        run_id=f"2026010{number}T000000000Z-0000000{number}",
        stream="departures",
        generation=1,
        planned_at=datetime(2026, 1, number, tzinfo=UTC),
        plan=PlanDocument(),
        status="succeeded",
        quality=QualityRecord(verdict="warn", checks=msgspec.convert(checks, tuple[CheckRecord, ...])),
    )


def words(page: Path) -> str:
    """What a page says, without its markup."""
    text = re.sub(r"(?s)<(script|style).*?</\1>", "", page.read_text("utf-8"))
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def test_every_kind_of_check_is_on_the_page(tmp_path: Path) -> None:
    """Compiled, read again, about history, and not measured: each with its figures, as the record has them."""
    counts = {"element_count": 1234, "unexpected_count": 17, "unexpected_percent": 1.3776337}
    history = {"observed_value": 4321, "details": {"former_runs": 5, "mean": 4000.0}}
    lost = {"details": {"not_measured": "the table does not tell"}}
    run = record(
        1,
        check("expect_column_values_to_be_unique", counts, success=False, path="reread", column="id"),
        check("expect_column_max_to_be_between", {"observed_value": 98765}, success=True, column="id", max_value=1e6),
        check("expect_column_median_to_be_between", lost, success=False, path="reread", column="delay", min_value=1),
        check("sluice_row_count_against_history", history, success=True, last=20, min_value=1.0),
        check("sluice_freshness_against_history", {"observed_value": 12.5}, success=True, last=20, column="at"),
    )

    index = write_data_docs(run, str(tmp_path / "docs"))

    assert index == str(tmp_path / "docs" / "index.html")
    assert Path(index).is_file()
    (page,) = (tmp_path / "docs" / "validations").rglob("*.html")
    said = words(page)
    for part in (
        "17 unexpected values found",
        "of 1,234 total rows",
        "maximum value must be less than or equal to 1,000,000",
        "98,765",
        "row count against runs before: last 20, min_value 1.0",
        "4,321",
        "freshness against runs before",
        "the table does not tell",
        "Status: Failed",
        "Successful Expectations 3",
        run.run_id,
    ):
        assert part.replace(",", "") in said.replace(",", ""), said


def test_another_run_takes_the_place_of_one(tmp_path: Path) -> None:
    """The site is that of the newest run that was asked for."""
    for number in (1, 2):
        run = record(number, check("expect_column_to_exist", {}, success=True, path="schema", column="id"))
        index = write_data_docs(run, str(tmp_path))

    text = Path(index).read_text("utf-8")
    assert ["20260101T000000000Z" in text, "20260102T000000000Z" in text] == [False, True]


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    """Great Expectations would delete what it finds there."""
    (tmp_path / "index.html").write_text("mine")
    run = record(1, check("expect_column_to_exist", {}, success=True, path="schema", column="id"))

    with pytest.raises(DeclarationError, match="other files than Data Docs"):
        write_data_docs(run, str(tmp_path))

    assert [file.name for file in tmp_path.iterdir()] == ["index.html"]


def test_a_run_without_checks_has_no_docs(tmp_path: Path) -> None:
    """Nothing is written, and Great Expectations is not asked."""
    with pytest.raises(DeclarationError, match="has no checks to show"):
        write_data_docs(record(1), str(tmp_path / "docs"))

    assert not (tmp_path / "docs").exists()


@pytest.mark.parametrize("folder", ["file", "s3://bucket/docs"])
def test_a_place_that_is_no_folder_is_refused(tmp_path: Path, folder: str) -> None:
    """Great Expectations itself would make a folder named `s3:`."""
    (tmp_path / "file").touch()
    run = record(1, check("expect_column_to_exist", {}, success=True, path="schema", column="id"))

    with pytest.raises(DeclarationError, match="this machine's disk"):
        write_data_docs(run, folder if "://" in folder else str(tmp_path / folder))


def test_a_disk_that_fails_is_an_error_of_ours(tmp_path: Path) -> None:
    """A folder of the site can't be made, for a file has its name."""
    (tmp_path / "file").touch()
    run = record(1, check("expect_column_to_exist", {}, success=True, path="schema", column="id"))

    with pytest.raises(StorageError, match="Data Docs could not be written"):
        write_data_docs(run, str(tmp_path / "file" / "docs"))


def test_names_and_values_are_no_markup(tmp_path: Path) -> None:
    """Whoever names a column or a suite, or sends a row, writes no page, and no file outside of the folder."""
    hostile = "<script>alert(1)</script>"
    run = record(
        1,
        check(
            "expect_column_values_to_be_in_set",
            {
                "element_count": 9,
                "unexpected_count": 1,
                "unexpected_percent": 11.1,
                "partial_unexpected_list": [hostile],
                "partial_unexpected_counts": [{"value": hostile, "count": 1}],
            },
            success=False,
            column=f"a{hostile}",
            value_set=[f'" onload="{hostile}', "b<c"],
            row_condition=f'col("x{hostile}") < 5',
            condition_parser="great_expectations",
        ),
        check("expect_column_median_to_be_between", {"details": {"not_measured": hostile}}, success=False, column="a"),
    )

    write_data_docs(replace(run, quality=replace(run.quality, suite="../../../up")), str(tmp_path / "docs"))

    pages = list((tmp_path / "docs").rglob("*.html"))
    assert {page.relative_to(tmp_path / "docs").parts[0] for page in pages} == {
        "index.html",
        "validations",
        "expectations",
    }
    assert [page for page in pages if "<script>alert" in page.read_text("utf-8")] == []
    assert [page for page in pages if 'onload="<' in page.read_text("utf-8")] == []
    assert any(hostile in words(page) for page in pages)
