"""A batch that runs again says what was declared otherwise when it was begun, also where Spark's plan does not tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from tests.spark.lab import Lab, append_outside, uncommit, write_numbers

pytestmark = pytest.mark.spark

MODULE = """\
from pyspark.sql import functions as F


def change(number):
    return number + 1


def changed(numbers):
    return numbers.select(F.udf(change, "bigint")("id").alias("id"))
"""


def joined(numbers: DataFrame) -> DataFrame:
    return numbers.join(numbers.sparkSession.read.format("delta").load(LOOKED_UP[-1]), "id")


LOOKED_UP: list[str] = []
"""Where the static table of `joined` is."""


def declared(transform: str) -> Stream:
    source = sources.files("land", format="json", schema="id bigint", max_files_per_batch=1)
    return Stream(name="s", sources={"numbers": source}, transform=transform, sink=sinks.noop())


def test_a_function_of_pythons_workers(lab: Lab, tmp_path: Path) -> None:
    """Spark's plan has its name, and nothing of its body."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "begun_with_udf.py").write_text(MODULE)
    lab = Lab(lab.spark, lab.root, (str(code),))
    stream = declared("begun_with_udf:changed")
    write_numbers(lab.root / "land", 2)
    assert [batch.changed for batch in lab.run(stream).batches] == [(), ()]
    uncommit(lab.checkpoint(stream), 1)
    (code / "begun_with_udf.py").write_text(MODULE.replace("+ 1", "+ 2"))

    (batch,) = lab.run(stream).batches

    assert batch.changed == ("code of the transform's module",)


def test_a_table_that_is_joined(lab: Lab) -> None:
    """Another version of it is another batch; what is run anew is begun with the new one."""
    append_outside(lab.root / "lookup", [0, 1])
    LOOKED_UP[:] = [str(lab.root / "lookup")]
    stream = declared(f"{__name__}:joined")
    write_numbers(lab.root / "land", 2)
    lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    append_outside(lab.root / "lookup", [2])
    write_numbers(lab.root / "land", 1, first=2)

    batches = lab.run(stream).batches

    assert [batch.changed for batch in batches] == [("version of lookup",), ()]
