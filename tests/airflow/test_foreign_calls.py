"""Every trigger, listener and page, found by looking for them: other people's code that one of them calls ends nothing.

One that is new fails here until it has a case.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from airflow.triggers.base import BaseTrigger
from fastapi.routing import APIRoute

from sluice_airflow import triggers
from sluice_airflow.plugin import SluicePlugin
from sluice_airflow.triggers import shared_poll
from sluice_airflow.triggers.stream import watched_streams
from sluice_airflow.unannounced_runs import Telling
from tests.builders import put

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]


class Panic(BaseException):
    """As Rust's, which is no `Exception`."""


ENDINGS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, Panic)
STREAM: dict[str, Any] = {"stream": "s"}
TRIGGERS: dict[str, dict[str, Any]] = {
    "ArrivalWatch": {**STREAM, "asset": "a"},
    "BatchTrigger": {**STREAM, "batch_id": 1},
    "CommitWatch": {**STREAM, "asset": "a"},
    "LagTrigger": {**STREAM, "max_files": 1},
    "LeaseTrigger": {"folder": "s3://bucket/home/s/leases/0001"},
    "QualityTrigger": STREAM,
    "RunTrigger": {**STREAM, "run_id": "20260131T120000000Z-00000001"},
    "TogetherTrigger": {"runs": {"s": "20260131T120000000Z-00000001"}},
    "WatermarkTrigger": {**STREAM, "passed": "2026-01-01"},
}
"""How each is made, apart from its project."""
HOOKS = {
    ("drivers_pool", "on_starting"): "airflow.models.pool.Pool.get_pool",
    **{
        ("marked_tasks", f"on_task_instance_{state}"): "sluice_airflow.noted_runs.noted_runs"
        for state in ("success", "skipped", "failed")
    },
    **{
        ("stream_metrics", f"on_task_instance_{state}"): "sluice_airflow.run_metrics.send_metrics"
        for state in ("success", "skipped", "failed")
    },
    ("told_events", "on_task_instance_success"): "sluice_airflow.unannounced_runs.Telling.keep",
}
"""What each calls that reaches other people's code."""
ROUTES = {
    ("GET", "/"): "/",
    ("GET", "/dag"): "/dag?dag_id=d",
    ("GET", "/streams/{name}"): "/streams/s",
    ("POST", "/streams/{name}/release"): "/streams/s/release",
    ("GET", "/streams/{name}/runs/{run_id}"): "/streams/s/runs/r",
    ("POST", "/streams/{name}/runs/{run_id}/stop"): "/streams/s/runs/r/stop",
    ("GET", "/runs"): "/runs?dag_id=d&run_id=r",
    ("GET", "/static/{name}"): "/static/sluice.css",
}
"""How each is asked for."""


DEADLINES = {"StreamWatermark": {"stream": "s"}}
"""How each reference of a deadline is made, apart from its project."""
ASK_NOBODY = {"LiveFirst"}
"""The strategies of priorities, which know what Airflow has loaded."""


def trigger_classes() -> dict[str, Any]:
    """Every trigger that Airflow can make, of every module."""
    modules = [
        importlib.import_module(f"{triggers.__name__}.{found.name}")
        for found in pkgutil.iter_modules(triggers.__path__)
    ]
    classes = [kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)]
    return {
        kind.__name__: kind
        for kind in classes
        if issubclass(kind, BaseTrigger)
        and kind.__module__.startswith("sluice_airflow")
        and not inspect.isabstract(kind)
    }


def hooks() -> dict[tuple[str, str], Callable[..., None]]:
    """Every function of the plugin's listeners that Airflow calls."""
    return {
        (module.__name__.rpartition(".")[2], name): found
        for module in SluicePlugin.listeners
        for name, found in inspect.getmembers(module, inspect.isfunction)
        if hasattr(found, "airflow_impl")
    }


def routes() -> dict[tuple[str, str], APIRoute]:
    """Every page and every form."""
    from sluice_airflow.ui.app import app

    found = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(found) == len(app.routes)
    return {(method, route.path): route for route in found for method in route.methods}


