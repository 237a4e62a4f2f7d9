"""Contracts of sources: checked when a run is planned, with what the source tells of its columns without a JVM."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from sluice import Stream, sinks, sources
from sluice.delta_log.table import spark_columns
from sluice.errors import ContractError, DeclarationError
from sluice.plan import Plan
from sluice.planning.verdict import Request, plan_stream
from sluice.project import Project
from sluice.running.preparation import prepare_run
from sluice.sources.parquet_columns import parquet_columns
from sluice.storage import Storage
from tests.remedies import read_remedy
from tests.unit.quality.suites import document, row

ROWS = pa.table({"id": pa.array([1], pa.int64()), "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)])})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(str(tmp_path), "p", str(tmp_path / "home"), (), (), spark_master="local")


def about(source: str, kind: str, policy: str = "fail", **kwargs: Any) -> dict[str, Any]:
    """An expectation about the columns of a source."""
    return row(kind, meta={"sluice": {"source": source, "policy": policy}}, **kwargs)


def plan(project: Project, source: sources.files, *contracts: dict[str, Any]) -> Plan:
    return plan_stream(project, request(project, source, *contracts))


def request(project: Project, source: Any, *contracts: dict[str, Any]) -> Request:
    Path(project.root, "suite.json").write_bytes(document(*contracts))
    stream = Stream(
        name="s",
        sources={"n": source},
        transform="tests.builders:anything",
        sink=sinks.delta("out"),
        quality="suite.json",
    )
    return Request(project.resolve(stream))


def from_parquet(project: Project, table: pa.Table = ROWS, name: str = "a.parquet") -> Any:
    folder = Path(project.root, "in", name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, folder)
    return sources.files("in", format="parquet", schema="id bigint, at timestamp")


def from_delta(project: Project) -> Any:
    write_deltalake(str(Path(project.root, "in")), ROWS)
    return sources.delta("in")


def from_json(project: Project) -> Any:
    Path(project.root, "in").mkdir()
    Path(project.root, "in", "a.json").write_text('{"id": 1}')
    return sources.files("in", format="json", schema="id bigint, at timestamp")


KEPT = [
    about("n", "expect_column_to_exist", column="at"),
    about("n", "expect_column_values_to_be_of_type", column="id", type_="LongType"),
    about("n", "expect_table_columns_to_match_set", column_set=["at", "id"]),
]
BROKEN = {
    "a column is missing": about("n", "expect_column_to_exist", column="name"),
    "another type": about("n", "expect_column_values_to_be_of_type", column="id", type_="StringType"),
    "the type of none": about("n", "expect_column_values_to_be_of_type", column="ids", type_="LongType"),
    "another set": about("n", "expect_table_columns_to_match_set", column_set=["id"]),
    "another number": about("n", "expect_table_column_count_to_equal", value=3),
}


@pytest.mark.parametrize("make", [from_parquet, from_delta, from_json])
def test_a_contract_that_is_kept(project: Project, make: Any) -> None:
    """Nothing is said of it; it is no check of the result."""
    made = plan(project, make(project), *KEPT)
    assert (made.verdict, made.problem, made.warnings) == ("run", None, ())
    assert made.quality is not None
    assert made.quality.checks == 0


@pytest.mark.parametrize("make", [from_parquet, from_delta, from_json])
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_contract_refuses(project: Project, make: Any, case: str) -> None:
    """The plan says which one and what the columns are; a run is refused with the exit code of quality."""
    source = make(project)
    made = plan(project, source, BROKEN[case], *KEPT)

    assert (made.verdict, made.batches, made.quality) == ("refuse", (), None)
    problem = read_remedy(made.problem, "CONTRACT_BROKEN", "let the source be as it was, or correct the contract")
    assert BROKEN[case]["type"] in problem.cause
    with pytest.raises(ContractError) as refused:
        prepare_run(project, request(project, source, BROKEN[case]))
    assert refused.value.exit_code == 4
    (record,) = Path(project.home, "s", "runs").glob("*.json")
    assert json.loads(record.read_bytes())["status"] == "refused"
    assert not Path(project.root, "out").exists()
    assert plan(project, source, *KEPT).verdict == "run"


def test_a_contract_may_only_warn(project: Project) -> None:
    """The run goes on, and its plan has the warning."""
    made = plan(project, from_delta(project), about("n", "expect_column_to_exist", "warn", column="name"))
    assert made.verdict == "run"
    assert [warning.code for warning in made.warnings] == ["CONTRACT_BROKEN"]


def test_the_newest_file_counts(project: Project) -> None:
    """Of Parquet, where every file may have columns of its own, the last that is planned is looked at."""
    from_parquet(project)
    source = from_parquet(project, ROWS.rename_columns(["id", "moment"]), "b.parquet")
    made = plan(project, source, about("n", "expect_column_to_exist", column="at"))
    assert made.problem is not None
    assert "id, moment" in made.problem.cause or "`at`" in made.problem.cause


def test_nothing_is_looked_at_when_there_is_nothing_to_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle tick does not even read the suite."""
    Path(project.root, "in").mkdir()
    asked = request(project, sources.files("in", format="parquet", schema="id bigint"), BROKEN["another number"])
    monkeypatch.setattr("sluice.planning.checked_declaration.declared_suite", lambda *_, **__: pytest.fail("read"))
    assert plan_stream(project, asked).verdict == "skip"


