"""How Spark's JVM is started: with the launch profile, and all the same when something is wrong with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice.documents import encode_document
from sluice.spark.launch_profile import LaunchProfile, current_profile
from tests.campaign import in_campaigns, rarely

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("opened_session.py")
SECRET = 'hush "ü" back\\slash'
KEY = "spark.sluice.test.secret"
FLIPPED_BYTES = 4096


@dataclass(frozen=True)
class Opened:
    """What a driver told, and what anybody could see of it meanwhile."""

    told: Mapping[str, Any]
    seen: str
    """The command lines and environments of all its processes."""
    log: str


def open_in_driver(tmp_path: Path, environment: Mapping[str, str] | None = None, master: str = "local[2]") -> Opened:
    secret = tmp_path / "secret"
    secret.write_text(SECRET, "utf-8")
    with (tmp_path / "log").open("w+") as log:
        driver = subprocess.Popen(
            [sys.executable, str(PROGRAM), KEY, str(secret), master],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
            cwd=tmp_path,
        )
        seen: set[str] = set()
        while not has_ended(driver):
            seen.update(told for process in descendants(driver.pid) for told in look_at(process))
        log.seek(0)
        logged = log.read()
    assert driver.stdout is not None
    printed = driver.stdout.read()
    driver.stdout.close()
    assert driver.returncode == 0, logged
    return Opened(json.loads(printed.splitlines()[-1]), "\n".join(seen), logged)


def has_ended(driver: subprocess.Popen[str]) -> bool:
    """Whether it ends before it is to be looked at again; a launcher lives for half a second."""
    try:
        driver.wait(0.1)
    except subprocess.TimeoutExpired:
        return False
    return True


def descendants(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from descendants(int(child))


def look_at(pid: int) -> Iterator[str]:
    for name in ("cmdline", "environ"):
        try:
            yield Path(f"/proc/{pid}/{name}").read_text("utf-8", "replace").replace("\0", "\n")
        except OSError:
            continue


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchProfile:
    """A copy of this environment's profile."""
    own = current_profile()
    assert own.why_unfit() is None, "`make setup` builds it"
    monkeypatch.setenv("SLUICE_PROFILES", str(tmp_path / "profiles"))
    shutil.copytree(own.folder, current_profile().folder)
    return current_profile()


def flip(file: Path, position: float) -> None:
    """Change a page of a file, and let nobody see it from outside."""
    before = file.stat()
    with file.open("r+b") as opened:
        opened.seek(int(before.st_size * position))
        found = opened.read(FLIPPED_BYTES)
        opened.seek(-len(found), os.SEEK_CUR)
        opened.write(bytes(byte ^ 0xFF for byte in found))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_with_a_profile(tmp_path: Path) -> None:
    """The driver starts one JVM, with the archive; settings arrive as they are, Java's too, and nobody sees them.

    Wherever the machine is, Python functions see times as Spark's do.
    """
    opened = open_in_driver(tmp_path, {"TZ": "Asia/Tokyo"})
    assert opened.told["rows"] == 4950
    assert opened.told["python_time"] == "2026-03-29T00:30:00"
    assert (opened.told["value"], opened.told["java_value"]) == (SECRET, SECRET)
    assert opened.told["has_archive"]
    assert "org.apache.spark.launcher.Main" not in opened.seen
    assert "hush" not in opened.seen


def test_without_a_profile(tmp_path: Path) -> None:
    """Spark's own launcher does it, and nobody sees the settings either."""
    opened = open_in_driver(tmp_path, {"SLUICE_PROFILES": str(tmp_path / "none")})
    assert (opened.told["value"], opened.told["java_value"]) == (SECRET, SECRET)
    assert not opened.told["has_archive"]
    assert "org.apache.spark.launcher.Main" in opened.seen
    assert "hush" not in opened.seen


@pytest.mark.parametrize("position", [0.0, *rarely(0.05, 0.5)])
def test_a_damaged_archive(position: float, profile: LaunchProfile, tmp_path: Path) -> None:
    """Java notices by itself; the run is right, and nothing is said."""
    flip(profile.archive, position)
    opened = open_in_driver(tmp_path)
    assert opened.told["rows"] == 4950
    assert "archive" not in opened.log
    assert "shared" not in opened.log


def test_a_java_that_refuses_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver says so, and starts it without the profile."""
    own = current_profile()
    wrapper = tmp_path / "jdk" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    real = own.installation.java
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *SharedArchiveFile*) exit 1;; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("SLUICE_PROFILES", str(tmp_path / "profiles"))
    shutil.copytree(own.folder, current_profile().folder)
    assert current_profile().why_unfit() is None
    opened = open_in_driver(tmp_path)
    assert opened.told["rows"] == 4950
    assert "without its launch profile: Spark could not be started: its JVM ended with exit code 1" in opened.log


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile needs no more than to be read; one that can't be written is said by whoever builds it."""
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("SLUICE_PROFILES", str(blocked / "profiles"))
    assert open_in_driver(tmp_path).told["rows"] == 4950
    built = run_sluice("profile", "build")
    assert built.returncode == 1
    assert "the launch profile can't be written" in built.stderr
    assert "SLUICE_PROFILES" in built.stderr


