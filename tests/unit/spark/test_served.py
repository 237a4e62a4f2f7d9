"""The file of a warm Spark: who may be relied on, and for which settings; no Spark is started."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyspark
import pytest
from hypothesis import given

from sluice.documents import encode_document
from sluice.project import Project
from sluice.runs.lease import RemoteSession
from sluice.runs.process import Process, boot_id, machine, process
from sluice.spark.served import (
    NotServed,
    ServerFile,
    end_served,
    fitting_server,
    is_served,
    running_server,
    server_path,
    told_apart,
)
from tests.builders import NOW
from tests.fuzzing import short

START = {"spark.driver.memory": "1g", "spark.hadoop.key": "hush4canary"}
TOKEN = "0f1e" * 16


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project that takes a warm Spark, and whose user keeps what tells of it in a folder of this test."""
    monkeypatch.setenv("SLUICE_SERVERS", str(tmp_path / "servers"))
    (tmp_path / "servers").mkdir()
    (tmp_path / "p").mkdir()
    root = str(tmp_path / "p")
    return Project(root=root, name="p", home=f"{root}/home", stream_folders=(), import_roots=(), spark_master="serve")


def put_file(of: Project, /, mode: int = 0o600, **changes: Any) -> Path:
    """The file of a server that is this process."""
    server = ServerFile(
        project=os.path.realpath(of.root),
        watcher=process(os.getpid()),
        jvm=process(os.getpid()),
        machine=machine(),
        boot_id=boot_id(),
        spark=pyspark.__version__,
        python=sys.prefix,
        port=15002,
        token=TOKEN,
        settings=told_apart(START, TOKEN),
        idle="15m",
        started_at=NOW,
    )
    path = server_path(of)
    path.write_bytes(encode_document(msgspec.structs.replace(server, **changes)))
    path.chmod(mode)
    return path


def test_one_that_fits(project: Project) -> None:
    """It is found by the project's folder, under whatever name."""
    put_file(project)
    assert fitting_server(project, START).url == f"sc://127.0.0.1:15002/;use_ssl=false;token={TOKEN}"
    link = Path(project.root).with_name("link")
    link.symlink_to(project.root)
    assert fitting_server(replace(project, root=str(link)), START).port == 15002


def test_whom_it_serves(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that `spark-submit` has started has a Spark already."""
    assert is_served(project)
    assert not is_served(replace(project, spark_master="local[*]"))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not is_served(project)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"spark": "4.1.0"}, "`sluice serve` is Spark 4.1.0, this is"),
        ({"python": "/elsewhere"}, "another Python, that of /elsewhere"),
        ({"settings": {}}, "with other settings: spark.driver.memory, spark.hadoop.key"),
        ({"settings": told_apart({**START, "spark.more": "1"}, TOKEN)}, "with other settings: spark.more"),
        ({"settings": told_apart({**START, "spark.driver.memory": "2g"}, TOKEN)}, "settings: spark.driver.memory"),
        ({"watcher": Process(os.getpid(), 1)}, "which was `sluice serve`, is gone"),
        ({"jvm": Process(2**22 + 1, 7)}, "which was `sluice serve`, is gone"),
        ({"watcher": Process(os.getpid(), None)}, "which was `sluice serve`, is gone"),
        ({"boot_id": "another"}, "which was `sluice serve`, is gone"),
        ({"machine": "another"}, "which was `sluice serve`, is gone"),
        ({"project": "/elsewhere"}, "is another project's"),
        ({"format": 2}, "is of a newer Sluice"),
        ({"mode": 0o640}, "is not this user's alone"),
        ({"mode": 0o602}, "is not this user's alone"),
    ],
)
def test_one_that_does_not_fit(project: Project, changes: dict[str, Any], reason: str) -> None:
    """It is not taken, and that is said; a number of a process that another one has by now is none of its."""
    put_file(project, **changes)
    with pytest.raises(NotServed, match=reason):
        fitting_server(project, START)


def test_another_users_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever puts one there would be sent this user's code."""
    put_file(project)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(NotServed, match="is not this user's alone"):
        running_server(project)


@pytest.mark.parametrize(
    ("put", "reason"),
    [
        (lambda _: None, "no `sluice serve` runs"),
        (lambda path: path.mkdir(mode=0o700), "is not this user's alone"),
        (lambda path: os.mkfifo(path, 0o600), "is not this user's alone"),
        (lambda path: path.symlink_to("/etc/passwd"), "can't be read"),
    ],
    ids=["none", "folder", "pipe", "link"],
)
def test_what_is_no_file(project: Project, put: Callable[[Path], object], reason: str) -> None:
    """Nothing is followed, and nothing waited for."""
    put(server_path(project))
    with pytest.raises(NotServed, match=reason):
        running_server(project)


@short
@given(content=...)
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes are no server."""
    root = tmp_path_factory.getbasetemp()
    project = Project(root=str(root), name="p", home=str(root), stream_folders=(), import_roots=())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLUICE_SERVERS", str(root))
        path = server_path(project)
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(NotServed):
            running_server(project)


def test_what_it_shows(project: Project) -> None:
    """Neither the token nor a setting's value: of that, the file has only what tells it from others."""
    path = put_file(project)
    assert TOKEN not in repr(running_server(project))
    assert "hush4canary" not in path.read_text()


def test_a_session_on_another_server(project: Project) -> None:
    """It is not ended, for nobody knows how."""
    remote = RemoteSession("sc://localhost:1", "ann", "7c9f", Process(1, 1))
    assert end_served(project, remote) == "no `sluice serve` runs for this project"
    put_file(project)
    assert end_served(project, remote) == "it is on another server, process 1"


def test_a_user_without_a_home_folder(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows where a server's file would be: none is found, and no session is ended; nothing is raised of it."""

    def unknown(_uid: int) -> None:
        raise KeyError

    for name in ("SLUICE_SERVERS", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert (
        end_served(project, RemoteSession("sc://localhost:1", "ann", "7c9f", Process(1, 1)))
        == "this user has no home folder"
    )
    with pytest.raises(NotServed, match="this user has no home folder"):
        fitting_server(project, START)
