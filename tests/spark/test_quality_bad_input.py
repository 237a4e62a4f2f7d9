"""Suites, quarantines and columns as people get them wrong, or write oddly: one clear message, or right figures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import sinks, sources
from sluice.errors import DeclarationError, QualityFailedError
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.project import find_project
from sluice.running.check import check_project
from tests.spark.lab import Lab, snapshot, write_files, write_numbers
from tests.spark.test_quality_gates import declare_suite, gate_of, ids, largest, stream, up_to
from tests.unit.quality.suites import row

pytestmark = pytest.mark.spark

BEFORE_SPARK = {
    "no JSON": ("{", "does not parse"),
    "unknown expectation": ([row("expect_column_values_to_be_evn", column="id")], "no expectation"),
    "unknown policy": ([up_to(1, "quarantin")], "did you mean `quarantine`"),
    "a regex that can't run": (
        [row("expect_column_values_to_match_regex", column="id", regex="(")],
        "does not compile",
    ),
    "no rows to drop": ([largest(1, "drop")], "there are no rows to drop"),
    "unknown key of the suite": ({"sampel": 3}, "did you mean `sample`"),
    "a sample that is none": ({"sample": 201}, "`sample` is 201"),
    "an unknown gate": ({"gate": "publsh"}, "`gate` is 'publsh'"),
    "a gate that the suite can't have": ({"gate": "cache", "measured": "observe"}, "`cache` judges a batch before any"),
    "unknown measuring": ({"measured": "twice"}, "`measured` is 'twice'"),
    "a rule about history": ({"history": [{"metric": "rows"}]}, "history does not parse"),
}
WITH_SPARK = {
    "missing column": ([row("expect_column_max_to_be_between", column="idd", max_value=1)], "did you mean `id`"),
    "wrong type": (
        [row("expect_column_values_to_be_between", column="id", min_value="2020-01-01")],
        "id",
    ),
    "a length of numbers": ([row("expect_column_value_lengths_to_equal", column="id", value=3)], "id"),
}


def declare(lab: Lab, what: Any) -> None:
    if isinstance(what, str):
        (lab.root / "suite.json").write_text(what)
    elif isinstance(what, dict):
        declare_suite(lab, up_to(1), **what)
    else:
        declare_suite(lab, *what)


@pytest.mark.parametrize("case", BEFORE_SPARK)
def test_a_wrong_suite_is_refused_when_a_run_is_planned(lab: Lab, case: str) -> None:
    """`sluice plan` says it, and `sluice run` says the same; nothing is written."""
    what, message = BEFORE_SPARK[case]
    declare(lab, what)
    write_numbers(lab.root / "land", 1)
    before = snapshot(lab.root)

    for work in (lab.plan, lab.run):
        with pytest.raises(DeclarationError) as refused:
            work(stream())
        assert message in str(refused.value)
        assert str(lab.root / "suite.json") in str(refused.value)
    assert snapshot(lab.root) == before


@pytest.mark.parametrize("case", WITH_SPARK)
def test_a_suite_that_does_not_fit_is_refused_before_a_row_is_read(lab: Lab, case: str) -> None:
    """The columns of the result are known once Spark has analysed the query; the checkpoint is not begun."""
    what, message = WITH_SPARK[case]
    declare(lab, what)
    write_numbers(lab.root / "land", 1)

    with pytest.raises(DeclarationError) as refused:
        lab.run(stream())

    assert message in str(refused.value)
    assert "expectation 1" in str(refused.value)
    assert not (lab.root / "out").exists()
    assert not lab.checkpoint(stream()).exists()
    assert gate_of(lab) is None
    (failed,) = lab.records(stream())
    assert (failed["status"], failed["error"]["type"]) == ("failed", "DeclarationError")


_DECLARATION = """
from sluice import Stream, sinks, sources
land = sources.files("land", format="json", schema="id bigint", max_files_per_batch=1)
s = Stream(
    name="s", sources={"numbers": land}, transform="made:numbers", sink=sinks.delta("out"), quality="suite.json"
)
"""


@pytest.mark.parametrize("case", ["no JSON", "missing column", "wrong type", "a column that must be there", "fine"])
def test_check_compiles_the_suite(monkeypatch: pytest.MonkeyPatch, lab: Lab, case: str) -> None:
    """`sluice check` finds what every run would fail with, by the columns of the analysed query."""
    known = {
        **BEFORE_SPARK,
        **WITH_SPARK,
        "a column that must be there": ([row("expect_column_to_exist", policy="fail", column="x")], "every run"),
        "fine": ([up_to(1)], None),
    }
    what, message = known[case]
    declare(lab, what)
    (lab.root / "land").mkdir()
    (lab.root / "sluice.toml").write_text('[project]\nname = "checked"\nstreams = ["streams"]\n')
    (lab.root / "streams").mkdir()
    (lab.root / "streams" / "s.py").write_text(_DECLARATION)
    (lab.root / "made.py").write_text("def numbers(numbers):\n    return numbers\n")
    monkeypatch.setattr("sluice.spark.session.opened_session", lambda *_, **__: nullcontext(lab.spark))
    monkeypatch.syspath_prepend(str(lab.root))

    (found,) = check_project(find_project(str(lab.root)))

    assert (found.error is None) == (message is None)
    assert message is None or message in str(found.error)


def _in_table(lab: Lab, **columns: str) -> Callable[[], None]:
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return lambda: lab.spark.createDataFrame([], ddl).write.format("delta").save(str(lab.root / "out_quarantine"))


_OURS = {"_failed_expectations": "array<string>", "_run_id": "string", "_batch_id": "bigint"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": "bigint"}, "no quarantine: it has no column `_failed_expectations`"),
        ({"id": "string", **_OURS}, "id: string in the table, bigint in the result"),
        ({"id": "bigint", **_OURS, "_batch_id": "string"}, "`_batch_id` is string"),
        (_OURS, "id: not in the table, bigint in the result"),
    ],
)
def test_a_foreign_quarantine_is_refused(lab: Lab, columns: dict[str, str], message: str) -> None:
    """Nothing is written into a table that is not this stream's quarantine."""
    _in_table(lab, **columns)()
    declare_suite(lab, up_to(1, "quarantine"))
    write_numbers(lab.root / "land", 2)

    with pytest.raises(DeclarationError) as refused:
        lab.run(stream())

    assert message in str(refused.value)
    assert not (lab.root / "out").exists()
    assert lab.table("out_quarantine").count() == 0


