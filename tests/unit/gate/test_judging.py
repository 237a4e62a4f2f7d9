"""Where a run is judged, and how it is measured: chosen by policies, sink and estimate, and said with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice import Stream, sinks, sources
from sluice.amounts import known
from sluice.errors import DeclarationError
from sluice.gate.judging import choose_judging
from sluice.plan import Judging, PlannedBatch, SourceRange
from sluice.project import Project
from sluice.quality.suite import Suite
from sluice.sinks.contract import Sink
from sluice.storage import Storage
from tests.builders import edit_commit, make_delta
from tests.unit.quality.suites import row, suite

FILES, FUNCTION, CONSOLE = sinks.files("out", format="json"), sinks.foreach_batch("jobs:write"), sinks.console()
DELTA, NEW = sinks.delta("lake"), sinks.delta("new")
OPTIMISED = sinks.delta("new", optimize_write=True)


def check(policy: str, column: str = "id") -> dict[str, Any]:
    return row("expect_column_values_to_not_be_null", policy=policy, column=column)


def choose(root: Path, sink: Sink, *policies: str, master: str = "local[2]", rows: int = 0, **meta: Any) -> Judging:
    """The choice for a batch of so many rows, and a compiled check of each policy."""
    checks = [check(policy, f"c{number}") for number, policy in enumerate(policies)]
    return choose_for(root, sink, suite(*checks, **meta), master=master, rows=rows)


def choose_for(root: Path, sink: Sink, checked: Suite, *, master: str = "local[2]", rows: int = 0) -> Judging:
    """The choice for a suite, and a batch of so many rows."""
    make_delta(root / "lake", [1])
    project = Project(str(root), "p", str(root / "home"), (), (), spark_master=master)
    numbers = {"n": sources.files("in", format="json", schema="id int")}
    stream = project.resolve(
        Stream(name="s", sources=numbers, transform="tests.builders:anything", sink=sink, quality="s.json")
    )
    batch = PlannedBatch(0, "data", 0, {"n": SourceRange(None, "x", known(rows=rows))})
    return choose_judging(project, stream, checked, (batch,), storage=Storage())


@pytest.mark.parametrize(
    ("sink", "policies", "master", "where", "measured"),
    [
        (DELTA, ("fail",), "local[2]", "publish", "observe"),
        (DELTA, ("drop",), "local[2]", "publish", "observe"),
        (DELTA, ("warn",), "local[2]", "write", "observe"),
        (DELTA, ("quarantine",), "local[2]", "cache", "afterwards"),
        (NEW, ("fail",), "local[2]", "publish", "observe"),
        (FUNCTION, ("warn",), "local[2]", "cache", "afterwards"),
        (FILES, ("fail",), "local[2]", "write", "observe"),
        (CONSOLE, ("warn",), "local[2]", "write", "observe"),
        (DELTA, ("fail",), "sc://localhost:1", "write", "observe"),
    ],
)
def test_chosen(  # noqa: PLR0917 - a table
    tmp_path: Path, sink: Sink, policies: tuple[str, ...], master: str, where: str, measured: str
) -> None:
    """By what the policies ask for, and what the sink can do."""
    chosen = choose(tmp_path, sink, *policies, master=master)
    assert (chosen.where, chosen.measured) == (where, measured)
    assert chosen.reason


def test_a_batch_whose_rows_nobody_counted(tmp_path: Path) -> None:
    """One that was planned before, for one: there is nothing to estimate from."""
    assert choose(tmp_path, DELTA, "fail").reason.endswith("for the plan does not tell how many rows come")
    assert "to observe 9 rows" in choose(tmp_path, DELTA, "fail", rows=9).reason


def feed(table: Path) -> None:
    rows = pa.table({"id": [1]})
    write_deltalake(table, rows, configuration={"delta.enableChangeDataFeed": "true"})


def constraint(table: Path) -> None:
    make_delta(table, [1])
    DeltaTable(table).alter.add_constraint({"positive": "id > 0"})


def no_nulls(table: Path) -> None:
    write_deltalake(table, pa.table([[1]], pa.schema([pa.field("id", pa.int64(), nullable=False)])))


def partitions_of_doubles(table: Path) -> None:
    write_deltalake(table, pa.table({"id": [1], "share": [0.5]}), partition_by=["share"])


def row_tracking(table: Path) -> None:
    make_delta(table, [1])
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    edit_commit(table, 0, features, action="protocol")


@pytest.mark.parametrize(
    ("make", "obstacle"),
    [
        (feed, "`delta.enableChangeDataFeed`, which only Spark heeds"),
        (constraint, "only Spark heeds"),
        (no_nulls, "`id` takes no nulls"),
        (partitions_of_doubles, "partitioned by `share`, of type double"),
        (row_tracking, "features that only Spark heeds (domainMetadata, rowTracking)"),
    ],
)
def test_a_table_that_needs_spark_s_own_writer(tmp_path: Path, make: Callable[[Path], None], obstacle: str) -> None:
    """Nothing is published there by a commit of metadata: the batch is kept and judged, and the plan says why."""
    make(tmp_path / "odd")
    odd = sinks.delta("odd")

    chosen = choose(tmp_path, odd, "fail")

    assert (chosen.where, chosen.measured) == ("cache", "afterwards")
    assert obstacle in chosen.reason
    with pytest.raises(DeclarationError, match="`gate` is `publish`, but"):
        choose(tmp_path, odd, "fail", gate="publish")


def test_an_option_that_needs_spark_s_own_writer(tmp_path: Path) -> None:
    """An option of the sink that a commit of metadata can't heed."""
    make_delta(tmp_path / "lake", [1])
    chosen = choose(tmp_path, sinks.delta("lake", optimize_write=True), "fail")

    assert chosen.where == "cache"
    assert "the option `optimizeWrite`" in chosen.reason
    assert choose(tmp_path, sinks.delta("new", user_metadata="mine"), "fail").where == "publish"


