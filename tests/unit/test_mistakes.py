"""What people type who come from Spark, Airflow, dbt or Great Expectations, and the exact answer to each mistake.

The tables lie in `mistakes/`: a line with what was typed, and below it, indented, what is said. `DIR` stands for the
folder of the project.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.cli import app as cli
from sluice.declarations import load_declarations
from sluice.errors import SluiceError
from sluice.planning.explain import explain_problem
from sluice.planning.verdict import Request, plan_stream
from sluice.project import find_project, load_project
from sluice.quality.suite import parse_suite
from tests.builders import make_delta, put

TABLES = Path(__file__).with_name("mistakes")
DECLARES = """\
from pathlib import Path
from sluice import Stream, sinks, sources
JSON = {"format": "json", "schema": "id bigint, day date"}
BASE = {"name": "visits", "sources": {"visits": sources.files("landing", **JSON)}, "transform": "shop.v:visits",
        "sink": sinks.delta("lake")}
"""
TRANSFORMS = """\
def visits(visits):
    return visits

def other(visit):
    return visit

def two(visits, users):
    return visits

def three(frame, batch_id, more):
    return frame

def by_name(frame, batch_id, *, where):
    return frame

def with_default(visits, day=None):
    return visits
"""


def table(name: str) -> list[tuple[str, str]]:
    """The rows of a table: what was typed, and what is said."""
    lines = [line for line in (TABLES / f"{name}.txt").read_text("utf-8").splitlines() if line]
    return [(typed, said.strip()) for typed, said in zip(lines[::2], lines[1::2], strict=True)]


def make_project(folder: Path, declaration: str) -> None:
    put(folder / "sluice.toml", "")
    put(folder / "shop" / "v.py", TRANSFORMS)
    put(folder / "shop" / "broken.py", "def visits(visits:\n")
    put(folder / "landing" / "a.json", '{"id": 1}')
    put(folder / "streams" / "s.py", f"{DECLARES}{declaration}\n")


def of_declaration(folder: Path, typed: str) -> str:
    """What is said of a declaration when it is read."""
    file = put(folder / "s.py", f"{DECLARES}{typed}\n")
    with pytest.raises(SluiceError) as caught:
        load_declarations(str(file))
    assert caught.value.exit_code == 2
    return str(caught.value)


def of_toml(folder: Path, typed: str) -> str:
    """What is said of a project file."""
    with pytest.raises(SluiceError) as caught:
        load_project(put(folder / "sluice.toml", typed))
    assert caught.value.exit_code == 2
    return str(caught.value)


def of_suite(typed: str) -> str:
    """What is said of a suite, or of one expectation."""
    document = typed if '"expectation' in typed or typed == "[]" else f'{{"name": "s", "expectations": [{typed}]}}'
    with pytest.raises(SluiceError) as caught:
        parse_suite(document.encode(), source="s.json")
    assert caught.value.exit_code == 2
    return str(caught.value)


def of_plan(folder: Path, typed: str) -> str:
    """What planning says of a declaration, its project and what is on disk: without a JVM, and importing nothing."""
    make_project(folder, typed)
    make_delta(folder / "table", [1])
    project = find_project(str(folder))
    try:
        plan = plan_stream(project, Request(project.stream("visits")))
    except SluiceError as exc:
        return f"exit {exc.exit_code}: {exc}"
    finally:
        assert "shop" not in sys.modules
        assert "shop.v" not in sys.modules
    said = [" ".join(line.strip() for line in explain_problem(found, "warning")) for found in plan.warnings]
    return f"{plan.verdict}: {' '.join(said)}"


def of_command(
    folder: Path,
    typed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], object] = lambda _: None,
) -> str:
    """What the command line says in a project, maybe changed, without the lines about its usage."""
    make_project(folder, "visits = Stream(**BASE)")
    change(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["sluice", *shlex.split(typed)])
    # The process ends with the command; this one goes on.
    monkeypatch.setattr(cli, "leave_with", lambda work: sys.exit(work()))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("Usage", "Try")) and line]
    return f"exit {ended.value.code}: {' | '.join(line.strip() for line in lines)}"


@pytest.mark.parametrize(("typed", "said"), table("declarations"))
def test_declarations(tmp_path: Path, typed: str, said: str) -> None:
    """A mistake in a declaration is answered with its file and line, when the file is read."""
    assert of_declaration(tmp_path, typed).replace(str(tmp_path), "DIR") == said


@pytest.mark.parametrize(("typed", "said"), table("project_files"))
def test_project_files(tmp_path: Path, typed: str, said: str) -> None:
    """A mistake in `sluice.toml` is answered with the name that is meant."""
    assert of_toml(tmp_path, typed).replace(str(tmp_path), "DIR") == said


@pytest.mark.parametrize(("typed", "said"), table("suites"))
def test_suites(typed: str, said: str) -> None:
    """A mistake in a suite is answered with the number of its expectation."""
    assert of_suite(typed) == said


@pytest.mark.parametrize(("typed", "said"), table("plans"))
def test_plans(tmp_path: Path, typed: str, said: str) -> None:
    """What can be known without a JVM is known by planning."""
    assert of_plan(tmp_path, typed).replace(str(tmp_path), "DIR") == said


@pytest.mark.parametrize(("typed", "said"), table("commands"))
def test_commands(
    tmp_path: Path, typed: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake on the command line is answered with what to type."""
    assert of_command(tmp_path, typed, monkeypatch, capsys).replace(str(tmp_path), "DIR") == said