@pytest.fixture(params=ENDINGS)
def ending(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A project whose declaration and whose store end so; gives the calls of them."""
    calls: list[str] = []

    def end(*_: object, **__: object) -> None:
        calls.append("called")
        raise request.param

    monkeypatch.setattr(builtins, "end_here", end, raising=False)
    monkeypatch.setattr("obstore.store.from_url", end)
    monkeypatch.setattr(shared_poll, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(shared_poll, "_REST_PER_WORK", 0.0)
    monkeypatch.setenv("SLUICE_PROJECT", str(tmp_path))
    watched_streams.cache_clear()
    put(tmp_path / "sluice.toml", '[project]\nhome = "s3://bucket/home"\n')
    put(tmp_path / "streams" / "s.py", "end_here()")
    yield calls
    watched_streams.cache_clear()


def test_each_has_a_case() -> None:
    """Whoever adds one says here how it is called."""
    assert set(TRIGGERS) == set(trigger_classes())
    assert set(HOOKS) == set(hooks())
    assert set(ROUTES) == set(routes())
    assert set(DEADLINES) == {kind.__name__ for kind in SluicePlugin.deadline_references}
    assert {kind.__name__ for kind in SluicePlugin.priority_weight_strategies} == ASK_NOBODY


@pytest.mark.parametrize("name", DEADLINES)
def test_a_deadline(ending: list[str], name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The scheduler makes the DAG run, and the log says why its deadline counts from then."""
    (kind,) = (kind for kind in SluicePlugin.deadline_references if kind.__name__ == name)
    reference = kind(**DEADLINES[name], project=os.environ["SLUICE_PROJECT"])
    before = datetime.now(UTC)
    assert before <= reference._evaluate_with(dag_id="d", run_id="r") <= datetime.now(UTC)
    assert ending
    assert "counts from now on" in caplog.text


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger(ending: list[str], name: str) -> None:
    """It waits, tells or fails; the loop, in which other people's triggers are, goes on."""
    kind, folder = trigger_classes()[name], os.environ["SLUICE_PROJECT"]

    async def live() -> BaseException | None:
        trigger = kind(**TRIGGERS[name], project=folder)
        is_watch = hasattr(kind, "shared_stream_key")
        events = kind.follow("s", folder) if is_watch else trigger.run()
        task = asyncio.ensure_future(anext(events))
        async with asyncio.timeout(30):
            while not ending and not task.done():  # noqa: ASYNC110 - what is waited for is called in other threads
                await asyncio.sleep(0.001)
        await asyncio.wait({task}, timeout=0.05)
        assert ending
        assert not task.cancelled()
        if task.done():
            return task.exception()
        task.cancel()
        await asyncio.wait({task})
        return None

    error = asyncio.run(live())

    assert error is None or isinstance(error, Exception)


@pytest.mark.parametrize("place", HOOKS, ids=".".join)
def test_a_listener(ending: list[str], place: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow goes on with what it told of."""
    monkeypatch.setattr(HOOKS[place], builtins.end_here)  # type: ignore[attr-defined]
    operator: Any = type("Operator", (), {"__module__": "sluice_airflow.operators.run_stream"})()
    task = SimpleNamespace(task=operator, state="failed", dag_id="d", run_id="r", task_id="t", map_index=-1)
    operator.telling = object.__new__(Telling)
    hook = hooks()[place]
    given = {"component": type("Job", (), {})(), "previous_state": None, "task_instance": task}

    # As Airflow calls it where it serves many: in a thread, which neither Ctrl-C nor a signal reaches.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hook, **{name: given[name] for name in inspect.signature(hook).parameters}).result(30)

    assert ending


@pytest.mark.parametrize("place", ROUTES, ids=" ".join)
def test_a_page(ending: list[str], place: tuple[str, str]) -> None:
    """It is answered, and so is the next one."""
    # Airflow's own import of its app warns.
    from airflow.api_fastapi.app import init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user

    from sluice_airflow.ui.app import app

    init_auth_manager()
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="a", role="ADMIN")

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        headers = {"sec-fetch-site": "same-origin"}
        async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=headers) as client:
            return [await client.request(place[0], ROUTES[place]) for _ in range(2)]

    try:
        answers = asyncio.run(ask())
    finally:
        app.dependency_overrides.clear()

    assert [answer.status_code for answer in answers] == [answers[0].status_code] * 2
    assert ending or place == ("GET", "/static/{name}"), answers[0].text
