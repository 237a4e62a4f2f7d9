"""Several streams in one `sluice run`: each as if it ran alone, in drivers of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluice.errors import SluiceError
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.runner import run_stream
from sluice.spark.start_settings import is_of_session
from sluice.testing.session import bench_session
from tests.spark import packed_library, packed_streams
from tests.spark.lab import Lab, available_now, log_bytes, log_files, reader, write_files
from tests.unit.quality.suites import document, row

SCHEMA = "id bigint, at timestamp"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DECLARATIONS = f"""
from sluice import Stream, sinks, sources

def stream(name, transform, **more):
    rows = sources.files("in", format="json", schema="{SCHEMA}", max_files_per_batch=2)
    given = dict(sources={{"rows": rows}}, sink=sinks.delta(f"out/{{name}}"))
    return Stream(name=name, transform=f"packed_streams:{{transform}}", **{{**given, **more}})
"""
HISTORIES = f"""
after = stream("after", "plain", sources={{"rows": sources.delta("out/plain")}}, tags=["history"])
plain = stream("plain", "plain", tags=["history"])
windows = stream("windows", "by_minute", conf={{"spark.sql.shuffle.partitions": 3}}, tags=["history"])
seen = stream("seen", "first_seen", tags=["history"],
              conf={{"spark.sql.streaming.stateStore.providerClass": "{ROCKSDB}"}})
failing = stream("failing", "failing", tags=["history"])
checked = stream("checked", "plain", quality="suite.json", tags=["history"])
one = stream("one", "one", conf={{
    "spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.shuffle.partitions": 7, "spark.sql.ansi.enabled": False,
    "spark.sql.streaming.stateStore.providerClass": "{ROCKSDB}"}})