def test_enough() -> None:
    """The tables hold what was asked for, and nothing twice."""
    typed = [row[0] for file in sorted(TABLES.glob("*.txt")) for row in table(file.stem)]
    assert len(typed) >= 300
    assert len(set(typed)) == len(typed)


@pytest.mark.parametrize(
    "module",
    [
        "def visits(visits, day=None): ...",
        "def visits(*, visits): ...",
        "def visits(**frames): ...",
        "def decorate(function): return lambda visits: visits\n@decorate\ndef visits(frame): ...",
        "visits = lambda frame: frame",
        "from shop.more import *",
        "from shop.more import anything as visits",
        "def __getattr__(name): ...",
        "globals()['visits'] = print",
        "if __debug__:\n    def visits(visits): ...\nelse:\n    def visits(frame): ...",
        "def make():\n    global visits\n    visits = print\nmake()",
        "class visits:\n    def __init__(self, visits): ...",
        "import sys\nsetattr(sys.modules[__name__], 'visits', print)",
        "match 3:\n    case visits: ...",
    ],
)
def test_what_is_not_certain_is_accepted(tmp_path: Path, module: str) -> None:
    """A text does not tell everything: what Python may make work is left to Python."""
    make_project(tmp_path, "visits = Stream(**BASE)")
    put(tmp_path / "shop" / "v.py", module)
    project = find_project(str(tmp_path))
    assert plan_stream(project, Request(project.stream("visits"))).verdict == "run"


@pytest.mark.parametrize("name", ["shop_ext", "shop.v.inner"])
def test_modules_that_are_no_python_files(tmp_path: Path, name: str) -> None:
    """Nothing is said of a module that can't be read as text, or that a package may find in ways of its own."""
    make_project(tmp_path, f'visits = Stream(**BASE | {{"transform": "{name}:visits"}})')
    put(tmp_path / "shop_ext.pyc", b"")
    project = find_project(str(tmp_path))
    assert plan_stream(project, Request(project.stream("visits"))).verdict == "run"


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[2]", "local[2,3]", "local-cluster[1,1,1024]", "yarn", "spark://a:7077,b:7077"),
        *("k8s://https://host:443", "sc://host:15002/;token=t", "armada://host", "kubernetes-operator", "nomad"),
    ],
)
def test_masters(tmp_path: Path, master: str) -> None:
    """Every master of Spark's own is taken, and those of cluster managers that others have written."""
    assert load_project(put(tmp_path / "sluice.toml", f"spark.master = '{master}'")).spark_master == master
