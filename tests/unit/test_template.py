"""The project that `sluice init` makes."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluice.errors import DeclarationError
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.project import find_project
from sluice.sources.contract import Bound
from sluice.template import create_project


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SLUICE_HOME", "SLUICE_PROJECT", "SLUICE_SPARK_MASTER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_new_project(tmp_path: Path) -> None:
    """The new project has a declared stream, its transform and its data, and nothing that was compiled."""
    create_project(tmp_path / "visits")
    stream = find_project(str(tmp_path / "visits")).stream("visits")

    assert stream.transform == "jobs.visits:visits"
    assert find_project(str(tmp_path / "visits")).name == "visits"
    assert stream.backfill_obstacle is None
    for name in (".gitignore", "dags/visits.py", "suites/visits.json", "tests/conftest.py", "tests/test_visits.py"):
        assert (tmp_path / "visits" / name).is_file()
    assert (tmp_path / "visits" / "jobs" / "visits.py").is_file()
    assert stream.sink.location == f"{tmp_path}/visits/data/lake/visits"
    assert not list(tmp_path.rglob("__pycache__"))
    assert not list(tmp_path.rglob("__init__.py"))


def test_new_project_plans(tmp_path: Path) -> None:
    """Its stream has something to do at once."""
    create_project(tmp_path / "visits")
    project = find_project(str(tmp_path / "visits"))
    plan = plan_stream(project, Request(project.stream("visits"), Limits(), None))

    assert (plan.verdict, plan.strategy, plan.warnings) == ("run", "exact", ())
    assert [batch.sources["visits"].amount["files"] for batch in plan.batches] == [2]


def test_what_arrived_after_the_bound_is_told(tmp_path: Path) -> None:
    """The first scheduled run ends before the sample's files came: its skip says that they are there."""
    create_project(tmp_path / "visits")
    project = find_project(str(tmp_path / "visits"))
    limits = Limits(Bound(until=datetime(2026, 1, 1, tzinfo=UTC)))
    for file in (tmp_path / "visits" / "data").rglob("*.json"):
        os.utime(file, (1_800_000_000, 1_800_000_000))

    plan = plan_stream(project, Request(project.stream("visits"), limits, None))

    reason = "nothing new before 2026-01-01T00:00:00+00:00; left to a later run: 2 files that arrived after that"
    assert (plan.verdict, plan.reason) == ("skip", reason)


def test_a_folder_by_way_of_one_that_is_not_there(tmp_path: Path) -> None:
    """`new` would be made on the way, and `new/../shop` be the project that is there."""
    create_project(tmp_path / "shop")
    declaration = tmp_path / "shop" / "streams" / "visits.py"
    declaration.write_text("# a user's own")

    with pytest.raises(DeclarationError, match="the folder is not empty"):
        create_project(tmp_path / "new" / ".." / "shop")
    assert declaration.read_text() == "# a user's own"


def test_files_are_the_users_own(tmp_path: Path) -> None:
    """Every file may be written, however the package was installed."""
    create_project(tmp_path)

    assert all(path.stat().st_mode & 0o200 for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["notes.txt", ".git/config"])
def test_folder_in_use(tmp_path: Path, name: str) -> None:
    """A folder with anything in it is refused, and left as it is."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()

    with pytest.raises(DeclarationError, match="not empty") as caught:
        create_project(tmp_path)

    assert caught.value.where == str(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [Path(name).parts[0]]


def test_file_in_the_way(tmp_path: Path) -> None:
    """A file is no folder, nor is a folder below one."""
    (tmp_path / "file").touch()

    with pytest.raises(DeclarationError, match="a file is where the folder should be"):
        create_project(tmp_path / "file")
    with pytest.raises(DeclarationError, match="a file is where the folder should be"):
        create_project(tmp_path / "file" / "project")


def test_its_dag_is_one(tmp_path: Path) -> None:
    """The DAG file names the stream, and nothing that the project lacks."""
    create_project(tmp_path / "shop")
    text = (tmp_path / "shop" / "dags" / "visits.py").read_text("utf-8")

    assert 'stream_dag("visits"' in text
    compile(text, "visits.py", "exec")


def test_no_java(tmp_path: Path) -> None:
    """Without Java, which the first run needs, nothing is made."""
    command = [sys.executable, "-m", "sluice", "init", str(tmp_path / "shop")]
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == DeclarationError.exit_code
    assert "there is no `java`" in done.stderr
    assert not (tmp_path / "shop").exists()
