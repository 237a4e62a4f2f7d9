"""A project whose transforms bring every kind of Python code that runs in Spark's workers, and what comes of it.

Its modules need each other, at the top and in the functions that use them, and packages with and without `__init__.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FILES = {
    "sluice.toml": '[project]\nname = "code"\npath = ["code"]\n',
    "streams/code.py": """
from sluice import Stream, sinks, sources

def stream(name, sink=None):
    numbers = sources.files("in", format="json", schema="n bigint")
    sink = sink or sinks.delta(f"out/{name}")
    return Stream(name=name, sources={"numbers": numbers}, transform=f"jobs.numbers:{name}", sink=sink)

row_by_row, in_pandas = stream("row_by_row"), stream("in_pandas")
with_state, with_processor = stream("with_state"), stream("with_processor")
in_batches = stream("in_batches", sinks.foreach_batch("jobs.numbers:keep"))
""",
    "code/beside.py": "STEP = 10\n",
    # Beside a folder of the same name wherever Spark is started: this project's is meant.
    "code/jobs/steps.py": "import beside\n\ndef step():\n    return beside.STEP\n",
    "code/shapes/__init__.py": "",
    "code/shapes/late.py": "def one():\n    return 1\n",
    "code/jobs/numbers.py": """
import json
import os
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StatefulProcessor

from jobs.steps import step

FOLDER = {folder!r}


def plain(n):
    from shapes.late import one  # when it is called, and not before

    return n + step() * one()


@udf("long")
def decorated(n):
    return plain(n)


def vector(values: pd.Series) -> pd.Series:
    return values.map(plain)


def frames(found: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in found:
        yield frame.assign(n=frame.n.map(plain))


def group(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(n=frame.n.map(plain))


class Steps(DataSource):
    @classmethod
    def name(cls):
        return "steps"

    def schema(self):
        return "step long"

    def reader(self, schema):
        return StepsReader()


class StepsReader(DataSourceReader):
    def read(self, partition):
        yield (step(),)


class Adder(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timers):
        for row in rows:
            yield Row(n=plain(row.n))

    def close(self):
        pass


def row_by_row(numbers):
    numbers.sparkSession.dataSource.register(Steps)
    steps = numbers.sparkSession.read.format("steps").load()
    made = numbers.select(decorated(F.udf(plain, "long")("n")).alias("n"))
    return made.crossJoin(steps).selectExpr("n + step AS n")  # 3 steps


def in_pandas(numbers):
    made = numbers.select(F.pandas_udf(vector, "long")("n").alias("n"))
    return made.mapInPandas(frames, "n long").groupBy("n").applyInPandas(group, "n long")


def add(key, found, state):
    for frame in found:
        yield group(frame)


def with_state(numbers):
    return numbers.groupBy("n").applyInPandasWithState(add, "n long", "seen long", "append", "NoTimeout")


def with_processor(numbers):
    return numbers.groupBy("n").transformWithState(Adder(), "n long", "append", "None")


def in_batches(numbers):
    return numbers


def note(row):
    with open(os.path.join(FOLDER, "rows"), "a") as file:
        file.write(f"{{plain(row.n)}}\\n")


def keep(frame, batch_id):
    frame.foreach(note)
    made = frame.groupBy("n").applyInPandas(group, "n long").select(decorated("n").alias("n")).collect()
    with open(os.path.join(FOLDER, "batch"), "w") as file:
        json.dump([plain(row.n) for row in made], file)
""",
}

WRITTEN = {"row_by_row": [31], "in_pandas": [31], "with_state": [11], "with_processor": [11]}
"""By stream, what the one row of the source, a 1, becomes in its table."""


def make_code_project(root: Path) -> Path:
    """Write the project, and one file for its streams to read."""
    for name, text in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(folder=str(root)) if name == "code/jobs/numbers.py" else text)
    arrive(root, 1)
    return root


def arrive(root: Path, number: int) -> None:
    """Let a file of one row arrive, ten seconds later for each."""
    file = root / "in" / f"{number}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"n": number}))
    os.utime(file, (1_700_000_000 + 10 * number,) * 2)


def import_at_the_top(root: Path) -> None:
    """A server does not give the session's files to stateful functions: what they import must be there before."""
    file = root / "code" / "jobs" / "numbers.py"
    line = "from shapes.late import one"
    file.write_text(f"{line}\n" + file.read_text().replace(f"    {line}  # when it is called, and not before\n", ""))


def written_by_batches(root: Path) -> tuple[list[int], list[int]]:
    """What the functions of `in_batches` left: that of each row, and that of the batch."""
    rows = sorted(int(line) for line in (root / "rows").read_text().split())
    return rows, json.loads((root / "batch").read_text())
