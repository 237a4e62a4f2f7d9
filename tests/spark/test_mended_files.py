"""A file of a batch that fails is mended in its place, and read as it is then."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import SluiceError
from sluice.planning.planner import Limits
from tests.spark.lab import Lab, bounded, ids, touch, write_files, write_numbers

pytestmark = pytest.mark.spark


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def failing(lab: Lab, limits: Limits, *, first: int) -> tuple[Stream, Path]:
    """A stream whose newest batch fails, for one of its two files is broken; and that file."""
    stream = Stream(
        name="s",
        sources={"numbers": sources.files("in", format="json", schema="id bigint", mode="FAILFAST")},
        transform=f"{__name__}:same",
        sink=sinks.delta("out"),
    )
    if first:
        write_numbers(lab.root / "in", first)
        lab.run(stream)
    write_numbers(lab.root / "in", 1, first=first)
    (broken,) = write_files(lab.root / "in", {f"{first + 1:04d}.json": '{"id": 1'}, first=first + 1)
    with pytest.raises(SluiceError):
        lab.run(stream, limits)
    assert lab.plan(stream).verdict == "resume"
    return stream, broken


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_a_file_that_is_mended(lab: Lab, strategy: str, first: int) -> None:
    """No plan says that it is never read, before the batch or after: whoever believed that doubled its rows."""
    stream, broken = failing(lab, bounded(strategy=strategy), first=first)
    broken.write_text(f'{{"id": {first + 1}}}\n{{"id": 100}}')
    touch(broken, 60)
    assert (lab.plan(stream).verdict, lab.plan(stream).warnings) == ("resume", ())

    assert [batch.kind for batch in lab.run(stream).batches] == ["uncommitted"]

    assert ids(lab.table("out")) == [*range(first + 2), 100]
    assert (lab.plan(stream).verdict, lab.plan(stream).warnings) == ("skip", ())

    broken.rename(broken.with_name("renamed.json"))
    assert [found.code for found in lab.plan(stream).warnings] == ["FILE_RENAMED"]
    assert lab.plan(stream).verdict == "skip"
    broken.with_name("renamed.json").rename(broken)
    with broken.open("a") as file:
        file.write('\n{"id": 101}')
    (warning,) = lab.plan(stream).warnings
    assert (warning.code, "another size now" in warning.cause) == ("FILE_CHANGED", True)


def test_a_file_that_is_touched_only_after_its_batch(lab: Lab) -> None:
    """What was mended is known as it was read, and nothing else."""
    stream, broken = failing(lab, bounded(), first=0)
    broken.write_text('{"id": 1}')
    touch(broken, 60)
    lab.run(stream)
    touch(broken, 90)
    (warning,) = lab.plan(stream).warnings
    assert (warning.code, "another time now" in warning.cause) == ("FILE_CHANGED", True)
    touch(broken, 60)
    assert lab.plan(stream).warnings == ()


def test_a_file_that_is_mended_before_its_batch_is_in_the_offset_log(lab: Lab) -> None:
    """The source's own log has taken it, and the next run makes a batch of that."""
    stream, broken = failing(lab, bounded(), first=1)
    checkpoint = lab.checkpoint(stream)
    (checkpoint / "offsets" / "1").unlink()
    (checkpoint / "offsets" / ".1.crc").unlink(missing_ok=True)
    broken.write_text('{"id": 2}')
    touch(broken, 60)
    assert lab.plan(stream).warnings == ()
    lab.run(stream)
    assert ids(lab.table("out")) == [0, 1, 2]
    assert (lab.plan(stream).verdict, lab.plan(stream).warnings) == ("skip", ())
