"""Names of columns that are most likely mistakes in writing, of a table that is not there yet."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice.planning.verdict import Request, plan_stream
from sluice.project import find_project
from tests.builders import put
from tests.remedies import read_remedy
from tests.unit.quality.suites import document, row

DECLARED = """
from sluice import Stream, sinks, sources
visits = Stream(
    name="visits",
    sources={{"visits": sources.files("in", format="json", schema="id bigint, visited_at timestamp")}},
    transform="jobs.visits:visits",
    sink=sinks.delta("lake", {options}),
    interval_column={interval_column!r},
    quality={suite!r},
)
"""
TRANSFORM = """
from jobs.days import DAY
def visits(visits):
    return visits.selectExpr("*", "to_date(visited_at) AS visit_date", f"weekday(visited_at) AS {DAY}")
"""


def warned(
    root: Path,
    partition_by: list[str],
    interval_column: str | None = None,
    *,
    options: str = "",
    suite: str | None = None,
    more: bytes = b"",
) -> list[tuple[str, str]]:
    """What a plan warns of: the cause, and the remedy."""
    put(root / "sluice.toml", '[project]\nname = "p"\n')
    if not (root / "in").exists():
        put(root / "in" / "1.json", '{"id": 1}')
    put(root / "jobs" / "visits.py", TRANSFORM.encode() + more)
    put(root / "jobs" / "days.py", 'DAY = "visit_weekday"')
    put(
        root / "streams" / "s.py",
        DECLARED.format(
            options=options or f"partition_by={partition_by!r}", interval_column=interval_column, suite=suite
        ),
    )
    project = find_project(str(root))
    plan = plan_stream(project, Request(project.stream("visits")))
    assert plan.verdict == "run"
    return [(found.cause, found.remedy) for found in plan.warnings if found.code == "COLUMN_NOT_NAMED"]


@pytest.mark.parametrize("column", ["visit_date", "VISIT_DATE", "id", "visit_weekday"])
def test_columns_that_something_names(tmp_path: Path, column: str) -> None:
    """A source has them, or the transform, or a module that it imports, names them."""
    assert warned(tmp_path, [column]) == []


@pytest.mark.parametrize("column", ["_change_type", "größe"])
def test_columns_of_which_the_text_may_not_tell(tmp_path: Path, column: str) -> None:
    """Those that Spark adds, and letters that a text may spell otherwise."""
    assert warned(tmp_path, [column]) == []


@pytest.mark.parametrize(
    "text",
    [
        b"import importlib\n",
        b"import pathlib\nSQL = (pathlib.Path(__file__).parent / 'visits.sql').read_text()\n",
        b"SQL = open('q.txt').read()\n",
        b"ALL = 's.*'\n",
        b"# gr\xf6\xdfe\n",
        b"# " + b"x" * 1_000_000,
    ],
)
def test_texts_that_do_not_tell_all(tmp_path: Path, text: bytes) -> None:
    """A transform that may have names from elsewhere is not warned of; nor is one that is too long to look through."""
    assert warned(tmp_path, ["visit_dte"], more=text) == []


def test_columns_that_are_folders(tmp_path: Path) -> None:
    """No schema has to name them."""
    put(tmp_path / "in" / "a day=2026-01-02" / "1.json", '{"id": 1}')
    assert warned(tmp_path, ["a day"]) == []


def test_a_mistake_in_writing(tmp_path: Path) -> None:
    """Each is told once, with what is near."""
    ((cause, remedy),) = warned(tmp_path, ["visit_dte"], "visit_dte")
    assert cause == ("the declaration names a column `visit_dte`: no source has it, and the transform does not name it")
    assert remedy == "did you mean `visit_date`?"
    ((_, remedy),) = warned(tmp_path, ["country"])
    assert remedy == "correct the name; `sluice check` asks Spark"


def test_the_remedy(tmp_path: Path) -> None:
    """Done as it says, nothing is warned of, and where the table is there, its columns are compared."""
    warned(tmp_path, ["country"])
    project = find_project(str(tmp_path))
    (warning,) = plan_stream(project, Request(project.stream("visits"))).warnings
    read_remedy(warning, "COLUMN_NOT_NAMED", "correct the name")
    assert warned(tmp_path, ["visit_date"]) == []
    write_deltalake(str(tmp_path / "lake"), pa.table({"id": [1], "country": ["de"]}), partition_by=["country"])
    assert warned(tmp_path, ["country"]) == []


SINKS = {
    "merge_on": ('merge_on=["id", "visiter"]', "visiter"),
    "keys": ('changes=sinks.changes(keys=["idd"], sequence_by="visited_at")', "idd"),
    "sequence": ('changes=sinks.changes(keys=["id"], sequence_by="visited")', None),
    "another sequence": ('changes=sinks.changes(keys=["id"], sequence_by="left_at")', "left_at"),
    "left out": ('changes=sinks.changes(keys="id", sequence_by="visited_at", except_columns=["op"])', "op"),
    "right": ('changes=sinks.changes(keys=["ID"], sequence_by="VISIT_DATE", except_columns=["visit_weekday"])', None),
}


@pytest.mark.parametrize("kind", SINKS)
def test_columns_of_keyed_sinks(tmp_path: Path, kind: str) -> None:
    """Keys, the order of changes, and what is left out. A name that stands in the text as a part counts as named."""
    words, column = SINKS[kind]
    told = warned(tmp_path, [], options=words)
    assert [cause.split("`")[1] for cause, _ in told] == ([] if column is None else [column])


def test_columns_of_a_suite(tmp_path: Path) -> None:
    """Also where the table is there: the suite may be newer. What speaks of a source is a contract's own."""
    rows = [
        row("expect_column_values_to_not_be_null", column="visit_dte"),
        row("expect_column_values_to_not_be_null", column="visit_date"),
        row("expect_column_values_to_not_be_null", column="größe"),
        row("expect_compound_columns_to_be_unique", column_list=["id", "idd"]),
        row("expect_column_pair_values_to_be_equal", column_A="visited_at", column_B="closed_at.day"),
        row("expect_table_row_count_to_be_between", max_value=9),
    ]
    put(tmp_path / "suite.json", document(*rows))
    for _ in range(2):
        told = warned(tmp_path, [], "visit_date", suite="suite.json")
        assert [cause.split(":")[0] for cause, _ in told] == [
            "the suite checks a column `visit_dte`",
            "the suite checks a column `idd`",
            "the suite checks a column `closed_at`",
        ]
        table = pa.table(
            {"id": [1], "visited_at": [datetime(2026, 1, 1, tzinfo=UTC)], "visit_date": [date(2026, 1, 1)]}
        )
        write_deltalake(str(tmp_path / "lake"), table, mode="overwrite")