two = stream("two", "two")
large = stream("large", "two", memory="700m")
"""
DEATHS = """
first = stream("first", "plain")
fatal = stream("fatal", "plain", sink=sinks.foreach_batch("packed_streams:write_or_lose_spark"))
written = stream("written", "plain", sink=sinks.foreach_batch("packed_streams:write_or_die"))
stopping = stream("stopping", "stopping")
last = stream("last", "plain")
"""
NAMES = ["plain", "after", "windows", "seen", "failing", "checked"]
"""The streams of the histories, as they are run one by one."""
SUITE = document(row("expect_column_values_to_be_between", policy="fail", column="id", max_value=2))


def make_project(root: Path, declarations: str) -> Project:
    (root / "streams").mkdir(parents=True)
    (root / "sluice.toml").write_text('[project]\nname = "p"\n[spark]\nmaster = "local[2]"\n')
    (root / "streams" / "all.py").write_text(DECLARATIONS + declarations)
    (root / "suite.json").write_bytes(SUITE)
    shutil.copy(packed_streams.__file__, root)
    (root / "installed").mkdir()
    shutil.copy(packed_library.__file__, root / "installed")
    return find_project(str(root))


def arrive(root: Path, first: int, count: int = 3) -> None:
    """Files of four rows: one each minute, one row in four seen before."""
    contents = {}
    for number in range(first, first + count):
        rows = [{"id": number * 3 + row, "at": f"2026-01-01T{number:02}:0{row}:30Z"} for row in (0, 0, 1, 2)]
        contents[f"{number}.json"] = "\n".join(map(json.dumps, rows))
    write_files(root / "in", contents, first=first)


def run_packed(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process group of its own, for one that dies takes its group along."""
    command = [str(Path(sys.executable).with_name("sluice")), "run", *arguments, "--project", project.root]
    path = os.pathsep.join([str(Path(project.root, "installed")), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False, start_new_session=True
    )


def run_alone(project: Project, name: str) -> str:
    """Run a stream in a session of its own, by itself; gives what it ended with."""
    stream = project.stream(name)
    try:
        return run_stream(project, Request(stream), session=bench_session(project, stream)).status
    except SluiceError as exc:
        return type(exc).__name__


def table(root: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table; none where nothing was published."""
    if not list((root / "out" / name / "_delta_log").glob("*.json")):
        return []
    rows: list[dict[str, Any]] = DeltaTable(str(root / "out" / name)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=repr)


def logs(root: Path, name: str) -> dict[str, dict[str, bytes]]:
    """The logs of a stream's checkpoint, without what is another one's in every project: its folder, a table's id."""
    checkpoint = root / "var" / "sluice" / name / "generations" / "0001"
    return {
        log: {
            file: re.sub(rb'"reservoirId":"[^"]*"', b'"reservoirId":""', content.replace(str(root).encode(), b""))
            for file, content in log_bytes(checkpoint / log).items()
        }
        for log in ("offsets", "commits", "sources/0")
    }


def records(root: Path, name: str) -> list[dict[str, Any]]:
    """What the records of a stream say, without times and ids."""
    found = [json.loads(file.read_text()) for file in sorted((root / "var" / "sluice" / name / "runs").glob("*.json"))]
    keys = ("input_rows", "output_rows", "watermark", "late_rows", "kind")
    return [
        {
            "status": record["status"],
            "reason": record["plan"]["reason"],
            "error": (record.get("error") or {}).get("type"),
            "quality": (record.get("quality") or {}).get("verdict"),
            "batches": [{key: batch.get(key) for key in keys} for batch in record.get("batches", [])],
        }
        for record in found
    ]


def test_as_if_each_ran_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Over two rounds, of which the first has a stream that fails and one whose suite does: rows, logs, records."""
    packed, alone = (make_project(tmp_path / side, HISTORIES) for side in ("packed", "alone"))
    ended: list[dict[str, str]] = []
    for number in range(2):
        for project in (packed, alone):
            arrive(Path(project.root), number * 3)
        done = run_packed(packed, *(["--all"] if number == 0 else ["--tag", "history"]))
        assert done.returncode == (1 if number == 0 else 4), done.stdout + done.stderr
        ended.append(dict(re.findall(r"^(\w+): ([\w ]+) \(", done.stdout, re.MULTILINE)))
        told = [run_alone(alone, name) for name in NAMES]
        failing = "BatchFailedError" if number == 0 else "succeeded"
        assert told == ["succeeded", "succeeded", "succeeded", "succeeded", failing, "QualityFailedError"]
        if number == 0:
            assert "`large` has a Spark of its own: spark.driver.memory\n" in done.stderr
            for project in (packed, alone):
                Path(project.root, "mended").touch()
    succeeded = dict.fromkeys(["plain", "after", "windows", "seen"], "succeeded")
    own = dict.fromkeys(["one", "two", "large"], "succeeded")
    assert ended[0] == {**succeeded, "failing": "failed", "checked": "failed by quality", **own}
    assert ended[1] == {**succeeded, "failing": "succeeded", "checked": "failed by quality"}
    # What reads a stream runs after it, wherever it is declared.
    assert list(ended[0]).index("plain") < list(ended[0]).index("after")

    roots = Path(packed.root), Path(alone.root)
    for name in NAMES:
        assert records(roots[0], name) == records(roots[1], name), name
        assert logs(roots[0], name) == logs(roots[1], name), name
        assert table(roots[0], name) == table(roots[1], name), name
    assert len(table(roots[0], "after")) == 24
    assert table(roots[0], "checked") == []
    assert logs(roots[0], "windows")["offsets"]["0"].count(b'"spark.sql.shuffle.partitions":"3"') == 1
    assert logs(roots[0], "seen")["offsets"]["0"].count(ROCKSDB.encode()) == 1
    check_own(roots[0])
    check_continued(spark, roots[0])


def check_own(root: Path) -> None:
    """Nothing of one stream has reached another one."""
    names = ("function", "hour", "python_hour", "partitions", "providerClass", "enabled", "mine", "everybody", "known")
    keys = (*names, "queries", "library_hour", "worker")
    found = {name: {tuple(row[key] for key in keys) for row in table(root, name) if row["id"] < 3}
             for name in ("one", "two", "large")}  # fmt: skip
    provider = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    assert found["one"] == {("one", "01", "01", "7", ROCKSDB, "false", "one", "one", "one", 0, "01", "one")}
    assert found["two"] == {("two", "00", "00", "200", provider, "true", "two", "two", "two", 0, "00", "two")}
    assert found["large"] == found["two"]


def check_continued(spark: SparkSession, root: Path) -> None:
    """Plain Spark goes on with a checkpoint as if it had made all of it."""
    arrive(root, 6)
    rows = reader(spark, SCHEMA, maxFilesPerTrigger=2).json(str(root / "in"))
    checkpoint = root / "var" / "sluice" / "windows" / "generations" / "0001"
    before = len(log_files(checkpoint / "commits"))
    available_now(packed_streams.by_minute(rows), checkpoint, root / "out" / "windows", sink="delta")
    assert len(log_files(checkpoint / "commits")) > before
    every = spark.read.schema(SCHEMA).json(str(root / "in"))
    expected = packed_streams.by_minute(every).where(F.col("minute") < "2026-01-01T08:00:00Z").collect()
    found = [(row["minute"], row["count"]) for row in table(root, "windows")]
    assert {minute.replace(tzinfo=None) for minute, _ in found if minute.hour < 8} == {row[0] for row in expected}
    assert len(found) == len({minute for minute, _ in found})


def test_deaths(tmp_path: Path) -> None:
    """A JVM that dies, a driver that is killed in a batch, and one that is stopped: the next one goes on."""
    project = make_project(tmp_path, DEATHS)
    root = Path(project.root)
    arrive(root, 0)

    killed = run_packed(project, "first", "fatal", "written", "stopping", "last")
    assert killed.returncode == -9
    assert "Spark is gone; another one is started" in killed.stderr
    assert re.findall(r"^(\w+): (\w+)", killed.stdout, re.MULTILINE) == [("first", "succeeded"), ("fatal", "failed")]
    assert [record["status"] for record in records(root, "written")] == ["running"]

    arrive(root, 3)
    stopped = run_packed(project, "--all", "--json")
    assert stopped.returncode == 0, stopped.stderr
    told = {record["stream"]: record["status"] for record in json.loads(stopped.stdout)}
    went_on = dict.fromkeys(["first", "fatal", "written"], "succeeded")
    assert told == {**went_on, "stopping": "stopped", "last": "not_begun"}
    assert records(root, "last") == []

    rest = run_packed(project, "--all", "--json")
    assert rest.returncode == 0, rest.stderr
    told = {record["stream"]: record["status"] for record in json.loads(rest.stdout)}
    assert told == {**dict.fromkeys(went_on, "skipped"), "stopping": "succeeded", "last": "succeeded"}
    every = sorted(number * 3 + row for number in range(6) for row in (0, 0, 1, 2))
    for name in ("first", "stopping", "last"):
        assert sorted(row["id"] for row in table(root, name)) == every, name
    for name in ("fatal", "written"):
        batches = [pq.read_table(folder)["id"].to_pylist() for folder in (root / "out" / name).iterdir()]
        assert sorted(chain.from_iterable(batches)) == every, name


@pytest.mark.usefixtures("lab")
def test_the_settings_of_a_session(lab: Lab) -> None:
    """No setting that Spark calls static is taken for one that a session may have for itself."""
    session: Any = lab.spark
    static = session._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listStaticSQLConfigs()
    keys = [found._1() for found in static]
    fields = session._jvm.java.lang.Class.forName("org.apache.spark.sql.internal.StaticSQLConf$").getDeclaredFields()
    holder = getattr(session._jvm.org.apache.spark.sql.internal, "StaticSQLConf$").__getattr__("MODULE$")
    for field in fields:
        if field.getType().getSimpleName() == "ConfigEntry":
            field.setAccessible(True)
            keys.append(field.get(holder).key())
    assert len(keys) > 30
    assert [key for key in keys if key.startswith("spark.") and is_of_session(key)] == []
    assert is_of_session("spark.sql.shuffle.partitions")