def test_by_estimate(tmp_path: Path) -> None:
    """Many checks of many rows are cheaper to measure afterwards, where the sink gives the rows back."""
    many = ("fail",) * 40

    assert choose(tmp_path, DELTA, *many, rows=1_000).measured == "observe"
    reread = choose(tmp_path, DELTA, *many, rows=100_000_000)
    assert reread.measured == "afterwards"
    assert "100,000,000 rows" in reread.reason
    assert choose(tmp_path, FILES, *many, rows=100_000_000).measured == "observe"
    assert choose(tmp_path, DELTA, "drop", *many, rows=100_000_000).measured == "observe"


def test_only_what_is_measured_is_estimated(tmp_path: Path) -> None:
    """Checks of columns, and those that are read again, cost nothing; rules about history do."""
    unmeasured = [row("expect_column_to_exist", policy="fail", column=f"c{number}") for number in range(40)]
    unmeasured += [row("expect_column_values_to_be_unique", policy="fail", column=f"c{number}") for number in range(40)]
    sketched = [
        row(
            "expect_column_unique_value_count_to_be_between",
            meta={"sluice": {"approximate": True}},
            column=f"c{number}",
        )
        for number in range(40)
    ]
    old = [{"metric": "freshness", "column": f"c{number}", "max_value": 1, "policy": "fail"} for number in range(40)]

    for checks, history, measured in (
        ([*unmeasured, check("fail")], [], "observe"),
        (sketched, [], "afterwards"),
        ([check("fail")], old, "afterwards"),
    ):
        assert choose_for(tmp_path, DELTA, suite(*checks, history=history), rows=100_000_000).measured == measured


def test_the_suite_may_say_otherwise(tmp_path: Path) -> None:
    """As far as the sink can."""
    assert choose(tmp_path, DELTA, "fail", gate="cache").where == "cache"
    chosen = choose(tmp_path, DELTA, "fail", gate="write", measured="pass")
    assert (chosen.where, chosen.measured) == ("write", "afterwards")
    assert "as the suite says" in chosen.reason


@pytest.mark.parametrize(
    ("sink", "policy", "meta", "master", "problem"),
    [
        (FILES, "fail", {"gate": "publish"}, "local[2]", "a files sink can't publish"),
        (FILES, "fail", {"gate": "cache"}, "local[2]", "a files sink publishes what it writes"),
        (OPTIMISED, "fail", {"gate": "publish"}, "local[2]", "heeds the option `optimizeWrite`"),
        (DELTA, "quarantine", {"gate": "write"}, "local[2]", "`quarantine` needs `cache`"),
        (FUNCTION, "fail", {"gate": "write"}, "local[2]", "may read it more than once"),
        (DELTA, "fail", {"gate": "cache"}, "sc://localhost:1", "over Spark Connect"),
        (FUNCTION, "warn", {}, "sc://localhost:1", "may read a batch twice"),
        (DELTA, "fail", {"gate": "cache", "measured": "observe"}, "local[2]", "`cache` judges a batch before any"),
        (DELTA, "quarantine", {"measured": "observe"}, "local[2]", "`cache` judges a batch before any"),
        (FUNCTION, "warn", {"measured": "observe"}, "local[2]", "`cache` judges a batch before any"),
        (DELTA, "drop", {"measured": "pass"}, "local[2]", "some rows are not written"),
        (FILES, "warn", {"measured": "pass"}, "local[2]", "does not tell what a batch wrote"),
        (FILES, "quarantine", {}, "local[2]", "can't be written twice"),
        (DELTA, "quarantine", {}, "sc://localhost:1", "Spark Connect can't split a batch"),
    ],
)
def test_refused(  # noqa: PLR0917 - a table
    tmp_path: Path, sink: Sink, policy: str, meta: dict[str, str], master: str, problem: str
) -> None:
    """With what stands in the way."""
    with pytest.raises(DeclarationError, match=problem):
        choose(tmp_path, sink, policy, master=master, **meta)
