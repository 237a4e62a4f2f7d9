"""Transforms that can't run as a stream are refused before anything is written, with their line and Spark's words."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, QueryRefusedError
from tests.spark.lab import Lab, write_numbers

pytestmark = pytest.mark.spark

HEADER = "from pyspark.sql import functions as F\n\n\n"
"""Three lines: a transform begins at line 4."""


@dataclass(frozen=True)
class Case:
    """A transform, and how it is refused."""

    code: str
    words: str
    line: int = 4
    error: type[DeclarationError] = DeclarationError
    mode: Any = "append"


CASES = {
    "other parameters": Case("def go(rows):\n    return rows", r"parameters are \(rows\), the sources \(numbers\)"),
    "nothing returned": Case("def go(numbers):\n    pass", "returns NoneType, not a DataFrame"),
    "something else returned": Case("def go(numbers):\n    return 'numbers'", "returns str, not a DataFrame"),
    "a batch returned": Case("def go(numbers):\n    return numbers.sparkSession.range(3)", "no stream"),
    "a failure": Case("def go(numbers):\n    raise ValueError('no luck')", "no luck", line=5),
    "an unknown column": Case(
        "def go(numbers):\n    other = numbers\n    return other.select('absent')",
        "UNRESOLVED_COLUMN.*`absent`",
        line=6,
    ),
    "an action": Case(
        "def go(numbers):\n    numbers.collect()\n    return numbers", "must be executed with writeStream.start", line=5
    ),
    "a stream of its own": Case(
        "def go(numbers):\n    return numbers.sparkSession.readStream.format('rate').load()",
        "a stream of its own",
        line=0,
    ),
    "a sort": Case(
        "def go(numbers):\n    return numbers.orderBy('id')",
        "Sorting is not supported on streaming DataFrames",
        error=QueryRefusedError,
    ),
    "an aggregation without a watermark": Case(
        "def go(numbers):\n    return numbers.groupBy('id').count()",
        "output mode is not supported for streaming aggregations without watermark",
        error=QueryRefusedError,
    ),
    "an outer join without a watermark": Case(
        "def go(numbers):\n    others = numbers.selectExpr('id AS other')\n"
        "    return numbers.join(others, F.expr('id = other'), 'left_outer')",
        "LeftOuter join.*without a watermark",
        error=QueryRefusedError,
    ),
    "a recursion": Case(
        "def go(numbers):\n    numbers.createOrReplaceTempView('numbers')\n"
        "    steps = 'SELECT id FROM numbers UNION ALL SELECT id + 1 FROM steps WHERE id < 3'\n"
        "    return numbers.sparkSession.sql(f'WITH RECURSIVE steps (id) AS ({steps}) SELECT id FROM steps')",
        "a recursive common table expression reads a source",
        error=QueryRefusedError,
    ),
    "a limit in update mode": Case(
        "def go(numbers):\n    return numbers.limit(3)",
        "[Ll]imits? .*not supported.*[Uu]pdate",
        error=QueryRefusedError,
        mode="update",
    ),
    "complete mode without an aggregation": Case(
        "def go(numbers):\n    return numbers",
        "output mode is not supported for no streaming aggregations",
        error=QueryRefusedError,
        mode="complete",
    ),
}


def declared(transform: str, mode: Any = "append", sink: Any = None) -> Stream:
    source = sources.files("land", format="json", schema="id bigint")
    return Stream(
        name="s", sources={"numbers": source}, transform=transform, sink=sink or sinks.noop(), output_mode=mode
    )


@pytest.fixture
def own_lab(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A project with one file to read, and with transforms of its own in `transforms.py`."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_numbers(lab.root / "land", 1)
    yield replace(lab, import_roots=(str(lab.root),))
    sys.modules.pop("transforms", None)


def write_transforms(lab: Lab, code: str) -> str:
    file = lab.root / "transforms.py"
    file.write_text(HEADER + code)
    importlib.invalidate_caches()
    return str(file)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_refused(own_lab: Lab, case: Case) -> None:
    """The error names the transform's file and line, and says what is wrong; the checkpoint does not even exist."""
    file = write_transforms(own_lab, case.code)
    stream = declared("transforms:go", case.mode)
    with pytest.raises(DeclarationError) as refused:
        own_lab.run(stream)
    assert type(refused.value) is case.error
    assert re.search(case.words, refused.value.problem)
    assert refused.value.where == f"{file}:{case.line}" or not case.line
    assert not own_lab.checkpoint(stream).exists()


def test_missing_function(own_lab: Lab) -> None:
    """A function that is not there is refused with the file, and with the name that was probably meant."""
    file = write_transforms(own_lab, "def departures(numbers):\n    return numbers")
    stream = declared("transforms:departure")
    with pytest.raises(DeclarationError, match="did you mean `departures`") as refused:
        own_lab.run(stream)
    assert (refused.value.where or "").endswith(f": {file}")
    assert not own_lab.checkpoint(stream).exists()


def test_missing_module(own_lab: Lab) -> None:
    """A module that is not there is refused with the folders that were searched."""
    stream = declared("transforms.absent:go")
    with pytest.raises(DeclarationError, match=re.escape("there is no module `transforms.absent`")):
        own_lab.run(stream)
    assert not own_lab.checkpoint(stream).exists()


def test_broken_module(own_lab: Lab) -> None:
    """A module with a syntax error is refused with its line."""
    file = write_transforms(own_lab, "def go(numbers)\n    return numbers")
    with pytest.raises(DeclarationError, match="SyntaxError") as refused:
        own_lab.run(declared("transforms:go"))
    assert refused.value.where == f"{file}:4"


def test_missing_sink_function(own_lab: Lab) -> None:
    """The function of a foreach_batch sink is looked for before anything is written."""
    write_transforms(own_lab, "def go(numbers):\n    return numbers")
    stream = declared("transforms:go", sink=sinks.foreach_batch("transforms:save"))
    with pytest.raises(DeclarationError, match="no function `save`"):
        own_lab.run(stream)
    assert not own_lab.checkpoint(stream).exists()


def test_record_of_a_refused_query(own_lab: Lab) -> None:
    """The run's record tells of the refusal, and once the transform is right, the next run reads everything."""
    write_transforms(
        own_lab, "def go(numbers):\n    return numbers.orderBy('id')\n\n\ndef mended(numbers):\n    return numbers"
    )
    stream = declared("transforms:go")
    with pytest.raises(QueryRefusedError):
        own_lab.run(stream)
    (record,) = own_lab.records(stream)
    assert (record["status"], record["error"]["type"]) == ("failed", "QueryRefusedError")
    assert [batch.batch_id for batch in own_lab.run(declared("transforms:mended")).batches] == [0]