def test_a_quarantine_takes_a_new_column_when_it_is_let(lab: Lab) -> None:
    """A column that the quarantine does not have comes by `schema_evolution`."""
    _in_table(lab, **_OURS)()
    declare_suite(lab, up_to(0, "quarantine"))
    write_numbers(lab.root / "land", 2)

    lab.run(stream(quarantine=sinks.delta("out_quarantine", schema_evolution="add")))

    assert (ids(lab), ids(lab, "out_quarantine")) == ([0], [1])


_OTHERS = """
from sluice import Stream, sinks, sources
n = sources.delta("n")
a = Stream(name="a", sources={"n": n}, transform="made:n", sink=sinks.delta("other"), quality="suite.json")
"""


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("out", "is the sink itself"),
        ("out/refused", "is in the folder of the sink"),
        ("./", "is in the folder of the sink, or has that in its own"),
        ("land/", "source `numbers` reads from where the quarantine is written"),
        ("other", "is the sink of stream `a`"),
        ("other_quarantine", "is the quarantine of stream `a`"),
    ],
)
def test_a_quarantine_is_nothing_else(lab: Lab, path: str, message: str) -> None:
    """Known when the run is planned."""
    declare_suite(lab, up_to(1, "quarantine"))
    (lab.root / "streams").mkdir()
    (lab.root / "streams" / "others.py").write_text(_OTHERS)
    write_numbers(lab.root / "land", 1)
    project = replace(lab.project, stream_folders=(str(lab.root / "streams"),))
    declared = project.resolve(stream(quarantine=sinks.delta(path)))

    with pytest.raises(DeclarationError, match=message):
        plan_stream(project, Request(declared))


def test_unexpected_values_are_kept_when_asked_for(lab: Lab) -> None:
    """As many as `sample` says, the smallest first, of the whole run."""
    declare_suite(lab, up_to(1, "warn"), sample=2)
    write_numbers(lab.root / "land", 2, rows=3)

    record = lab.run(stream())

    assert record.quality is not None
    assert record.quality.checks[0].result["partial_unexpected_list"] == [2, 3]


ODD = ("a.b", "a`b", "ä-ö", "Größe")


def odd(numbers: DataFrame) -> DataFrame:
    """Every other value is null, in columns that are called as few are."""
    value = F.when(F.col("id") % 2 == 0, F.col("id"))
    return numbers.select("id", *(value.alias(name) for name in ODD), F.struct(value.alias("deep")).alias("n"))


def odd_with_spaces(numbers: DataFrame) -> DataFrame:
    return odd(numbers).withColumn("a  b", F.col("n.deep"))


@pytest.mark.parametrize("named", ["a.b", "`a.b`", "`a``b`", "ä-ö", "größe", "n.deep", "N.Deep"])
def test_odd_columns(lab: Lab, named: str) -> None:
    """Dots, backticks, other letters, another case, fields of structs, and nulls in all of them."""
    declare_suite(lab, row("expect_column_values_to_be_between", policy="quarantine", column=named, max_value=3))
    write_numbers(lab.root / "land", 1, rows=6)

    record = lab.run(stream(transform=f"{__name__}:odd"))

    assert ids(lab) == [0, 1, 2, 3, 5]
    assert record.quality is not None
    result = record.quality.checks[0].result
    assert (result["unexpected_count"], result["missing_count"]) == (1, 3)
    (found,) = lab.table("out_quarantine").collect()
    assert found["id"] == 4


