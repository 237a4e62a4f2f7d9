"""A sink that is edited to another kind, or to another format: refused at once, and taken back, the stream goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.auditing.return_rows import return_rows
from sluice.errors import RefusedError
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from sluice.sinks.memory import batches_of
from tests.spark.lab import Lab, write_numbers
from tests.spark.test_quality_gates import declare_suite, up_to
from tests.spark.test_renamed_streams import DAY

pytestmark = pytest.mark.spark

SINKS = {
    "a Delta table": sinks.delta("table"),
    "files": sinks.files("files", format="parquet"),
    "files of another format": sinks.files("files", format="json"),
    "a table where the files are": sinks.delta("files"),
    "nothing": sinks.noop(),
    "a function": sinks.foreach_batch(f"{__name__}:keep"),
    "memory": sinks.memory("other-kinds"),
}
taken: list[int] = []


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def keep(frame: DataFrame, _batch_id: int) -> None:
    taken.extend(row.id for row in frame.collect())


def numbers(before: str) -> Stream:
    return Stream(
        name="numbers",
        sources={"numbers": sources.files("in", format="json", schema="id bigint")},
        transform=f"{__name__}:same",
        sink=SINKS[before],
    )


def rows(lab: Lab, kind: str) -> list[int]:
    """What is in the sink."""
    match kind:
        case "a Delta table" | "a table where the files are":
            found = [row.id for row in lab.table(SINKS[kind].location or "").collect()]
        case "files":
            found = [row.id for row in lab.spark.read.parquet(str(lab.root / "files")).collect()]
        case "files of another format":
            found = [row.id for row in lab.spark.read.json(str(lab.root / "files")).collect()]
        case "a function":
            found = taken
        case "memory":
            found = [row.id for kept in batches_of("other-kinds").values() for row in kept]
        case _:
            found = [0, 1]
    return sorted(found)


@pytest.mark.parametrize("before", SINKS)
def test_every_pair(lab: Lab, before: str) -> None:
    """Whichever of the two was first."""
    taken.clear()
    declared = numbers(before)
    write_numbers(lab.root / "in", 1)
    lab.run(declared)
    write_numbers(lab.root / "in", 1, first=1)
    for after in SINKS.keys() - {before}:
        edited = replace(declared, sink=SINKS[after])
        if {before, after} == {"a Delta table", "a table where the files are"}:
            continue
        try:
            problem = lab.plan(edited).problem
        except Exception as exc:
            # Files where a table is, and the reverse, are refused by what they are.
            assert "Delta table" in str(exc), (after, exc)  # noqa: PT017 - one of several ways to be refused
            continue
        assert problem is not None, after
        assert problem.code == "SINK_REPLACED", after
        with pytest.raises(RefusedError):
            lab.run(edited)
    assert lab.run(declared).status == "succeeded"
    assert rows(lab, before) == [0, 1]


def test_a_sink_that_nothing_was_written_to(lab: Lab) -> None:
    """As long as no batch was planned, it is any sink."""
    write_numbers(lab.root / "in", 1)
    lab.run(numbers("files"), stop_after=0)
    assert lab.run(numbers("a Delta table")).status == "succeeded"
    assert rows(lab, "a Delta table") == [0]


def test_what_works_beside_runs(lab: Lab) -> None:
    """Backfills and releases say the same."""
    write_numbers(lab.root / "in", 1)
    lab.run(numbers("files"))
    declare_suite(lab, up_to(5, "quarantine"))
    edited = replace(numbers("a Delta table"), quality="suite.json", interval_column="id")
    resolved = lab.project.resolve(edited)
    made = plan_backfill(lab.project, BackfillRequest(resolved, DAY))
    assert made.problem is not None
    assert made.problem.code == "SINK_REPLACED"
    with pytest.raises(RefusedError) as refused:
        return_rows(lab.project, resolved, None, "ada", session=lab.spark)
    assert refused.value.finding.code == "SINK_REPLACED"
