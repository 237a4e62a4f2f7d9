"""Code that is not ours ends nothing of ours: whatever it raises, in whichever way a long-lived process calls it.

What ends a process without raising can't be caught, and is not tried here: `os._exit`, signals, crashes of native code.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from sluice import find_project
from sluice.errors import DeclarationError, SluiceError
from sluice.foreign_code import described, error_line, foreign_code, is_failure
from sluice.project import Project
from sluice.quality.suite import build_suite
from sluice.running.check import check_project
from sluice_airflow.time_limit import look_within
from sluice_airflow.triggers import shared_poll
from sluice_airflow.triggers.declared import DeclaredStreams
from sluice_airflow.triggers.shared_poll import SharedPoll, Sighting, look
from sluice_airflow.ui.guarded_route import GuardedRoute
from sluice_airflow.ui.next_run import look_ahead
from tests.builders import make_files_source, make_stream, put

ENDINGS = {
    "exit": "import sys; sys.exit(3)",
    "exit with words": "raise SystemExit('goodbye')",
    "exit builtin": "exit()",
    "interrupt": "raise KeyboardInterrupt",
    "generator": "raise GeneratorExit",
    "stop": "raise StopIteration",
    "cancelled": "import asyncio; raise asyncio.CancelledError",
    "own class": "class Stop(BaseException): pass\nraise Stop('no')",
    "hostile words": "class Bad(BaseException):\n    def __str__(self): raise SystemExit(4)\nraise Bad",
    "airflow's": "class E(BaseException): pass\nE.__module__ = 'airflow.exceptions'\nraise E('x')",
    "recursion": "def f(): f()\nf()",
    "recursion of a repr": "x = []\nfor _ in range(100_000): x = [x]\nrepr(x)",
    "memory": "raise MemoryError",
    "panic": "from obstore.store import from_url\nfrom_url('s3://bucket', allow_http='true')",
    "syntax": "def",
    "deep syntax": "(" * 500,
    "null byte": "x = '\0'",
}
"""What a file may do that somebody else has written."""


@pytest.fixture(params=ENDINGS.values(), ids=ENDINGS.keys())
def ending(request: pytest.FixtureRequest) -> str:
    """One way to end."""
    return str(request.param)


def make_project(folder: Path, code: str) -> Project:
    """A project with one file that ends so."""
    put(folder / "sluice.toml", "")
    put(folder / "streams" / "bad.py", code)
    return find_project(str(folder))


def in_thread(call: Callable[[], Any]) -> Any:
    """Call it as servers and triggerers do, which have no use for Ctrl-C there."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(timeout=60)


def run(code: str) -> None:
    """The code as a function of somebody else's."""
    exec(compile(code, "<theirs>", "exec"), {})


