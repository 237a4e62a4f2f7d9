"""The documents keep up with the code: problem codes, options, commands, exit codes, links, and the shape of ADRs."""

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from sluice import sinks, sources
from sluice.cli.app import app
from sluice.declarations import load_declarations
from sluice.errors import SluiceError
from sluice.project import load_project
from tests.builders import put

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
GUIDE = (DOCS / "guide.md").read_text("utf-8")
OPERATIONS = (DOCS / "operations.md").read_text("utf-8")
ADRS = sorted((DOCS / "adr").glob("*.md"))
PAGES = [*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")]
DECLARED_BY = {
    f"{kinds.__name__.removeprefix('sluice.')}.{name}": getattr(kinds, name)
    for kinds in (sources, sinks)
    for name in kinds.__all__
}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def errors(kind: type[SluiceError] = SluiceError) -> set[type[SluiceError]]:
    """An error class and all that derive from it."""
    return {kind}.union(*(errors(derived) for derived in kind.__subclasses__()))


def test_every_problem_code_is_explained() -> None:
    """The table of problem codes has exactly the codes that the code can give."""
    code = "".join(file.read_text("utf-8") for file in (REPOSITORY / "include" / "sluice").rglob("*.py"))
    explained = re.findall(r"^\| `([A-Z_]+)` \|", OPERATIONS, re.MULTILINE)
    assert sorted(explained) == sorted(set(re.findall(r'code="([A-Z_]+)"', code)))


@pytest.mark.parametrize("name", DECLARED_BY)
def test_every_option_is_in_the_guide(name: str) -> None:
    """The guide names every kind of source and sink, and every option that is its own."""
    parameters = inspect.signature(DECLARED_BY[name]).parameters
    missing = [
        option
        for option, found in parameters.items()
        if found.kind is inspect.Parameter.KEYWORD_ONLY and not re.search(rf"\b{option}\b", GUIDE)
    ]
    assert name in GUIDE
    assert missing == []


@pytest.mark.parametrize("page", [DOCS / "engine.md", DOCS / "architecture.md", *ADRS], ids=lambda page: page.name)
def test_named_modules_exist(page: Path) -> None:
    """A module that a page tells of is there; `folder/{a,b}.py` are two, and what is abbreviated ends in one."""
    include = REPOSITORY / "include"
    roots = (REPOSITORY, include, include / "sluice", REPOSITORY / "plugins" / "sluice_airflow")
    named = re.findall(r"(?<![\w./])((?:[\w]+/)+)(\{[\w,]+\}|\w+)\.py\b", page.read_text("utf-8"))
    files = {f"{folder}{name}.py" for folder, names in named for name in names.strip("{}").split(",")}

    assert [file for file in sorted(files) if not any((root / file).is_file() for root in roots)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_commands_exist(page: Path) -> None:
    """Every command that a page gives to `sluice` exists."""
    known = get_command(app).commands  # type: ignore[attr-defined]
    named = re.findall(r"(?:`|^ {4}|^\$ )sluice ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
    assert [command for command in named if command not in known] == []


def snippets(page: str, language: str) -> list[str]:
    """The blocks of code in a page."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(snippet) for snippet in found]


def undefined(snippet: str) -> Iterator[str]:
    """The names that a snippet uses, and neither makes nor imports."""
    nodes = list(ast.walk(ast.parse(snippet)))
    made = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {alias.asname or alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    yield from (node.id for node in nodes if isinstance(node, ast.Name) and node.id not in made | set(dir(builtins)))


@pytest.mark.parametrize("snippet", snippets(GUIDE, "python"), ids=lambda text: text.strip().splitlines()[-1])
def test_snippets_of_the_guide_are_whole(snippet: str) -> None:
    """Who types a snippet of the guide lacks no import."""
    assert list(undefined(snippet)) == []


def test_declarations_of_the_guide(tmp_path: Path) -> None:
    """The stream of the guide is declared as it stands there."""
    snippet = next(text for text in snippets(GUIDE, "python") if "Stream(" in text)
    assert [stream.name for stream in load_declarations(str(put(tmp_path / "orders.py", snippet)))] == ["orders"]


def test_project_file_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project file of the guide is read as it stands there, with the variable that it names."""
    monkeypatch.setenv("S3_ENDPOINT", "https://s3.example.com")
    (text,) = snippets(GUIDE, "toml")
    assert load_project(put(tmp_path / "sluice.toml", text)).storage_options == {
        "aws_endpoint": "https://s3.example.com"
    }


def test_every_exit_code_is_in_the_guide() -> None:
    """The table of exit codes has every code that an error leads to."""
    table = GUIDE.partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    explained = {int(code) for code in re.findall(r"^\| (\d) \|", table, re.MULTILINE)}
    assert explained == {0} | {kind.exit_code for kind in errors()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of the repository, and to a heading in it, finds it."""
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text("utf-8")):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("adr", ADRS, ids=lambda adr: adr.stem)
def test_adr_has_its_sections(adr: Path) -> None:
    """An ADR is numbered as its file is, and says status, context, decision, consequences, and what violates it."""
    text = adr.read_text("utf-8")
    assert text.startswith(f"# {int(adr.name[:4])}. ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Status",
        "Context",
        "Decision",
        "Consequences",
        "A change violates this when",
    ]


def test_adrs_are_numbered_without_gaps() -> None:
    """ADRs are numbered from 1 on."""
    assert [int(adr.name[:4]) for adr in ADRS] == list(range(1, len(ADRS) + 1))