def run_sluice(*arguments: str, limit: str = "") -> subprocess.CompletedProcess[str]:
    sluice = [str(Path(sys.executable).with_name("sluice")), *arguments]
    command = ["sh", "-c", f'{limit}; exec "$@"', "sh", *sluice] if limit else sluice
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@in_campaigns
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No archive is left that is only half there."""
    monkeypatch.setenv("SLUICE_PROFILES", str(tmp_path))
    built = run_sluice("profile", "build", limit="ulimit -f 40000")
    assert built.returncode == 1, built.stdout + built.stderr
    assert current_profile().why_unfit() is not None
    assert not list(tmp_path.glob("*/classes.jsa"))
    assert not list(tmp_path.glob("*/.build-*"))


@in_campaigns
def test_a_build_beside_another_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that starts it was told of a home, of declarations and of a Spark; none of them is the training's."""
    home = tmp_path / "home"
    monkeypatch.setenv("SLUICE_PROFILES", str(tmp_path / "profiles"))
    for name, value in {
        "SLUICE_HOME": str(home),
        "SLUICE_STREAMS": str(tmp_path),
        "SLUICE_SPARK_MASTER": "spark://127.0.0.1:1",
        "SPARK_REMOTE": "sc://127.0.0.1:1",
        "PYSPARK_GATEWAY_PORT": "1",
        "PYSPARK_GATEWAY_SECRET": "x",
    }.items():
        monkeypatch.setenv(name, value)
    built = run_sluice("profile", "build")
    assert built.returncode == 0, built.stderr
    assert not home.exists()


@in_campaigns
def test_a_java_that_makes_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why it can't be built is told and kept, and runs do not try it again each time."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    real = current_profile().installation.java
    java.write_text(f'#!/bin/sh\ncase "$*" in *ArchiveClassesAtExit*) exit 1;; esac\nexec {real} "$@"\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("SLUICE_PROFILES", str(tmp_path / "profiles"))
    built = run_sluice("profile", "build")
    assert built.returncode == 1
    assert "its JVM ended with exit code 1" in built.stderr
    assert "it could not be built" in str(current_profile().why_unfit())
    assert not current_profile().is_worth_building()


@in_campaigns
def test_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the place of an earlier one, removes those of Sparks that are gone, and is shown."""
    monkeypatch.setenv("SLUICE_PROFILES", str(tmp_path))
    own = current_profile()
    gone, earlier = tmp_path / "gone", tmp_path / "earlier"
    for folder, home in ((gone, "/nowhere"), (earlier, own.installation.spark_home)):
        folder.mkdir()
        record = {"java": "/bin/sh", "spark_home": home, "built_at": "2026-01-01T00:00:00Z", "format": 1}
        (folder / "profile.json").write_bytes(encode_document(record))
    assert run_sluice("profile", "build").returncode == 0
    shown = json.loads(run_sluice("profile", "show", "--json").stdout)
    assert shown["usable"] is True
    assert [found.name for found in tmp_path.iterdir()] == [own.folder.name]
    assert open_in_driver(tmp_path).told["has_archive"]


@in_campaigns
def test_the_first_run_lets_it_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the background: the run is done before, and the next one takes the profile."""
    monkeypatch.setenv("SLUICE_PROFILES", str(tmp_path / "profiles"))
    project = copy_template(tmp_path)
    assert run_sluice("run", "visits", "--project", str(project)).returncode == 0
    assert current_profile().why_unfit() is not None
    deadline = time.monotonic() + 300
    while current_profile().why_unfit() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert open_in_driver(tmp_path).told["has_archive"]


def copy_template(tmp_path: Path) -> Path:
    template = Path(__file__).parents[2] / "include" / "sluice" / "template" / "project"
    return Path(shutil.copytree(template, tmp_path / "project"))


def test_a_memory_that_java_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said which setting to look at."""
    project = copy_template(tmp_path)
    with (project / "sluice.toml").open("a") as file:
        file.write('conf = { "spark.driver.memory" = "900000t" }\n')
    done = run_sluice("run", "visits", "--project", str(project))
    assert done.returncode == 1
    assert "the settings in [spark]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_spark_does_not_take(tmp_path: Path) -> None:
    """No plan knows it; it is said in a line which one it is, and not what it is, for that may be a secret."""
    project = copy_template(tmp_path)
    with (project / "sluice.toml").open("a") as file:
        file.write('conf = { "spark.sql.optimizer.maxIterations" = "hush" }\n')
    done = run_sluice("run", "visits", "--project", str(project))
    assert done.returncode == 2
    assert 'in the config "spark.sql.optimizer.maxIterations" is invalid' in done.stderr
    assert "correct its value" in done.stderr
    assert "Traceback" not in done.stderr
    assert "hush" not in done.stderr
