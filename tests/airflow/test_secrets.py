"""Secrets of every kind go through a task, its driver and Spark, once well and once ill: nothing of ours tells one."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from airflow.utils.state import DagRunState
from airflow_project import StreamProject
from sqlalchemy import text

from tests.campaign import rarely

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]

START = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = (
    *("conf_by_name", "conf_by_any_name", "java_option", "storage", "connection_password", "connection_extra"),
    *("environment", "literal", "url_of_a_setting", "url_of_an_error"),
)
CANARIES = {kind: f"canary{number:02d}{secrets.token_hex(8)}" for number, kind in enumerate(KINDS)}
"""No value of a secret is a part of any other word."""
_SETTINGS = """
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "{conf_by_name}"
"spark.example.of.anything" = "{conf_by_any_name}"
"spark.example.url" = "https://me:{url_of_a_setting}@example.org/"
"spark.driver.extraJavaOptions" = "-Dexample.word={java_option}"
[storage]
aws_secret_access_key = "{storage}"
"""
_CONNECTION = {
    "conn_type": "spark",
    "host": "local[2]",
    "password": CANARIES["connection_password"],
    # What only `spark-submit` follows; who reads it finds a secret beside it.
    "extra": {"queue": "any", "api_key": CANARIES["connection_extra"]},
}
_TRANSFORM = """
import json, os, time
from pathlib import Path
from pyspark.sql import functions as F

def processes():
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                yield name, folder.name, (folder / name).read_bytes().decode(errors="replace")
            except OSError:
                continue
    for file in Path({aside!r}).rglob("*"):
        if file.is_file():
            yield "file", str(file), file.read_bytes().decode(errors="replace")

def events(events):
    found = [[name, process, text] for name, process, text in processes()]
    Path({seen!r}).write_text(json.dumps(found))
    salted = events.where(F.sha2(F.concat(F.lit("{literal}"), F.col("n").cast("string")), 256) != "")
    if Path({ill!r}).exists():
        known = events.sparkSession.conf.get("spark.hadoop.fs.s3a.secret.key")
        token = "{url_of_an_error}"
        raise RuntimeError(f"can't reach https://me:{{token}}@example.org/?token={{token}} with {{known}}")
    return salted
"""


@pytest.fixture
def project(stream_project: StreamProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamProject:
    """A project with a secret wherever one may stand; what it saw of other processes lies beside it."""
    root = stream_project.root
    with (root / "sluice.toml").open("a") as file:
        file.write(_SETTINGS.format(**CANARIES))
    aside = tmp_path / "aside"
    aside.mkdir()
    places = {"seen": str(tmp_path / "seen.json"), "ill": str(tmp_path / "ill"), "aside": str(aside)}
    transform = _TRANSFORM.format(**places, **CANARIES)
    (root / "transform_events.py").write_text(transform)
    monkeypatch.setenv("EXAMPLE_API_KEY", CANARIES["environment"])
    for name in ("TMPDIR", "SPARK_LOCAL_DIRS"):
        monkeypatch.setenv(name, str(aside))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.io.tmpdir={aside}")
    for name, extra in (("plain", {}), ("submitted", _CONNECTION["extra"])):
        monkeypatch.setenv(f"AIRFLOW_CONN_SECRETS_{name.upper()}", json.dumps({**_CONNECTION, "extra": extra}))
    return stream_project


@pytest.mark.parametrize("connection", ["submitted", *rarely("plain")])
def test_nothing_tells_a_secret(
    project: StreamProject, tmp_path: Path, connection: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a command line, a log, a record, a page, a checkpoint, a file aside, nor what Airflow keeps."""
    dag = project.dag(f'conn_id="secrets_{connection}", default_args={{"retries": 0}}')
    project.arrive(1, at=START - timedelta(days=1))
    good = dag.test(logical_date=START)
    assert good.state == DagRunState.SUCCESS, project.records()
    processes = json.loads((tmp_path / "seen.json").read_text())

    (tmp_path / "ill").touch()
    project.arrive(1, at=START - timedelta(days=1))
    assert dag.test(logical_date=START + timedelta(days=1)).state == DagRunState.FAILED
    assert "can't reach https://***@example.org" in project.records()[0].error["message"]

    # Children of this process have its environment, connections and all: whoever sets one, shows it to them.
    ours = {str(os.getpid())}
    commands = [(f"command line of {pid}", told) for kind, pid, told in processes if kind == "cmdline"]
    assert any("submit.py" in told for _, told in commands)
    from_files = {kind for kind in KINDS if kind.startswith(("conf", "java", "storage", "url"))} | {"literal"}
    environments = [(f"environment of {pid}", told) for kind, pid, told in processes if kind == "environ"]
    home = Path(project.home().location).parents[0]
    places = [
        *commands,
        ("the task's log", "".join(capfd.readouterr())),
        *((f"page {path}", page) for path, page in pages(project)),
        *((f"table {name}", rows) for name, rows in tables()),
        *((f"file {path}", f"{path}{told}") for kind, path, told in processes if kind == "file"),
        *files(home, project.root / "out", tmp_path / "aside"),
    ]
    others = [place for place in environments if place[0].split()[-1] not in ours]
    told = [*leaks(places, KINDS), *leaks(others, from_files)]
    assert not told, "\n".join(told)
    open_to_others = {str(path): oct(path.stat().st_mode) for path in home.rglob("*") if path.stat().st_mode & 0o077}
    assert {path: mode for path, mode in open_to_others.items() if "/generations/" not in path} == {}


def leaks(places: list[tuple[str, str]], kinds: tuple[str, ...] | set[str]) -> list[str]:
    """Which secret is told where, with what stands around it."""
    return [
        f"{kind} in {place}: {told[max(0, at - 150) : at + 40]!r}"
        for place, told in places
        for kind in sorted(kinds)
        if (at := told.find(CANARIES[kind])) >= 0
    ]


def files(*roots: Path) -> Iterator[tuple[str, str]]:
    """What every file holds, its name included."""
    for root in roots:
        for path in [root, *root.rglob("*")] if root.is_dir() else [root]:
            if path.is_file() and not path.is_symlink():
                yield f"file {path}", f"{path}{path.read_bytes().decode(errors='replace')}"


def tables() -> Iterator[tuple[str, str]]:
    """What Airflow keeps of tasks: rendered templates, XCom, the store of their state, serialized DAGs."""
    from airflow.utils.session import create_session

    with create_session() as session:
        for name in ("rendered_task_instance_fields", "xcom", "task_state_store", "serialized_dag", "log", "trigger"):
            yield name, repr(session.execute(text(f"SELECT * FROM {name}")).all())


def pages(project: StreamProject) -> Iterator[tuple[str, str]]:
    """The pages of the stream and of its runs, as an administrator sees them."""
    # Airflow's own import of its app warns.
    from airflow.api_fastapi.app import init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user

    from sluice_airflow.ui.app import app

    paths = ["/", "/streams/events", *(f"/streams/events/runs/{record.run_id}" for record in project.records())]
    admin = SimpleAuthManagerUser(username="a", role="ADMIN")

    async def ask(path: str) -> str:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            answer = await client.get(path)
            assert answer.status_code == 200, answer.text
            return answer.text

    init_auth_manager()
    app.dependency_overrides[get_user] = lambda: admin
    os.environ["SLUICE_PROJECT"] = str(project.root)
    try:
        for path in paths:
            yield path, asyncio.run(ask(path))
    finally:
        del os.environ["SLUICE_PROJECT"]
        app.dependency_overrides.clear()
