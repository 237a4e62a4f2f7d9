"""A stream that is declared under another name: refused before anything is written, and every remedy is walked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.auditing.return_rows import return_rows
from sluice.errors import RefusedError
from sluice.interval import Interval
from sluice.planning.verdict import Request, plan_stream
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest, plan_backfill
from sluice.running.runner import run_stream
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files
from tests.spark.power_cuts import Cut, PowerCutError, let_leases_run_out, power_cut
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

DAY = Interval.parse("2026-01-01", "2026-01-02")


def same(landing: DataFrame) -> DataFrame:
    return landing


def stream(name: str = "visits", **changes: Any) -> Stream:
    declared: dict[str, Any] = {
        "sources": {"landing": sources.files("land", format="json", schema="n bigint, day date")},
        "transform": f"{__name__}:same",
        "sink": sinks.delta("out", partition_by=["day"]),
        "interval_column": "day",
        "quality": "suite.json",
    }
    return Stream(name=name, **declared | changes)


def arrive(lab: Lab, *numbers: int) -> None:
    lines = {f"{number:03d}.json": f'{{"n": {number}, "day": "2026-01-01"}}' for number in numbers}
    write_files(lab.root / "land", lines, first=numbers[0])


def allow(lab: Lab, most: int) -> None:
    """Let rows above a number go to the quarantine."""
    check = row("expect_column_values_to_be_between", policy="quarantine", column="n", max_value=most)
    (lab.root / "suite.json").write_bytes(document(check))


def numbers(lab: Lab, table: str = "out") -> list[int]:
    return sorted(found.n for found in lab.table(table).select("n").collect())


def commands(lab: Lab, declared: Stream) -> list[Callable[[], object]]:
    """What works on a stream, and writes, or says what it would write."""
    project, resolved = lab.project, lab.project.resolve(declared)
    return [
        lambda: lab.run(declared),
        lambda: lab.run(declared, run_key="K"),
        lambda: backfill_stream(project, BackfillRequest(resolved, DAY), session=lab.spark),
        lambda: return_rows(project, resolved, None, "ada", session=lab.spark),
    ]


def rename_back(lab: Lab) -> Stream:
    return stream()


def move_the_folder(lab: Lab) -> Stream:
    shutil.move(lab.root / "home" / "visits", lab.root / "home" / "page_visits")
    return stream("page_visits")


def test_everything_is_refused(lab: Lab) -> None:
    """Nothing is written, not even to the home: the folder of the earlier name has to fit there."""
    allow(lab, 4)
    arrive(lab, 0, 1, 5)
    lab.run(stream())
    arrive(lab, 2)

    renamed = stream("page_visits")
    for command in commands(lab, renamed):
        with pytest.raises(RefusedError) as refused:
            command()
        assert refused.value.finding.code == "STREAM_RENAMED"
    assert lab.plan(renamed).verdict == "refuse"
    assert plan_backfill(lab.project, BackfillRequest(lab.project.resolve(renamed), DAY)).verdict == "refuse"
    assert [folder.name for folder in (lab.root / "home").iterdir()] == ["visits"]


@pytest.mark.parametrize(
    ("remedy", "died_at"),
    [
        (rename_back, None),
        (move_the_folder, None),
        (move_the_folder, "commit out_quarantine"),
        *rarely((move_the_folder, "commit out"), (move_the_folder, "commits")),
    ],
)
def test_the_stream_goes_on(lab: Lab, remedy: Callable[[Lab], Stream], died_at: str | None) -> None:
    """Every row is there once, also of a batch that was under way; backfills and releases know what was before."""
    allow(lab, 4)
    arrive(lab, 0, 1, 5)
    lab.run(stream())
    arrive(lab, 2, 6)
    if died_at is not None:
        with pytest.raises(PowerCutError), power_cut(Cut(died_at), lab.root):
            lab.run(stream())
        let_leases_run_out(lab.root / "home")
    with pytest.raises(RefusedError) as refused:
        lab.run(stream("page_visits"))
    read_remedy(refused.value, "STREAM_RENAMED", "declare it as `visits` again; or move .*visits to .*page_visits")

    declared = remedy(lab)
    lab.run(declared)
    assert (numbers(lab), numbers(lab, "out_quarantine")) == ([0, 1, 2], [5, 6])

    arrive(lab, 3)
    assert lab.run(declared).batches[0].batch_id == 2
    allow(lab, 5)
    resolved = lab.project.resolve(declared)
    assert return_rows(lab.project, resolved, None, "ada", session=lab.spark).returned.rows == 1
    done = backfill_stream(lab.project, BackfillRequest(resolved, DAY), session=lab.spark)
    assert (done.status, lab.plan(declared).verdict) == ("succeeded", "skip")
    assert (numbers(lab), numbers(lab, "out_quarantine")) == ([0, 1, 2, 3, 5], [6])


def test_a_sink_of_its_own(lab: Lab) -> None:
    """It is a new stream, which reads everything."""
    allow(lab, 4)
    arrive(lab, 0, 5)
    lab.run(stream())
    lab.run(stream("page_visits", sink=sinks.delta("pages", partition_by=["day"])))
    assert (numbers(lab), numbers(lab, "pages")) == ([0], [0])


def test_rows_that_are_in_the_quarantine_alone(lab: Lab) -> None:
    """The sink is not there yet, and tells nothing."""
    allow(lab, -1)
    arrive(lab, 0, 1)
    lab.run(stream())
    shutil.rmtree(lab.root / "out", ignore_errors=True)
    with pytest.raises(RefusedError) as refused:
        lab.run(stream("page_visits"))
    assert refused.value.finding.code == "STREAM_RENAMED"


def test_a_checkpoint_that_is_elsewhere(lab: Lab) -> None:
    """The folder is moved, then the note in the checkpoint of whose it is is deleted, as each message says."""
    allow(lab, 4)
    arrive(lab, 0, 1)
    lab.run(stream(checkpoint="checkpoint"))
    arrive(lab, 2)
    renamed = stream("page_visits", checkpoint="checkpoint")
    with pytest.raises(RefusedError) as refused:
        lab.run(replace(renamed, checkpoint=None))
    assert refused.value.finding.code == "STREAM_RENAMED"

    move_the_folder(lab)
    with pytest.raises(RefusedError) as refused:
        lab.run(renamed)
    owner = read_remedy(refused.value, "CHECKPOINT_OF_ANOTHER_STREAM", "has moved, delete").remedy.rpartition(" ")[2]
    Path(owner).unlink()
    lab.run(renamed)
    assert numbers(lab) == [0, 1, 2]


def test_a_file_that_was_copied(lab: Lab) -> None:
    """As long as both are declared, both write; once the earlier one is gone, the other has begun and goes on."""
    allow(lab, 4)
    arrive(lab, 0)
    lab.run(stream())
    folder = lab.root / "streams"
    folder.mkdir()
    project = replace(lab.project, stream_folders=(str(folder),))
    text = (
        "from sluice import Stream, sinks, sources\n"
        'landing = sources.files("land", format="json", schema="n bigint, day date")\n'
        f'its = Stream(name="visits", sources={{"landing": landing}}, transform="{__name__}:same",'
        ' sink=sinks.delta("out", partition_by=["day"]))\n'
    )
    (folder / "visits.py").write_text(text)
    (folder / "copied.py").write_text(text.replace('"visits"', '"copied"'))

    copied = project.stream("copied")
    assert [warning.code for warning in plan_stream(project, Request(copied)).warnings] == ["SINK_SHARED"]
    run_stream(project, Request(copied), session=lab.spark)
    (folder / "visits.py").unlink()
    arrive(lab, 1)
    run_stream(project, Request(project.stream("copied")), session=lab.spark)
    assert numbers(lab) == [0, 0, 1]
