"""Secrets of every kind go through a task, its driver and Spark, once well and once ill: nothing of ours tells one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from airflow.utils.state import DagRunState
from airflow_project import StreamProject
from sqlalchemy import inspect, text

from tests.builders import put
from tests.campaign import rarely
from tests.canaries import CANARIES, FROM_FILES, files, leaks, open_to_others, processes, row, settings, transform

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]

START = datetime(2026, 1, 1, tzinfo=UTC)
_CONNECTION = {
    "conn_type": "spark",
    "host": "local[2]",
    "password": CANARIES["connection_password"],
    # What only `spark-submit` follows; who reads it finds a secret beside it.
    "extra": {"queue": "any", "api_key": CANARIES["connection_extra"]},
}


@pytest.fixture
def project(stream_project: StreamProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamProject:
    """A project with a secret wherever one may stand; what it saw of other processes lies beside it."""
    root = stream_project.root
    with (root / "sluice.toml").open("a") as file:
        file.write(settings())
    aside = tmp_path / "aside"
    aside.mkdir()
    (root / "transform_events.py").write_text(transform(tmp_path))
    declared = (
        (root / "streams" / "events.py").read_text().replace('schema="n bigint"', 'schema="n bigint, text string"')
    )
    (root / "streams" / "events.py").write_text(declared)
    monkeypatch.setenv("EXAMPLE_API_KEY", CANARIES["environment"])
    for name in ("TMPDIR", "SPARK_LOCAL_DIRS"):
        monkeypatch.setenv(name, str(aside))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.io.tmpdir={aside}")
    for name, extra in (("plain", {}), ("submitted", _CONNECTION["extra"])):
        monkeypatch.setenv(f"AIRFLOW_CONN_SECRETS_{name.upper()}", json.dumps({**_CONNECTION, "extra": extra}))
    return stream_project


@pytest.mark.parametrize("connection", ["plain", *rarely("submitted")])
def test_nothing_tells_a_secret(
    project: StreamProject, tmp_path: Path, connection: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a command line, a log, a record, a page, a checkpoint, a file aside, nor what Airflow keeps."""
    dag = project.dag(f'conn_id="secrets_{connection}", default_args={{"retries": 0}}')
    project.arrive(1, at=START - timedelta(days=1))
    good = dag.test(logical_date=START)
    assert good.state == DagRunState.SUCCESS, project.records()

    (tmp_path / "ill").write_text("batch")
    ill = put(project.root / "in" / "ill.json", row(9, text=CANARIES["row"]))
    os.utime(ill, ((START - timedelta(days=1)).timestamp(),) * 2)
    assert dag.test(logical_date=START + timedelta(days=1)).state == DagRunState.FAILED
    failure = project.records()[0].error
    assert failure is not None
    assert "CAST_INVALID_INPUT" in failure.message
    assert CANARIES["failing_literal"] in Path(failure.log).read_text()

    # Children of this process have its environment, connections and all: whoever sets one, shows it to them.
    commands = list(processes(tmp_path, "cmdline"))
    assert any("submit.py" in told for _, told in commands)
    environments = [place for place in processes(tmp_path, "environ") if place[0].split()[-1] != str(os.getpid())]
    home = Path(project.home().location).parents[0]
    places = [
        *commands,
        ("the task's log", "".join(capfd.readouterr())),
        *((f"page {path}", page) for path, page in pages(project)),
        *((f"table {name}", rows) for name, rows in tables()),
        *processes(tmp_path, "file"),
        *files(home, project.root / "out", tmp_path / "aside"),
    ]
    told = [*leaks(places, CANARIES), *leaks(environments, FROM_FILES)]
    assert not told, "\n".join(told)
    assert open_to_others(home) == {}


def tables() -> Iterator[tuple[str, str]]:
    """Every table that Airflow has, whatever it keeps there."""
    from airflow import settings as airflow_settings
    from airflow.utils.session import create_session

    with create_session() as session:
        names = inspect(airflow_settings.engine).get_table_names()
        assert {"rendered_task_instance_fields", "xcom", "log", "import_error", "dag_run", "asset_event"} <= set(names)
        for name in names:
            yield name, repr(session.execute(text(f'SELECT * FROM "{name}"')).all())


def dag_runs() -> list[str]:
    """The ids of the runs of the DAG."""
    from airflow.utils.session import create_session

    with create_session() as session:
        return [row[0] for row in session.execute(text("SELECT run_id FROM dag_run"))]


def pages(project: StreamProject) -> Iterator[tuple[str, str]]:
    """Every page, of the stream and of its runs, as an administrator sees it."""
    # Airflow's own import of its app warns.
    from airflow.api_fastapi.app import init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user

    from sluice_airflow.ui.app import app

    dag = f"dag_id=events_{project.root.name}"
    runs = [record.run_id for record in project.records()]
    asked = {
        "/": ["/", "/?search=events"],
        "/dag": [f"/dag?{dag}"],
        "/streams/{name}": ["/streams/events"],
        "/streams/{name}/runs/{run_id}": [f"/streams/events/runs/{run_id}" for run_id in runs],
        "/runs": [f"/runs?{dag}&run_id={quote(run_id)}" for run_id in dag_runs()],
        "/static/{name}": [],
    }
    assert set(asked) == {route.path for route in app.routes if "GET" in route.methods}
    paths = [path for several in asked.values() for path in several]
    admin = SimpleAuthManagerUser(username="a", role="ADMIN")

    async def ask(path: str) -> str:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            answer = await client.get(path, follow_redirects=True)
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
