"""A suggested suite holds for the very rows that it was made from, whatever they are."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, functions

from sluice import sinks
from sluice.auditing.suggestion import suggest
from sluice.documents import encode_document
from sluice.errors import DeclarationError
from sluice.quality.compile import compile_suite
from sluice.quality.judgement import judge_run
from sluice.quality.suite import parse_suite
from tests.campaign import in_campaigns
from tests.spark.lab import Lab, write_files, write_numbers
from tests.spark.test_quality_gates import stream

pytestmark = pytest.mark.spark
_DECLARATION = """
from sluice import Stream, sinks, sources
land = sources.files("land", format="json", schema="id bigint")
s = Stream(name="s", sources={"numbers": land}, transform="jobs:same", sink=sinks.delta("out"))
"""
NOW = datetime(2026, 1, 31, tzinfo=UTC)
CENTURY = datetime(1900, 1, 1, tzinfo=UTC).replace(tzinfo=None)
DDL = (
    "carrier string, tail string, code string, `a.b` string, delay int, big bigint, share double, one float, cost "
    "decimal(30,12), day date, at timestamp, local timestamp_ntz, yes boolean, nothing int, tags array<string>,"
    " raw binary, `${x}` int"
)


def suggested(lab: Lab, *, rows: int = 1000, **changes: Any) -> dict[str, Any]:
    resolved = lab.project.resolve(stream(quality=None, **changes))
    return suggest(lab.project, resolved, rows=rows, now=NOW, session=lab.spark)


def kinds(suite: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """The arguments by column and type."""
    return {(row["kwargs"].get("column", ""), row["type"]): row["kwargs"] for row in suite["expectations"]}


def failed(suite: dict[str, Any], frame: DataFrame) -> list[str]:
    """The expectations that do not hold for a DataFrame, measured as a run does."""
    plan = compile_suite(parse_suite(encode_document(suite), source="suggested.json"), dict(frame.dtypes))
    assert not plan.rereads
    aggregates = [functions.expr(measure.sql).alias(measure.name) for measure in plan.measures]
    values = frame.agg(*aggregates).first()
    assert values is not None
    judged = judge_run(plan, [values.asDict()], [], now=NOW)
    return [f"{result.type} {result.kwargs} {result.result}" for result in judged.failed]


def random_rows(seed: int, count: int) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)

    def rare(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    def number() -> float:
        return chance.choice([math.nan, math.inf, -math.inf, -0.0, 1e-300, chance.uniform(-1e6, 1e6)])

    return [
        (
            rare(chance.choice(["AA", "DL", "UA"])),
            f"N{chance.randrange(10**6)}Z",
            "".join(chance.choice("ABCDEF") for _ in range(3)),
            rare(chance.choice(["", "\n", "é", "x" * 40, "1\n"])),
            rare(chance.randrange(-60, 1500)),
            chance.randrange(-(2**63), 2**63),
            rare(number()),
            rare(chance.choice([0.1, math.nan, 3e38])),
            rare(Decimal(chance.randrange(-(10**29), 10**29)).scaleb(-12)),
            rare(date(2013, 1, 1) + timedelta(days=chance.randrange(365))),
            rare(datetime(2013, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(10**15))),
            rare(
                datetime(1900, 1, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(microseconds=chance.randrange(10**15))
            ),
            rare(chance.random() < 0.5),
            None,
            ["a"],
            b"x",
            1,
        )
        for _ in range(count)
    ]


def write_random(lab: Lab, seed: int, count: int) -> None:
    frame = lab.spark.createDataFrame(random_rows(seed, count), DDL)
    frame.write.format("delta").option("delta.columnMapping.mode", "name").save(str(lab.root / "out"))


@pytest.mark.parametrize(("seed", "count"), [(1, 400), (2, 3)])
def test_it_holds_for_its_own_rows(lab: Lab, seed: int, count: int) -> None:
    """Nulls, NaN, infinities, the largest integers, decimals beyond doubles, times with microseconds, odd names."""
    write_random(lab, seed, count)

    suite = suggested(lab)

    assert failed(suite, lab.spark_table("out")) == []
    parsed = parse_suite(encode_document(suite), source="suggested.json")
    assert {expectation.policy for expectation in parsed.expectations} == {"warn"}
    assert all(expectation.meta["notes"]["content"][0] for expectation in parsed.expectations)


def test_what_it_suggests(lab: Lab) -> None:
    """Few values are a set, many have lengths, what is obvious has a pattern; what lacks sometimes has a share."""
    write_random(lab, 3, 400)

    found = kinds(suggested(lab))

    assert found["carrier", "expect_column_values_to_be_in_set"]["value_set"] == ["AA", "DL", "UA"]
    assert 0.7 < found["carrier", "expect_column_values_to_not_be_null"]["mostly"] < 1
    assert found["code", "expect_column_value_lengths_to_equal"]["value"] == 3
    assert found["code", "expect_column_values_to_match_regex"]["regex"] == "^[A-Z]+$"
    assert "mostly" not in found["tail", "expect_column_values_to_not_be_null"]
    assert set(found["delay", "expect_column_values_to_be_between"]) == {"column", "min_value", "max_value"}
    assert set(found["at", "expect_column_values_to_be_between"]) == {"column", "min_value"}
    assert "mostly" in found["one", "expect_column_values_to_be_between"]
    assert not [kind for column, kind in found if column in {"nothing", "${x}"}]
    assert json.loads(json.dumps(suggested(lab, rows=5)))["meta"]["notes"]["content"][0].startswith(
        "Suggested by `sluice quality suggest` from 5 rows of the table"
    )


def test_it_looks_at_the_sources_where_there_is_no_table(lab: Lab) -> None:
    """Through the transform, as a batch; nothing is written."""
    write_numbers(lab.root / "land", 3, rows=4)

    found = kinds(suggested(lab, sink=sinks.noop()))

    assert found["id", "expect_column_values_to_be_between"] == {"column": "id", "min_value": 0, "max_value": 11}
    assert sorted(path.name for path in lab.root.iterdir()) == ["land"]


def test_no_rows(lab: Lab) -> None:
    """Nothing can be said of nothing."""
    write_files(lab.root / "land", {"a.json": ""})
    with pytest.raises(DeclarationError, match="no rows to look at"):
        suggested(lab)


@in_campaigns
def test_the_command_writes_a_suite_to_edit(tmp_path: Path) -> None:
    """The file is one that a stream can declare; a second call leaves it alone."""
    (tmp_path / "sluice.toml").write_text('[project]\nname = "p"\nhome = "home"\n')
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "s.py").write_text(_DECLARATION)
    write_deltalake(tmp_path / "out", pa.table({"id": [1, 2, 3]}))
    output = tmp_path / "suite.json"
    command = [sys.executable, "-m", "sluice", "quality", "suggest", "s", "--output", str(output)]

    first, second = (subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
                     for _ in range(2))  # fmt: skip

    assert first.returncode == 0, first.stderr[-3000:]
    written = parse_suite(output.read_bytes(), source="suite.json")
    assert f"wrote {len(written.expectations)} expectations to {output}" in first.stderr
    assert "expect_column_values_to_not_be_null" in {expectation.type for expectation in written.expectations}
    assert (second.returncode, "is there already" in second.stderr) == (2, True)
