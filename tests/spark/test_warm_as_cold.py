"""What a warm Spark can't do, or is not there for any more: a Spark of the command's own says, and does, the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.lab import write_numbers
from tests.spark.test_connect import rows
from tests.spark.test_serve import Served, kill_once, serving, until

pytestmark = pytest.mark.spark

_HEAD = """\
from sluice import Stream, sinks, sources
numbers = sources.files("a", format="json", schema="id bigint", max_files_per_batch=1)
others = sources.files("b", format="json", schema="id bigint")
"""
_JOBS = """\
import json, os, signal
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote


def unequal(numbers, others):
    return numbers.join(others.withColumnRenamed("id", "other"), F.col("id") > F.col("other"))


def grouped(numbers):
    return numbers.groupBy("id", (F.col("id") % 2).alias("odd")).count()


def doubled_elsewhere(numbers):
    from doubling import double

    return numbers.select(double("id").alias("id")).dropDuplicates(["id"])


def dated(numbers):
    return numbers.select("id", F.lit("2026-01-01").cast("date").alias("day"))


def doubled_as_the_server_dies(numbers):
    '''The server is there for what the transform asks, and gone right after it.'''
    doubled = dated(numbers).withColumn("id", F.col("id") * 2)

    class Dying(type(doubled)):
        @property
        def isStreaming(self):
            found = super().isStreaming
            kill_the_server()
            return found

    if is_remote():
        doubled.__class__ = Dying
    return doubled


def kill_the_server():
    for file in Path(os.environ["SLUICE_SERVERS"]).glob("*.json"):
        pid = json.loads(file.read_bytes())["jvm"]["pid"]
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            pass
"""
_SINKS = {
    "unequal": 'sinks.delta("out")',
    "doubled_elsewhere": 'sinks.delta("out")',
    "grouped": 'sinks.delta("out", merge_on="id"), output_mode="update"',
}
_OWN = {"SLUICE_SPARK_MASTER": "local[2]"}
_AS_A_CLIENT = """\
import sys, time
from pathlib import Path
import pyspark.sql.connect.session
from sluice.spark.connect_session import close_remote, open_known

# What it takes to import all that is no part of how long a run has to connect.
while Path(sys.argv[2]).exists():
    time.sleep(0.05)
session = open_known(sys.argv[1], {}, reads_tables=False)
while not Path(sys.argv[2]).exists():
    session.range(1).collect()
close_remote(session)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A project with a server."""
    work = Served(tmp_path_factory.mktemp("served"), "")
    declare(work, "dated")
    with serving(work):
        yield work


@pytest.fixture
def work(shared: Served) -> Served:
    """The project, without a stream or rows."""
    shared.forget()
    return shared


@pytest.fixture
def alone(tmp_path: Path) -> Served:
    """A project without a server."""
    work = Served(tmp_path, "")
    (tmp_path / "servers").mkdir()
    work.forget()
    return work


def declare(work: Served, transform: str) -> None:
    """Let the project's one stream, `s`, have a transform of the project's own."""
    for folder in ("streams", "jobs"):
        (work.root / folder).mkdir(exist_ok=True)
    (work.root / "jobs" / "numbers.py").write_text(_JOBS)
    read = "'numbers': numbers, 'others': others" if transform == "unequal" else "'numbers': numbers"
    sink = _SINKS.get(transform, 'sinks.delta("out", partition_by="day"), interval_column="day"')
    declared = f's = Stream(name="s", sources={{{read}}}, transform="jobs.numbers:{transform}", sink={sink})\n'
    (work.root / "streams" / "s.py").write_text(_HEAD + declared)
    (work.root / "sluice.toml").write_text('[project]\nname = "work"\n[spark]\nmaster = "serve"\n')


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        ("unequal", "Stream-stream join without equality predicate"),
        ("grouped", "the aggregation groups by `odd`, too"),
    ],
)
def test_a_check_refuses_what_a_run_would(work: Served, transform: str, told: str) -> None:
    """Of what a server does not tell, a Spark of its own is asked."""
    declare(work, transform)
    returned, output, errors = work.sluice("check")
    assert (returned, told in output) == (2, True), output + errors
    assert "a Spark of its own is started: " in errors
    assert (returned, output) == work.sluice("check", **_OWN)[:2]


def test_a_server_that_dies_in_a_check(alone: Served) -> None:
    """Whatever the connection says of it, the check is done by a Spark of its own."""
    declare(alone, "doubled_as_the_server_dies")
    with serving(alone):
        returned, output, errors = alone.sluice("check")
    assert returned == 0, output + errors
    assert "a Spark of its own is started: the warm one fails: " in errors


def test_a_server_that_dies_in_a_backfill(alone: Served) -> None:
    """Nothing is written by then: the same plan is done by a Spark of its own."""
    write_numbers(alone.root / "a", 3)
    declare(alone, "dated")
    with serving(alone):
        alone.run_once()
        declare(alone, "doubled_as_the_server_dies")
        returned, _, errors = alone.sluice("backfill", "s", "--start", "2026-01-01", "--end", "2026-01-02")
    assert returned == 0, errors
    assert "starting a Spark of its own: the warm one fails: " in errors
    assert sorted(row[-1] for row in rows(alone.root)) == [0, 2, 4]


def test_a_batch_that_a_server_has_begun(work: Served) -> None:
    """A Spark that finishes it tells its plan in other words, and the transform is the same."""
    write_numbers(work.root / "a", 2)
    work.declare("slow")
    work.hold(1)
    kill_once(work.start("-m", "sluice", "run", "s"), work.root / "begun-1")

    work.run_once(**_OWN)

    assert [work.was_warm(token) for token in (1, 2)] == [True, False]
    assert [batch["changed"] for record in work.records() for batch in record["batches"]] == [[], []]
    assert rows(work.root) == [(0,), (1,)]


def test_a_run_that_comes_as_the_server_ends(alone: Served) -> None:
    """Who has read the file connects within some seconds: the server stays for it, and can be found again."""
    declare(alone, "dated")
    with serving(alone, "--idle", "10s") as watcher:
        (file,) = alone.files
        known: dict[str, Any] = json.loads(file.read_bytes())
        url = f"sc://127.0.0.1:{known['port']}/;use_ssl=false;token={known['token']}"
        client = alone.start("-c", _AS_A_CLIENT, url, str(file))
        until(lambda: not file.exists())
        assert watcher.poll() is None
        until(lambda: file.exists() or client.poll() is not None)
        assert file.exists(), client.communicate()
        assert json.loads(file.read_bytes()) == known
        client.communicate(timeout=60)
        assert client.returncode == 0
        assert watcher.wait(60) == 0
        assert not alone.files


def test_a_function_that_is_imported_within_the_transform(work: Served) -> None:
    """Of a library: a server analyses the query first, and for it the function is another kind of object."""
    library = work.root / "library"
    library.mkdir()
    code = "from pyspark.sql import functions as F\n\n\n@F.udf('bigint')\ndef double(number):\n    return number * 2\n"
    (library / "doubling.py").write_text(code)
    write_numbers(work.root / "a", 2)
    declare(work, "doubled_elsewhere")
    path = f"{library}:{work.environment['PYTHONPATH']}"

    assert "a Spark of its own: the query keeps state" in work.run_once(PYTHONPATH=path)

    assert rows(work.root) == [(0,), (2,)]
