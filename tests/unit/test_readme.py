"""What README.md shows works: its pipeline loads and plans, and the commands that it names exist."""

import ast
import inspect
import json
import re
import runpy
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from sluice.cli.app import app
from sluice.project import find_project
from sluice.stream import Stream
from sluice.template import create_project
from tests.shown_code import files_of

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")
BLOCKS = dict(files_of(README))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new project whose files are those of the README."""
    create_project(tmp_path / "project")
    for name, code in BLOCKS.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(code, "utf-8")
    return tmp_path / "project"


def shell_lines() -> list[str]:
    """Every command of the README: the lines of its shell blocks, and what stands in backticks."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [*lines, *re.findall(r"`((?:make|sluice) [^`]*)`", README)]


def named(tool: str) -> list[str]:
    """The first word after a tool's name, for every time that the README calls the tool."""
    found = {match[1] for line in shell_lines() if (match := re.match(rf"{tool} ([a-z-]+)", line))}
    return sorted(found)


def without_docstrings(code: str) -> str:
    """A module's code as Python understands it, comments and docstrings left out."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def declared(folder: Path) -> Stream:
    """The stream `visits` of a project."""
    return find_project(str(folder)).stream("visits")


def test_blocks_name_their_files() -> None:
    """Every Python block begins with the name of its file."""
    assert list(BLOCKS) == ["streams/visits.py", "jobs/visits.py", "dags/visits.py"]
    assert README.count("```python") == len(BLOCKS)


def test_declaration_is_the_template_s(project: Path, tmp_path: Path) -> None:
    """The README declares the same stream as the project that `sluice init` makes."""
    shown = declared(project)
    (project / "streams" / "visits.py").unlink()
    create_project(tmp_path / "template")
    (tmp_path / "template" / "streams" / "visits.py").rename(project / "streams" / "visits.py")
    assert shown == declared(project)


def test_transform_is_the_template_s(project: Path, tmp_path: Path) -> None:
    """The README's function is the one of the project that `sluice init` makes."""
    create_project(tmp_path / "template")
    templates = (tmp_path / "template" / "jobs" / "visits.py").read_text("utf-8")
    assert without_docstrings(BLOCKS["jobs/visits.py"]) == without_docstrings(templates)


def test_transform_takes_the_sources(project: Path) -> None:
    """The function that the declaration names is there, and its parameters are named as the sources."""
    stream = declared(project)
    module, _, function = stream.transform.partition(":")
    found = runpy.run_path(str(project / f"{module.replace('.', '/')}.py"))[function]
    assert list(inspect.signature(found).parameters) == list(stream.sources)


def test_dag_runs_the_stream(project: Path) -> None:
    """The DAG calls the factory with the declared stream."""
    tree = ast.parse(BLOCKS["dags/visits.py"])
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "stream_dag"]
    assert [ast.unparse(argument) for call in calls for argument in call.args] == [repr(declared(project).name)]


def test_plan_is_to_run(project: Path) -> None:
    """`sluice plan` of the README's project says that there is something to run, without a JVM."""
    result = CliRunner().invoke(app, ["plan", "visits", "--project", str(project), "--json"])
    plan = json.loads(result.stdout)
    assert (plan["verdict"], len(plan["batches"])) == ("run", 1)


def test_plan_reads_as_shown(project: Path) -> None:
    """`sluice plan` prints what the README shows."""
    result = CliRunner().invoke(app, ["plan", "visits", "--project", str(project)])
    assert f"$ sluice plan visits\n{result.stdout}" in README


@pytest.mark.parametrize("command", named("sluice"))
def test_sluice_command_exists(command: str) -> None:
    """Every command that the README gives to `sluice` exists."""
    assert command in get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", named("make"))
def test_make_target_exists(target: str) -> None:
    """Every target that the README gives to `make` exists."""
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_two_commands_set_up() -> None:
    """The set-up is `make demo` and `make test`, and nothing else."""
    section = README.partition("\n## Set up\n")[2].partition("\n## ")[0]
    block = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert block == ["make demo\nmake test\n"]
