"""Parsing a DAG file with 100 streams: its time beyond `import airflow.sdk`, in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROUNDS, Figure

STREAMS = 100
BAR_SECONDS = 1.0
_DECLARATION = """
from sluice import Stream, sinks, sources
{name} = Stream(
    name="{name}",
    sources={{"events": sources.files("in/{name}", format="json", schema="n bigint")}},
    transform="none:none",
    sink=sinks.delta("lake/{name}", partition_by=["day"]),
)
"""
_DAGS = """
from datetime import datetime, timezone
from airflow.sdk import DAG
from sluice_airflow.sensors.progress import WatermarkSensor
from sluice_airflow.stream_dag import stream_dag
from sluice_airflow.timetables import data_intervals, on_arrival
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
by_the_clock = stream_dag({half}, dag_id="clock", project={project!r}, schedule=data_intervals("0 * * * *"),
                          start_date=START)
for name in {other!r}:
    globals()[name] = stream_dag(name, project={project!r}, schedule=on_arrival(name, project={project!r}))
with DAG("sensors", schedule=None) as sensors:
    for name in {other!r}:
        WatermarkSensor(task_id=name, stream=name, project={project!r}, start_from_trigger=True)
"""
_PROGRAM = """
import json, sys, time
began = time.perf_counter()
import airflow.sdk
imported = time.perf_counter()
namespace = {"__name__": "parsed"}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), namespace)
took = time.perf_counter() - imported
heavy = sorted({"pyspark", "great_expectations", "deltalake", "pyarrow", "pandas"} & set(sys.modules))
print(json.dumps({"import_seconds": imported - began, "parse_seconds": took, "heavy": heavy}))
"""


@dataclass(frozen=True)
class _Parsed:
    import_seconds: float
    parse_seconds: float
    heavy: list[str]


def measure() -> list[Figure]:
    """Seconds beyond the import of Airflow itself.

    Raises:
        RuntimeError: pyspark or its like was imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = _make_project(Path(folder))
        parsed = [_parse(file) for _ in range(ROUNDS + 1)][1:]  # the first one writes the byte code
    heavy = sorted({name for found in parsed for name in found.heavy})
    if heavy:
        raise RuntimeError(f"parsing a DAG imports {', '.join(heavy)}")
    seconds = [found.parse_seconds for found in parsed]
    airflow = statistics.median(found.import_seconds for found in parsed)
    detail = f"seconds, {ROUNDS} rounds; `import airflow.sdk` itself takes {airflow:.2f} s; no pyspark in sys.modules"
    return [
        Figure(
            f"parsing {STREAMS} streams beyond `import airflow.sdk`",
            statistics.median(seconds),
            BAR_SECONDS,
            (min(seconds), max(seconds)),
            detail,
        )
    ]


def _parse(file: Path) -> _Parsed:
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(file)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return _Parsed(**json.loads(printed.splitlines()[-1]))


def _make_project(root: Path) -> Path:
    """A project with a declaration file per stream; half of them in one DAG, the others in one each."""
    names = [f"s{number}" for number in range(STREAMS)]
    (root / "sluice.toml").write_text("[project]\n")
    (root / "streams").mkdir()
    for name in names:
        (root / "streams" / f"{name}.py").write_text(_DECLARATION.format(name=name))
    half, other = names[: STREAMS // 2], names[STREAMS // 2 :]
    file = root / "dags.py"
    file.write_text(_DAGS.format(half=", ".join(map(repr, half)), other=other, project=str(root)))
    return file
