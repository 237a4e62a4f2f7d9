"""The examples of operators: a project that is sound, and a page with a row for each."""

import ast
import re
from pathlib import Path

import pytest

from demo.operators.__main__ import DAYS, make_project
from sluice.project import Project, find_project
from sluice.running.check import check_project

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "operators.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("operators")
    make_project(folder)
    return find_project(str(folder))


def test_they_are_sound(project: Project) -> None:
    """`sluice check --no-spark` finds nothing; their data is there, and has arrived day by day."""
    assert [finding for finding in check_project(project, analyse=False) if finding.error is not None] == []
    for source in ("flights", "weather"):
        files = sorted((Path(project.root) / "data" / "landing" / source).iterdir())
        assert [file.name for file in files] == [f"{source}-2013-01-{day:02d}.csv" for day in range(1, DAYS + 1)]
        assert len({file.stat().st_mtime for file in files}) == DAYS
        assert all(len(file.read_text("utf-8").splitlines()) > 60 for file in files)


def test_each_has_a_row_on_the_page(project: Project) -> None:
    """With its output mode, in the order of the declarations."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\w+) \| [^|]+ \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows == [(name, stream.output_mode) for name, stream in project.streams().items()]


def test_each_says_what_it_shows(project: Project) -> None:
    """A transform is called as its stream is, and has a docstring."""
    for name, stream in project.streams().items():
        module, _, function = str(stream.transform).partition(":")
        tree = ast.parse((REPOSITORY / f"{module.replace('.', '/')}.py").read_text("utf-8"))
        (found,) = (part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == name)
        assert (function, bool(ast.get_docstring(found))) == (name, True)
