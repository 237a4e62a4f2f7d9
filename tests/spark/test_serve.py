"""A Spark that `sluice serve` keeps warm, by the command line: runs take it where it does the same as their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice.runs.process import Process, is_alive
from tests.campaign import in_campaigns, rarely
from tests.spark.lab import append_outside, write_files, write_numbers
from tests.spark.test_connect import Work, rows
from tests.unit.quality import suites

pytestmark = pytest.mark.spark

_PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Served(Work):
    """A project whose Spark is that of `sluice serve`, where one is there."""

    def declare(self, stream: str) -> None:
        super().declare(stream)
        (self.root / "sluice.toml").write_text('[project]\nname = "work"\n[spark]\nmaster = "serve"\n')

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"SLUICE_SERVERS": str(self.root / "servers")}

    @property
    def files(self) -> list[Path]:
        return list((self.root / "servers").glob("*.json"))

    def server(self) -> dict[str, Any]:
        (file,) = self.files
        return json.loads(file.read_bytes())

    def run_once(self, *options: str, **environment: str) -> str:
        """What a run that succeeds says."""
        returned, _, errors = self.sluice("run", "s", *options, **environment)
        assert returned == 0, errors
        return errors

    def was_warm(self, token: int) -> bool:
        """Whether a run, by its lease, has worked on a server."""
        return self.lease(token)["session"] is not None

    def forget(self) -> None:
        """Empty the project; its server stays."""
        for path in self.root.iterdir():
            if path.name == "servers":
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for folder in ("a", "b"):
            (self.root / folder).mkdir()


@contextmanager
def serving(work: Served, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`sluice serve`, once it says that it serves, until this ends; its output is in `serve.log`."""
    with (work.root / "servers.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sluice", "serve", *options],
            cwd=work.root,
            env=work.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(lambda: bool(work.files) or process.poll() is not None)
        assert process.poll() is None, (work.root / "servers.log").read_text()
        yield process  # type: ignore[misc]
    finally:
        with_jvm = work.server()["jvm"]["pid"] if work.files else None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        if with_jvm is not None:
            until(lambda: not Path(f"/proc/{with_jvm}").exists())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill_once(driver: subprocess.Popen[str], file: Path) -> None:
    """Kill a driver as soon as a file is there."""
    until(lambda: file.exists() or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A project with a server."""
    work = Served(tmp_path_factory.mktemp("served"), "")
    work.declare("as_it_is")
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
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    return Served(tmp_path, "")


def test_warm_and_cold_runs_by_turns(work: Served) -> None:
    """A checkpoint goes from one to the other and back; a table that was made anew is read as it is now."""
    write_numbers(work.root / "a", 2)
    work.declare("observed")
    work.run_once()
    write_numbers(work.root / "a", 1, first=2)
    work.run_once(SLUICE_SPARK_MASTER="local[2]")
    write_numbers(work.root / "a", 1, first=3)
    work.run_once()

    assert rows(work.root) == [(0,), (1,), (2,), (3,)]
    assert [work.was_warm(token) for token in (1, 2, 3)] == [True, False, True]
    assert work.lease(1)["session"]["process"] == work.server()["jvm"]
    assert [record["status"] for record in work.records()] == ["succeeded"] * 3


def test_nobody_else_finds_the_way_in(work: Served) -> None:
    """The token is in a file of the user's alone: in no command line, and in nothing that is printed."""
    work.declare("as_it_is")
    server = work.server()
    (file,) = work.files
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for name in ("watcher", "jvm"):
        assert server["token"].encode() not in Path(f"/proc/{server[name]['pid']}/cmdline").read_bytes()
    lines = (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines()
    ends = {line.split()[1] for line in lines if line.split()[1].endswith(f":{server['port']:04X}")}
    assert {end.partition(":")[0] for end in ends} <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert ends
    returned, output, errors = work.sluice("serve", "--status", "--json")
    assert returned == 0, errors
    assert json.loads(output)["jvm_pid"] == server["jvm"]["pid"]
    assert server["token"] not in output + errors


def test_a_second_server(work: Served) -> None:
    """One is there already, and that is all that was wanted; with other settings, it is not what was wanted."""
    work.declare("as_it_is")
    returned, output, _ = work.sluice("serve")
    assert (returned, f"process {work.server()['watcher']['pid']}," in output) == (0, True)
    with (work.root / "sluice.toml").open("a") as file:
        file.write('conf = { "spark.locality.wait" = "1s" }\n')
    returned, _, errors = work.sluice("serve")
    assert (returned, "other settings: spark.locality.wait" in errors) == (1, True)
    write_numbers(work.root / "a", 1)
    assert "`sluice serve` was started with other settings: spark.locality.wait" in work.run_once()
    assert (rows(work.root), work.was_warm(1)) == ([(0,)], False)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ("a_twice", "a source is read twice"),
        ("windows", "the query keeps state"),
        *rarely(("calling", "a foreach_batch sink is written by the run's own process")),
    ],
)
def test_what_a_server_would_do_otherwise(work: Served, stream: str, reason: str) -> None:
    """It is done by a Spark of the run's own, and not refused."""
    write_numbers(work.root / "a", 1)
    work.declare(stream)
    assert f"starting a Spark of its own: {reason}" in work.run_once()
    assert not work.was_warm(1)


def test_rows_are_judged_before_they_are_written(work: Served) -> None:
    """As without a server: what fails is never published."""
    write_files(work.root / "a", {"0.json": '{"id": 1}'})
    (work.root / "suite.json").write_bytes(
        suites.document(suites.row("expect_column_values_to_be_between", policy="fail", column="id", max_value=0))
    )
    work.declare("checked")
    returned, _, errors = work.sluice("run", "s")
    assert (returned, "its rows are judged before they are written" in errors) == (4, True)
    assert not list((work.root / "out").glob("*.parquet"))