@pytest.mark.parametrize(
    ("contract", "message"),
    [
        (about("m", "expect_column_to_exist", column="at"), "did you mean `n`|the sources are: n"),
        (about("n", "expect_column_values_to_not_be_null", column="at"), "only in an expectation about columns"),
        (about("n", "expect_column_values_to_be_of_type", column="id", type_="Long"), "Spark has no type `Long`"),
        ({**KEPT[0], "meta": {"sluice": {"source": 3}}}, "`source` is 3"),
    ],
)
def test_a_contract_that_can_not_be(project: Project, contract: dict[str, Any], message: str) -> None:
    """Refused as any other error of a suite is, with its place."""
    with pytest.raises(DeclarationError, match=message):
        plan(project, from_delta(project), contract)


def test_the_same_expectation_of_both(project: Project) -> None:
    """About the source and about the result, it is no repetition."""
    of_result = row("expect_column_to_exist", policy="fail", column="at")
    made = plan(project, from_delta(project), KEPT[0], of_result)
    assert made.quality is not None
    assert made.quality.checks == 1


def test_types_of_tables_and_of_files(tmp_path: Path) -> None:
    """Both tell them as Spark does, nested ones too."""
    nested = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    table = pa.table(
        {
            "tiny": pa.array([1], pa.int8()),
            "small": pa.array([1], pa.int16()),
            "price": pa.array([None], pa.decimal128(10, 2)),
            "day": pa.array([None], pa.date32()),
            "ratio": pa.array([1.0], pa.float32()),
            "raw": pa.array([b""], pa.binary()),
            "nested": pa.array([None], nested),
            "at": pa.array([None], pa.timestamp("us", tz="UTC")),
        }
    )
    expected = {
        "tiny": "tinyint",
        "small": "smallint",
        "price": "decimal(10,2)",
        "day": "date",
        "ratio": "float",
        "raw": "binary",
        "nested": "struct<x:int,y:array<string>>",
        "at": "timestamp",
    }
    write_deltalake(str(tmp_path / "table"), table)
    file = tmp_path / "year=2026" / "a.parquet"
    file.parent.mkdir()
    parquet.write_table(table, file)

    assert spark_columns(DeltaTable(str(tmp_path / "table"))) == expected
    assert parquet_columns(file.as_uri(), str(tmp_path), storage=Storage()) == {**expected, "year": "string"}
