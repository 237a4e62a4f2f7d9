"""Runs on a Spark Connect server, through the command line: equal to those on a Spark in the process, and as safe."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.campaign import in_campaigns, rarely
from tests.spark.connect_server import DELTA, Server, free_port, serving
from tests.spark.connect_streams import STREAMS
from tests.spark.lab import Lab, append_outside, bounded, log_bytes, snapshot, write_files, write_numbers
from tests.unit.quality import suites

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]
TOKEN = "open-sesame-7311"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has what a project with Delta tables needs."""
    with serving(tmp_path_factory.mktemp("server"), DELTA) as running:
        yield running


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without Delta, that asks for a token."""
    with serving(tmp_path_factory.mktemp("plain"), {"spark.connect.authenticate.token": TOKEN}) as running:
        yield running


@dataclass(frozen=True)
class Work:
    """A project on disk whose Spark is a server."""

    root: Path
    remote: str
    """The server's URL; without one, Spark is in the driver's process."""

    def declare(self, stream: str) -> None:
        """Let the project's one stream, `s`, be one of `STREAMS`."""
        (self.root / "streams").mkdir(parents=True, exist_ok=True)
        (self.root / "sluice.toml").write_text('[project]\nname = "work"\n[spark]\nmaster = "local[2]"\n')
        code = f"from tests.spark.connect_streams import STREAMS\ns = STREAMS[{stream!r}]\n"
        (self.root / "streams" / "s.py").write_text(code)

    def hold(self, number: int) -> None:
        """Let the slow streams wait in this row, or batch, until they are ended."""
        (self.root / f"held-{number}").touch()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start Python in the project, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def sluice(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a command."""
        process = self.start("-m", "sluice", *arguments, **environment)
        output, errors = process.communicate(timeout=180)
        return process.returncode, output, errors

    def run(self, *options: str) -> dict[str, Any]:
        """The record of a run that succeeds, or skips."""
        returned, output, errors = self.sluice("run", "s", "--json", *options)
        assert returned == 0, errors
        return json.loads(output)

    def kill_when(self, driver: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
        """Kill a driver the moment a condition holds."""
        deadline = time.monotonic() + 60
        while not condition():
            assert driver.poll() is None, driver.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(str(REPOSITORY / folder) for folder in ("include", "plugins", "."))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "SLUICE_S"))}
        remote = {"SPARK_REMOTE": self.remote} if self.remote else {}
        return kept | remote | {"PYTHONPATH": path, "SLUICE_TEST_FOLDER": str(self.root)}

    @property
    def home(self) -> Path:
        return self.root / "var" / "sluice" / "s"

    @property
    def checkpoint(self) -> Path:
        return self.home / "generations" / "0001"

    def lease(self, token: int) -> dict[str, Any]:
        return json.loads((self.home / "leases" / "0001" / f"{token}.json").read_bytes())

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_bytes()) for file in sorted((self.home / "runs").glob("*.json"))]


@pytest.fixture
def work(tmp_path: Path, server: Server) -> Work:
    """A project without a stream yet, and with two folders to read."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    return Work(tmp_path, server.url)


def rows(root: Path) -> list[tuple[Any, ...]]:
    """What is in the sink, sorted: of a Delta table, or of Parquet files."""
    if (root / "out" / "_delta_log").exists():
        table = DeltaTable(str(root / "out")).to_pyarrow_table()
    else:
        import pyarrow.dataset

        table = pyarrow.dataset.dataset(sorted(map(str, (root / "out").glob("*.parquet")))).to_table()
    return sorted(zip(*(table.column(name).to_pylist() for name in sorted(table.column_names)), strict=True), key=repr)


def measured(record: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a record says of its batches, without their durations."""
    names = ("batch_id", "kind", "input_rows", "output_rows", "watermark", "observed", "malformed_rows", "unread_files")
    return [tuple(batch[name] for name in names) for batch in record["batches"]]


@pytest.mark.parametrize(
    "name",
    [
        "b_then_a",
        "in_sql",
        "from_a_table_expression",
        *rarely("windows", "observed", "b_with_a", "a_with_a", "from_a_view"),
    ],
)
def test_a_run_is_the_same_as_without_a_server(work: Work, lab: Lab, tmp_path: Path, name: str) -> None:
    """Two runs leave the same offsets, byte for byte, the same rows, and the same measures in their records."""
    inside = replace(lab, root=tmp_path / "inside")
    work.declare(name)
    for root in (work.root, inside.root):
        for folder, first in (("a", 0), ("b", 2)):
            write_numbers(root / folder, 3, first=first, rows=2)

    records = [work.run("--max-batches", "2"), work.run()]
    expected = [inside.run(STREAMS[name], bounded(max_batches=2)), inside.run(STREAMS[name])]

    found = inside.records(STREAMS[name])
    assert [record["run_id"] for record in found] == [record.run_id for record in expected]
    assert [measured(record) for record in records] == [measured(record) for record in found]
    # A server explains no query in SQL over a view: it takes it for a batch.
    explained = found if name.startswith(("from_a_", "in_sql")) else [*records, *found]
    assert all(record["explain"].startswith("== Physical Plan ==") for record in explained)
    assert log_bytes(work.checkpoint / "offsets") == log_bytes(inside.checkpoint(STREAMS[name]) / "offsets")
    assert rows(work.root) == rows(inside.root)
    assert rows(work.root)


@in_campaigns
def test_a_join_whose_sides_arrive_by_turns(work: Work, lab: Lab, tmp_path: Path) -> None:
    """Every batch has the same watermark as without a server, and the same rows come out."""
    inside = replace(lab, root=tmp_path / "inside")
    stream = STREAMS["a_and_perhaps_b"]
    work.declare("a_and_perhaps_b")
    (inside.root / "a").mkdir(parents=True)
    (inside.root / "b").mkdir()
    found, expected = [], []
    for folder, first in (("a", 0), ("b", 1), ("a", 20), ("b", 20)):
        for root in (work.root, inside.root):
            write_numbers(root / folder, 2, first=first, rows=2)
        found += work.run()["batches"]
        expected += inside.run(stream).batches
    assert [batch["watermarks"] for batch in found] == [batch.watermarks for batch in expected]
    assert [batch["held_back_by"] for batch in found] == [list(batch.held_back_by) for batch in expected]
    assert log_bytes(work.checkpoint / "offsets") == log_bytes(inside.checkpoint(stream) / "offsets")
    assert rows(work.root) == rows(inside.root)
    assert (None, 1) in rows(work.root)


@in_campaigns
def test_a_table_as_the_source(work: Work) -> None:
    """A Delta table is read once, in the planned batches, and what it gains later in a later run."""
    for first in (0, 3):
        append_outside(work.root / "table", range(first, first + 3))
    work.declare("from_a_table")
    assert [batch["input_rows"] for batch in work.run()["batches"]] == [3, 3]
    append_outside(work.root / "table", [6])
    assert [batch["input_rows"] for batch in work.run()["batches"]] == [1]
    assert rows(work.root) == [(number,) for number in range(7)]


def test_values_of_folders(work: Work) -> None:
    """They keep the type that the first run found, whichever folders are there later."""
    write_files(work.root / "a", {f"k={key}/0.json": f'{{"id":{number}}}' for number, key in ((1, "abc"), (2, "007"))})
    work.declare("as_it_is")
    work.run()
    shutil.rmtree(work.root / "a" / "k=abc")
    shutil.rmtree(work.root / "a" / "k=007")
    write_files(work.root / "a", {"k=009/3.json": '{"id":3}'}, first=5)
    work.run()

    assert rows(work.root) == [(1, "abc"), (2, "007"), (3, "009")]


def test_a_skip(work: Work, server: Server) -> None:
    """With nothing new, the server is not even asked."""
    write_numbers(work.root / "a", 1)
    work.declare("observed")
    work.run()
    skipped = replace(work, remote=f"sc://127.0.0.1:{free_port()}").run()
    assert skipped["status"] == "skipped"


@in_campaigns
def test_spark_decides_the_batches(work: Work) -> None:
    """A drained run records every batch that Spark makes."""
    write_numbers(work.root / "a", 3)
    work.declare("observed")
    record = work.run("--strategy", "drain")
    assert [batch["input_rows"] for batch in record["batches"]] == [1, 1, 1]
    assert rows(work.root) == [(0,), (1,), (2,)]


def test_a_live_run(work: Work) -> None:
    """It ends when its time is over, where the query waits; the next run goes on from there."""
    write_numbers(work.root / "a", 2)
    work.declare("observed")
    record = work.run("--trigger", "processing-time=200ms", "--for", "8s")
    assert (record["status"], record["plan"]["strategy"]) == ("succeeded", "live")
    assert [batch["input_rows"] for batch in record["batches"]] == [1, 1]
    write_numbers(work.root / "a", 1, first=2)

    work.run()

    assert rows(work.root) == [(0,), (1,), (2,)]


def test_a_file_that_vanishes_while_spark_decides(work: Work) -> None:
    """A server does not tell which files it found: one that is gone right after its batch fails a drained run."""
    write_numbers(work.root / "a", 3)
    work.declare("losing")
    returned, _, errors = work.sluice("run", "s", "--strategy", "drain")
    assert returned == 1
    assert "right after batch 1" in errors
    assert "0001.json" in errors
    assert work.records()[-1]["status"] == "failed"


@in_campaigns
def test_functions_of_the_project(work: Work) -> None:
    """Functions that run in Python's workers on the server take along what they call."""
    write_numbers(work.root / "a", 2)
    work.declare("with_function")
    work.run()
    assert rows(work.root) == [(10,), (11,)]


@in_campaigns
def test_what_is_read_again(work: Work) -> None:
    """Great Expectations measures a server's frames, also with functions of its own, over all batches of the run."""
    write_files(work.root / "a", {"0.json": '{"id": 1}\n{"id": 2}', "1.json": '{"id": 2}'})
    row = partial(suites.row, policy="warn", column="id")
    expectations = [
        row("expect_column_values_to_be_unique", row_condition='col("id") > 1', condition_parser="great_expectations"),
        row("expect_column_median_to_be_between", min_value=2),
        row("expect_column_values_to_match_strftime_format", strftime_format="%Y"),
        row("unexpected_rows_expectation", unexpected_rows_query="SELECT * FROM {batch} WHERE id = 1"),
    ]
    del expectations[-1]["kwargs"]["column"]
    (work.root / "suite.json").write_bytes(suites.document(*expectations))
    work.declare("reread")

    quality = work.run()["quality"]

    assert (quality["gate"], quality["rows"]) == ("write", 3)
    distinct, median, python, query = quality["checks"]
    assert (distinct["result"]["element_count"], distinct["result"]["unexpected_count"]) == (2, 2)
    assert median["result"] == {"observed_value": 2.0}
    assert "not_measured" in python["result"]["details"]
    assert query["result"]["observed_value"] == 1


@in_campaigns
def test_a_function_as_the_sink(work: Work) -> None:
    """It is called on the server, once for each batch."""
    write_numbers(work.root / "a", 2)
    work.declare("calling")
    work.run()
    assert (work.root / "calls.txt").read_text() == "0 [0]\n1 [1]\n"


@in_campaigns
def test_a_source_twice(work: Work) -> None:
    """A source in a union with itself has two logs on a server and one without: neither goes on with the other's."""
    write_numbers(work.root / "a", 2)
    work.declare("a_twice")
    work.run("--max-batches", "1")
    work.run()
    assert rows(work.root) == [(0,), (1,), (1000,), (1001,)]
    write_numbers(work.root / "a", 1, first=2)
    before = snapshot(work.checkpoint)
    returned, _, errors = replace(work, remote="").sluice("run", "s")
    assert returned == 3
    assert "(a in log 0, a in log 0)" in errors
    assert "(a in log 0, a in log 1)" in errors
    assert snapshot(work.checkpoint) == before


@in_campaigns
def test_a_changed_order(work: Work) -> None:
    """Sources in another order are refused before anything is written."""
    write_numbers(work.root / "a", 2)
    write_numbers(work.root / "b", 2, first=10)
    work.declare("a_then_b")
    work.run("--max-batches", "1")
    work.declare("b_then_a")
    before = snapshot(work.checkpoint)
    returned, _, errors = work.sluice("run", "s")
    assert returned == 3
    assert "(b, a), the checkpoint was made with (a, b)" in errors
    assert snapshot(work.checkpoint) == before


@in_campaigns
def test_changed_state(work: Work) -> None:
    """Other keys are refused before a batch is planned, and so are other types, which the server is asked for."""
    write_numbers(work.root / "a", 2)
    work.declare("by_id")
    work.run()
    write_numbers(work.root / "a", 2, first=2)
    before = snapshot(work.checkpoint)
    work.declare("by_text")
    returned, _, errors = work.sluice("run", "s")
    assert returned == 3
    assert "from `Deduplicate by id` to `Deduplicate by text(id)`" in errors
    assert snapshot(work.checkpoint) == before

    work.declare("by_id_as_text")
    returned, _, errors = work.sluice("run", "s")
    assert returned == 3
    assert "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE" in errors
    assert not work.records()[-1]["error"]["retryable"]
    assert snapshot(work.checkpoint) == before
    assert not work.checkpoint.with_name("0001.replay").exists()

    work.declare("by_id_mended")
    record = work.run()

    assert [batch["kind"] for batch in record["plan"]["batches"]] == ["data", "data"]
    assert rows(work.root) == [(0,), (1,), (2,), (3,)]


@in_campaigns
@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_a_kill_in_the_middle_of_a_batch(work: Work, strategy: str) -> None:
    """The server goes on without its client; the next run, begun at once, ends that and repeats the batch."""
    write_numbers(work.root / "a", 3)
    work.declare("slow")
    work.hold(1)
    command = ("run", "s", "--run-key", "the only one", "--strategy", strategy)
    driver = work.start("-m", "sluice", *command)
    work.kill_when(driver, (work.root / "begun-1").exists)
    planned = (work.checkpoint / "offsets" / "1").read_bytes()

    returned, _, errors = work.sluice(*command)

    assert returned == 0, errors
    assert "which its run has left on" in errors
    assert (work.checkpoint / "offsets" / "1").read_bytes() == planned
    assert sorted(int(file.name) for file in (work.checkpoint / "commits").glob("[0-9]*")) == [0, 1, 2]
    assert [row[0] for row in rows(work.root)] == [0, 1, 2]
    assert work.lease(1)["session"]["session_id"] != work.lease(2)["session"]["session_id"]


@in_campaigns
def test_what_a_dead_run_began_never_commits(work: Work) -> None:
    """Else the next run would plan the batch again, and Spark, finding it committed, would go on beyond the plan."""
    write_numbers(work.root / "a", 3)
    work.declare("slow_and_patient")
    work.hold(0)
    driver = work.start("-m", "sluice", "run", "s")
    work.kill_when(driver, (work.root / "begun-0").exists)
    record = work.run("--max-batches", "1")
    assert [(batch["batch_id"], batch["kind"]) for batch in record["batches"]] == [(0, "uncommitted"), (1, "data")]
    assert sorted(file.name for file in (work.checkpoint / "offsets").glob("[0-9]*")) == ["0", "1"]
    assert rows(work.root) == [(0,), (1,)]


@in_campaigns
def test_a_kill_with_a_sink_that_takes_rows_twice(work: Work) -> None:
    """What the dead run had begun never ends: its function is not heard of again."""
    write_numbers(work.root / "a", 2)
    work.declare("calling_slowly")
    work.hold(0)
    driver = work.start("-m", "sluice", "run", "s")
    work.kill_when(driver, (work.root / "begun-0").exists)
    work.run()
    assert (work.root / "calls.txt").read_text() == "0 [0]\n1 [1]\n"
    assert [record["status"] for record in work.records()] == ["failed", "succeeded"]


@in_campaigns
def test_a_kill_and_a_server_that_does_not_answer(work: Work) -> None:
    """While nobody can tell whether the dead run's batch goes on, the lease holds."""
    write_numbers(work.root / "a", 2)
    work.declare("slow")
    work.hold(0)
    driver = work.start("-m", "sluice", "run", "s")
    work.kill_when(driver, (work.root / "begun-0").exists)
    before = snapshot(work.checkpoint / "offsets")
    returned, _, errors = work.sluice("run", "s", SPARK_REMOTE=f"sc://127.0.0.1:{free_port()}")
    assert returned == 5
    assert f"is dead, but what it has started on {work.remote} could not be ended" in errors
    assert snapshot(work.checkpoint / "offsets") == before
    work.run()
    assert [row[0] for row in rows(work.root)] == [0, 1]


@in_campaigns
def test_the_driver_that_airflow_starts(work: Work) -> None:
    """It is a plain Python process that is told of the server by SPARK_REMOTE alone."""
    write_numbers(work.root / "a", 2)
    work.declare("observed")
    script = str(REPOSITORY / "include" / "sluice" / "running" / "submit.py")
    driver = work.start(script, "--project", str(work.root), "--stream", "s", "--run-key", "k")
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 0, errors
    assert rows(work.root) == [(0,), (1,)]
    assert work.lease(1)["is_released"]


@pytest.mark.parametrize(
    ("name", "returned", "words"),
    [
        ("sorted_rows", 2, "Spark does not run this query as a stream: Sorting is not supported"),
        ("absent_column", 2, "UNRESOLVED_COLUMN"),
        ("stream_of_its_own", 2, "reads a stream of its own"),
        (
            "two_watermarks_in_sql",
            2,
            "does not tell how far the watermark of `a.left_at` is, which is one of several in SQL",
        ),
        ("observed", 0, "0 with problems"),
    ],
)
def test_check(work: Work, name: str, returned: int, words: str) -> None:
    """Queries are analysed by the server; a refusal names the transform's line, and nothing is written."""
    write_numbers(work.root / "a", 1)
    work.declare(name)
    before = snapshot(work.root)
    found, output, errors = work.sluice("check")
    assert (found, words in output + errors) == (returned, True), output + errors
    after = {file for file in snapshot(work.root) if "__pycache__" not in file}
    assert after == set(before)


@pytest.mark.parametrize(
    ("name", "returned", "words"),
    [("salted_cast", 1, "TASK_WRITE_FAILED"), ("salted_mismatch", 2, "`idd` cannot be resolved")],
)
def test_a_failure_tells_neither_salt_nor_row(work: Work, name: str, returned: int, words: str) -> None:
    """A server's errors quote both: what is printed and recorded says what failed."""
    write_numbers(work.root / "a", 1)
    work.declare(name)
    found, output, errors = work.sluice("run", "s", "--json")
    [record] = work.records()
    message = record["error"]["message"]
    assert (found, words in message) == (returned, True), message
    assert not [
        text for text in (output, json.dumps(record)) for secret in ("hush4canary", "7310000") if secret in text
    ]
    log = Path(record["error"]["log"])
    assert f"all of it: {log}" in errors
    assert "Exception: [" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


@in_campaigns
@pytest.mark.parametrize("name", ["doubled", "doubled_once_each", "doubled_in_a_view"])
def test_a_backfill(work: Work, name: str) -> None:
    """Whole partitions are replaced, by a batch or by a stream where Spark runs no batch; the live stream goes on."""
    write_numbers(work.root / "a", 3, rows=3)
    work.declare("dated")
    work.run()
    before = snapshot(work.checkpoint)
    work.declare(name)
    returned, output, errors = work.sluice("backfill", "s", "--start", "2026-01-02", "--end", "2026-01-04", "--json")
    assert returned == 0, errors
    assert json.loads(output)["backfill"]["rows_written"] == 6
    assert ("running it as a stream" in errors) == (name == "doubled_once_each")
    days = {0: [0, 3, 6], 1: [2, 8, 14], 2: [4, 10, 16]}
    found = [(day.day - 1, number) for day, number in rows(work.root)]
    assert sorted(found) == [(day, number) for day, ids in days.items() for number in ids]
    assert snapshot(work.checkpoint) == before


@in_campaigns
def test_a_backfill_of_part_of_a_partition(work: Work) -> None:
    """Spark replaces the rows on the server, under the live stream's lease."""
    write_numbers(work.root / "a", 2, rows=3)
    work.declare("undated_doubled_first")
    work.run()
    work.declare("undated_doubled")
    returned, _, errors = work.sluice("backfill", "s", "--start", "2026-01-02", "--end", "2026-01-03")
    assert returned == 0, errors
    assert [number for _, number in rows(work.root)] == [0, 3, 2, 8, 2, 5]


@in_campaigns
def test_nobody_answers(work: Work) -> None:
    """One message within seconds, without the token; no checkpoint is begun."""
    write_numbers(work.root / "a", 1)
    work.declare("observed")
    begun = time.monotonic()
    remote = f"sc://localhost:{free_port()}"
    returned, output, errors = work.sluice("run", "s", SPARK_REMOTE=f"{remote}/;token={TOKEN}")
    assert returned == 1
    assert f"no Spark Connect server answers within 10 seconds\n  where: {remote}\n" in errors
    assert time.monotonic() - begun < 30
    assert not work.checkpoint.exists()
    assert_secret(work, output + errors)


@in_campaigns
def test_a_wrong_token(work: Work, plain_server: Server) -> None:
    """The server's refusal is passed on, without the token."""
    write_numbers(work.root / "a", 1)
    work.declare("b_with_a")
    returned, output, errors = work.sluice(
        "run", "s", SPARK_REMOTE=f"sc://localhost:{plain_server.port}/;token={TOKEN}x"
    )
    assert returned == 1
    assert "the Spark Connect server refuses this client" in errors
    assert not work.checkpoint.exists()
    assert_secret(work, output + errors)


@pytest.mark.parametrize("url", ["sc://", "sc://localhost:99999999", "sc://localhost/;token", "sc://localhost/path/;"])
def test_a_url_that_is_none(work: Work, url: str) -> None:
    """The message says how to write it, and does not quote it."""
    write_numbers(work.root / "a", 1)
    work.declare("observed")
    returned, output, errors = work.sluice("run", "s", SPARK_REMOTE=f"{url};x={TOKEN}")
    assert returned == 2
    assert "the URL of the Spark Connect server is not right" in errors
    assert_secret(work, output + errors)


@in_campaigns
def test_a_server_without_delta(work: Work, plain_server: Server) -> None:
    """It is refused before anything is written; a stream without Delta runs, and its token is nowhere to be found."""
    for folder in ("a", "b"):
        write_numbers(work.root / folder, 1)
    token = f"sc://localhost:{plain_server.port}/;token={TOKEN}"
    work.declare("observed")
    returned, output, errors = work.sluice("run", "s", SPARK_REMOTE=token)
    assert returned == 2
    assert "can't read or write Delta tables: its `spark.sql.extensions` is ''" in errors
    assert not work.checkpoint.exists()
    work.declare("b_with_a")
    returned, *said = work.sluice("run", "s", SPARK_REMOTE=token)
    assert returned == 0, said
    assert_secret(work, output + errors + "".join(said))


@in_campaigns
def test_settings_that_only_a_server_has(work: Work) -> None:
    """A static setting that the server has otherwise is refused; one of the session is set."""
    write_numbers(work.root / "a", 1)
    work.declare("windows")
    with (work.root / "sluice.toml").open("a") as file:
        file.write('[spark.conf]\n"spark.executor.memory" = "3g"\n"spark.sql.shuffle.partitions" = 3\n')
    returned, _, errors = work.sluice("run", "s")
    assert returned == 2
    assert "only the server itself can have these settings: `spark.executor.memory`" in errors
    text = (work.root / "sluice.toml").read_text().replace('"spark.executor.memory" = "3g"\n', "")
    (work.root / "sluice.toml").write_text(text)
    work.run()
    assert '"spark.sql.shuffle.partitions":"3"' in (work.checkpoint / "offsets" / "0").read_text()


@in_campaigns
def test_a_home_that_the_server_does_not_see(work: Work) -> None:
    """A folder that means another one there is refused: Spark would begin a checkpoint of its own."""
    write_numbers(work.root / "a", 1)
    work.declare("observed")
    returned, _, errors = work.sluice("run", "s", SLUICE_HOME="/proc/self/cwd/var/sluice")
    assert returned == 2
    assert "does not see the files of this home" in errors
    assert not work.checkpoint.exists()


@in_campaigns
def test_a_server_that_dies(work: Work, tmp_path: Path) -> None:
    """The run fails within a minute or so, and a later one on another server finishes what it had planned."""
    write_numbers(work.root / "a", 2)
    work.declare("slow")
    work.hold(0)
    with serving(tmp_path / "other", DELTA) as other:
        driver = replace(work, remote=other.url).start("-m", "sluice", "run", "s")
        while not (work.root / "begun-0").exists():
            assert driver.poll() is None
            time.sleep(0.01)
        os.killpg(other.process.pid, signal.SIGKILL)
        _, errors = driver.communicate(timeout=150)
    assert driver.returncode == 1
    assert "Spark failed" in errors
    work.run()
    assert [row[0] for row in rows(work.root)] == [0, 1]


def assert_secret(work: Work, said: str) -> None:
    """The token is in no message, and in no file below the project."""
    assert TOKEN not in said
    assert not [name for name, content in snapshot(work.root).items() if TOKEN.encode() in content]


def test_the_session_of_the_tests_is_in_this_process(spark: SparkSession) -> None:
    """What is compared with a server's results does not come from one."""
    assert type(spark).__module__ == "pyspark.sql.session"