def test_a_client_that_is_killed(work: Served) -> None:
    """The server goes on with its batch; the next run ends that, and repeats it on the same server."""
    write_numbers(work.root / "a", 3)
    work.declare("slow")
    work.hold(1)
    driver = work.start("-m", "sluice", "run", "s")
    kill_once(driver, work.root / "begun-1")
    planned = (work.checkpoint / "offsets" / "1").read_bytes()

    assert "which its run has left on" in work.run_once()

    assert (work.checkpoint / "offsets" / "1").read_bytes() == planned
    assert rows(work.root) == [(0,), (1,), (2,)]
    assert work.was_warm(2)


def test_a_backfill_and_a_check(work: Served) -> None:
    """Both take the server: neither says that it starts a Spark of its own."""
    write_numbers(work.root / "a", 3)
    work.declare("dated")
    work.run_once()
    work.declare("doubled")
    returned, _, errors = work.sluice("backfill", "s", "--start", "2026-01-02", "--end", "2026-01-03")
    assert (returned, "of its own" in errors) == (0, False), errors
    returned, _, errors = work.sluice("check")
    assert (returned, "of its own" in errors) == (0, False), errors
    assert sorted(row[-1] for row in rows(work.root)) == [0, 2, 2]


def test_a_setting_that_spark_fails_of(work: Served) -> None:
    """It is told as without a server, by a check and before a run plans anything."""
    write_numbers(work.root / "a", 1)
    work.declare("as_it_is")
    code = work.root / "streams" / "s.py"
    declared = "s = replace(s, conf={'spark.sql.streaming.minBatchesToRetain': '0'})\n"
    code.write_text(f"from dataclasses import replace\n{code.read_text()}{declared}")
    for command in (["check"], ["run", "s"]):
        returned, told, errors = work.sluice(*command)
        assert returned == 2
        assert "minBatchesToRetain has to be positive" in told + errors
    assert not (work.checkpoint / "offsets").exists()


def test_a_watcher_that_is_killed_in_the_middle_of_a_batch(alone: Served) -> None:
    """Its JVM goes with it; the run fails, and the next one, with a Spark of its own, goes on at once."""
    write_numbers(alone.root / "a", 2)
    alone.declare("slow")
    alone.hold(0)
    with serving(alone) as watcher:
        driver = alone.start("-m", "sluice", "run", "s")
        until((alone.root / "begun-0").exists)
        jvm = Process(**alone.server()["jvm"])
        watcher.kill()
        until(lambda: not is_alive(jvm))
        errors = driver.communicate(timeout=_PATIENCE_SECONDS)[1]
        assert driver.returncode == 1, errors
    assert "which was `sluice serve`, is gone" in alone.run_once()
    assert rows(alone.root) == [(0,), (1,)]


def test_a_server_that_nobody_asks(alone: Served) -> None:
    """It ends once no run has come for so long; a batch that takes longer than that is none of its business."""
    write_numbers(alone.root / "a", 1)
    alone.declare("slow")
    alone.hold(0)
    with serving(alone, "--idle", "4s") as watcher:
        driver = alone.start("-m", "sluice", "run", "s")
        until((alone.root / "begun-0").exists)
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 6 or watcher.poll() is not None)
        assert watcher.poll() is None
        (alone.root / "held-0").unlink()
        assert driver.wait(60) == 0, driver.communicate()
        driver.communicate()
        assert watcher.wait(60) == 0
        assert not alone.files
    assert "no run has asked for anything in 4s" in (alone.root / "servers.log").read_text()
    assert rows(alone.root) == [(0,)]


@in_campaigns
def test_a_server_whose_jvm_dies(alone: Served) -> None:
    """It ends, says so, and leaves no file; with another one, the next run goes on at once."""
    write_numbers(alone.root / "a", 2)
    alone.declare("slow")
    alone.hold(0)
    with serving(alone) as watcher:
        driver = alone.start("-m", "sluice", "run", "s")
        kill_once(driver, alone.root / "begun-0")
        os.kill(alone.server()["jvm"]["pid"], signal.SIGKILL)
        assert watcher.wait(60) == 1
        assert not alone.files
    assert "Spark is gone" in (alone.root / "servers.log").read_text()
    with serving(alone):
        alone.run_once()
        assert alone.was_warm(2)
    assert rows(alone.root) == [(0,), (1,)]


@in_campaigns
def test_a_disk_that_is_full(alone: Served) -> None:
    """Where the file can't be written, nobody could find the server: it ends, with its JVM."""
    alone.declare("as_it_is")
    program = (
        "import errno, os\nfrom sluice import local_disk\n"
        "def full(_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "os.fsync = full\nfrom sluice.cli.app import main\nmain()"
    )
    (alone.root / "servers").mkdir(mode=0o700)
    process = alone.start("-c", program, "serve")
    errors = process.communicate(timeout=_PATIENCE_SECONDS)[1]
    assert (process.returncode, "No space left on device" in errors) == (1, True), errors
    assert "log4j" in errors, "no JVM was started"
    assert not alone.files
    until(lambda: not any(str(process.pid) == line.split()[3] for line in _stats()))


def _stats() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield file.read_text().replace("(", "").replace(")", "")
        except OSError:
            continue


@in_campaigns
def test_a_table_that_was_made_anew(work: Served) -> None:
    """What a server has read of a table's log, it does not take for another table at the same place."""
    for first in (0, 10):
        work.forget()
        append_outside(work.root / "table", [first])
        work.declare("from_a_table")
        work.run_once()
        assert rows(work.root) == [(first,)]