class TestDeclarations:
    """Files of declarations, as pages, triggers, DAG files and the command line read them."""

    def test_every_way_to_read_them(self, tmp_path: Path, ending: str) -> None:
        """Each gives an error of ours that names the file, or goes on without it."""
        project = make_project(tmp_path, ending)

        for read in (lambda: project.stream("s"), lambda: DeclaredStreams(str(tmp_path)).find("s")):
            with pytest.raises(DeclarationError) as caught:
                in_thread(read)
            assert "bad.py" in (caught.value.where or "")
            assert "does not import" in caught.value.problem
        assert in_thread(project.streams) == {}
        assert len(in_thread(project.declarations).unreadable) == 1
        assert [type(found.error) for found in in_thread(lambda: list(check_project(project, analyse=False)))] == [
            DeclarationError
        ]

    def test_modules_of_transforms_and_suites(self, tmp_path: Path, ending: str) -> None:
        """A module that ends so does not import; a function that does builds no suite."""
        project = make_project(tmp_path, "")
        name = f"ends_{abs(hash(str(tmp_path)))}"
        put(tmp_path / f"{name}.py", ending)

        with pytest.raises(DeclarationError, match="does not import"):
            in_thread(lambda: project.load_function(f"{name}:f"))
        with pytest.raises(DeclarationError, match="builds the suite fails"):
            in_thread(lambda: build_suite(lambda: run(ending), source="here"))

    @pytest.mark.parametrize("command", ["list", "plan s", "lag s", "inspect s"])
    def test_the_command_line(self, tmp_path: Path, command: str) -> None:
        """`sys.exit(0)` in a declaration is an error with a message, not a silent success."""
        make_project(tmp_path, "import sys; sys.exit(0)")

        ended = subprocess.run(
            [sys.executable, "-m", "sluice", *command.split(), "--project", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

        assert ended.returncode == 2
        assert "does not import: SystemExit: 0" in ended.stderr
        assert "bad.py:1" in ended.stderr
        assert "Traceback" not in ended.stderr

    def test_what_a_declaration_prints(self, tmp_path: Path) -> None:
        """Standard output is one JSON document all the same."""
        make_project(tmp_path, "print('loading the declarations')")

        ended = subprocess.run(
            [sys.executable, "-m", "sluice", "list", "--json", "--project", str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )

        assert json.loads(ended.stdout) == []
        assert "loading the declarations\n" in ended.stderr


class TestSourcesAndSinks:
    """A source or sink of somebody's own class."""

    def test_resolving(self, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """It fails its stream only."""
        project = make_project(tmp_path, "")
        stream = make_stream()
        monkeypatch.setattr(type(stream.sink), "resolved", lambda _self, _root: run(ending))

        with pytest.raises(DeclarationError, match="a source or the sink fails"):
            in_thread(lambda: project.resolve(stream))

    def test_planning(self, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A page tells what went wrong in place of the plan."""
        project = make_project(tmp_path, "")
        stream = project.resolve(make_stream())
        kind = type(next(iter(stream.sources.values())))
        monkeypatch.setattr(kind, "available", lambda _self, *_, **__: run(ending))

        seen = in_thread(lambda: look_ahead(project, stream, project.stream_home(stream), datetime.now(UTC), {}))

        assert seen.plan is None
        assert seen.error


class TestLongLivedProcesses:
    """The loops of the triggerer, the scheduler and the server."""

    def test_a_look_of_the_triggerer(self, ending: str) -> None:
        """It becomes the problem of a sighting."""
        assert in_thread(lambda: look(lambda: run(ending))).problem

    def test_the_loop_of_the_triggerer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every stream that ends so has its own problem, and the others in the same loop are seen."""
        # How long it rests after its work is another matter.
        monkeypatch.setattr(shared_poll, "_REST_PER_WORK", 0.0)
        poll: SharedPoll[Any] = SharedPoll()

        async def first(key: str, read: Callable[[], Any]) -> Sighting[Any]:
            async for seen in poll.follow(key, read):
                return seen
            raise AssertionError

        async def watch() -> list[Sighting[Any]]:
            endless = [
                first(name, DeclaredFile(make_project(tmp_path / str(at), code)))
                for at, (name, code) in enumerate(ENDINGS.items())
            ]
            return await asyncio.wait_for(asyncio.gather(first("good", lambda: "seen"), *endless), 120)

        good, *others = asyncio.run(watch())

        assert good.value == "seen"
        assert all("does not import" in (seen.problem or "") for seen in others)

    def test_a_look_of_the_scheduler(self, ending: str) -> None:
        """What would end its loop comes as an ordinary exception."""
        with pytest.raises(Exception) as caught:  # noqa: PT011 - any, but nothing that is none
            look_within(60, lambda: run(ending))
        assert isinstance(caught.value, Exception)

    def test_a_page(self, ending: str) -> None:
        """The server answers, and answers again."""
        pages = FastAPI()
        pages.router.route_class = GuardedRoute
        pages.add_exception_handler(SluiceError, told)

        @pages.get("/")
        def page() -> None:
            run(ending)

        async def ask() -> list[int]:
            transport = httpx.ASGITransport(pages, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return [(await client.get("/")).status_code for _ in range(2)]

        assert asyncio.run(ask()) == [500, 500]


class DeclaredFile:
    """Reads a project's declarations, as triggers do."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def __call__(self) -> Any:
        return self.project.stream("s")


def told(_request: Request, exc: Exception) -> PlainTextResponse:
    return PlainTextResponse(str(exc), 500)


class TestMainThread:
    """Where signals arrive."""

    @pytest.mark.parametrize("error", [KeyboardInterrupt()])
    def test_ctrl_c_is_a_persons(self, error: BaseException) -> None:
        """It ends what a person has started."""
        assert not is_failure(error)
        with pytest.raises(KeyboardInterrupt), foreign_code("x", where=lambda _: None):
            raise error

    def test_what_airflow_raises_in_its_handlers(self) -> None:
        """A task's time-out reaches Airflow as it is."""
        kind = type("AirflowTaskTimeout", (BaseException,), {"__module__": "airflow.sdk.exceptions"})

        with pytest.raises(kind), foreign_code("x", where=lambda _: None):
            raise kind

    def test_everything_else_is_a_failure(self) -> None:
        """So `sluice list` says what happened."""
        said = r"^it fails: SystemExit: 3 \[there\]; mend it$"
        with (
            pytest.raises(DeclarationError, match=said),
            foreign_code("it fails", where=lambda _: "there", remedy="mend it"),
        ):
            raise SystemExit(3)


def test_errors_of_ours_stay() -> None:
    """They have their own words."""
    error = SluiceError("ours")

    with pytest.raises(SluiceError) as caught, foreign_code("x", where=lambda _: None):
        raise error
    assert caught.value is error


def test_described() -> None:
    """The class and the words, without secrets, also where there are none."""
    assert described(ValueError("password=hunter2")) == "ValueError: password=***"
    assert described(SystemExit()) == "SystemExit"


def test_error_line_of_a_nested_call(tmp_path: Path) -> None:
    """The innermost line of the given file counts, not the library's below it."""
    with pytest.raises(DeclarationError) as caught:
        make_files_source(tmp_path, unknown_option=1)

    line = error_line(caught.value, __file__)
    assert line is not None
    assert line.startswith(f"{__file__}:")
    assert (error_line(caught.value) or "").partition(":")[0].endswith("declaration_checks.py")