def test_a_column_with_spaces(lab: Lab) -> None:
    """Delta takes no such name; files do."""
    declare_suite(lab, row("expect_column_values_to_be_between", policy="drop", column="a  b", max_value=3))
    write_numbers(lab.root / "land", 1, rows=6)

    record = lab.run(stream(transform=f"{__name__}:odd_with_spaces", sink=sinks.files("out", format="json")))

    assert record.quality is not None
    assert (record.quality.dropped, record.quality.rows) == (1, 6)


def test_batches_without_rows(lab: Lab) -> None:
    """Nothing failed in them; through every gate they are committed, and counted as what they are."""
    declare_suite(lab, up_to(1), row("expect_column_mean_to_be_between", policy="fail", column="id", max_value=3))
    write_numbers(lab.root / "land", 1)
    lab.run(stream())
    for number, gate in enumerate(("publish", "cache", "write"), 1):
        write_files(lab.root / "land", {f"empty{number}.json": ""}, first=number)
        declare_suite(lab, up_to(1), gate=gate)
        record = lab.run(stream())
        assert record.quality is not None
        assert (record.quality.verdict, record.quality.rows, record.quality.where) == ("pass", 0, gate)
    assert ids(lab) == [0]


def per_window(numbers: DataFrame) -> DataFrame:
    timed = numbers.select(F.timestamp_seconds("id").alias("at")).withWatermark("at", "1 second")
    return timed.groupBy(F.window("at", "2 seconds")).agg(F.count("*").alias("id")).select("id")


@pytest.mark.parametrize("gate", [{}, {"gate": "cache"}])
def test_rows_that_come_out_later(lab: Lab, gate: dict[str, str]) -> None:
    """A batch that keeps its rows back is not too small: a batch without data brings them in the same run."""
    at_least_one = row("expect_table_row_count_to_be_between", policy="fail", min_value=1)
    windows = stream(transform=f"{__name__}:per_window")
    declare_suite(lab, row("expect_column_values_to_not_be_null", policy="fail", column="id"))
    write_numbers(lab.root / "land", 1)
    lab.run(windows)
    declare_suite(lab, at_least_one, **gate)
    write_numbers(lab.root / "land", 1, first=5)

    record = lab.run(windows)

    assert [(batch.kind, batch.output_rows) for batch in record.batches] == [("data", 0), ("no_data", 1)]
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.rows) == ("pass", 1)
    assert ids(lab) == [1]


@pytest.mark.parametrize("transform", ["counted", "sorted_by_id"])
def test_a_result_that_is_complete_in_every_batch(lab: Lab, transform: str) -> None:
    """The rows of the last batch are the run's, not those of all batches; Spark can't persist a sorted batch."""
    declare_suite(lab, row("expect_table_row_count_to_be_between", policy="fail", max_value=3))
    write_numbers(lab.root / "land", 3)

    record = lab.run(stream(transform=f"{__name__}:{transform}", output_mode="complete"))

    assert len(record.batches) == 3
    assert record.quality is not None
    assert (record.quality.verdict, record.quality.rows, record.quality.where) == ("pass", 3, "cache")
    assert ids(lab) == [0, 1, 2]
    declare_suite(lab, up_to(1, "quarantine"))
    write_numbers(lab.root / "land", 1, first=3)
    with pytest.raises(DeclarationError, match="in output mode `complete` a batch has rows of earlier ones"):
        lab.plan(stream(transform=f"{__name__}:counted", output_mode="complete"))


def counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").count()


def sorted_by_id(numbers: DataFrame) -> DataFrame:
    return counted(numbers).orderBy("id")


def test_what_only_grows_fails_at_the_end_alone(lab: Lab) -> None:
    """The first of three batches has too few rows for the run, and the run has enough; one more run has not."""
    declare_suite(lab, row("expect_table_row_count_to_equal", policy="fail", value=3))
    write_numbers(lab.root / "land", 3)
    assert lab.run(stream()).status == "succeeded"
    write_numbers(lab.root / "land", 1, first=3)

    with pytest.raises(QualityFailedError):
        lab.run(stream())

    assert ids(lab) == [0, 1, 2]


def both(numbers: DataFrame, others: DataFrame) -> DataFrame:
    return numbers.union(others)


def test_two_sources_and_batches_of_sparks_own(lab: Lab) -> None:
    """Rows of both are measured together, also where Spark decides the batches."""
    declare_suite(lab, up_to(100), up_to(11, "quarantine"), largest(11))
    land = {name: sources.files(name, format="json", schema="id bigint") for name in ("numbers", "others")}
    for folder, first in (("numbers", 0), ("others", 10)):
        write_numbers(lab.root / folder, 3, first=first)

    record = lab.run(stream(transform=f"{__name__}:both", sources=land), Limits(strategy="drain"))

    assert (ids(lab), ids(lab, "out_quarantine")) == ([0, 1, 2, 10, 11], [12])
    assert record.quality is not None
    assert (record.quality.rows, record.quality.quarantined) == (6, 1)
