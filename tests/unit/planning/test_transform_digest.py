"""What tells one text of a transform from another: its module, and what of the project that imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.planning.transform_text import transform_digest
from sluice.project import Project
from tests.builders import make_stream, put

FILES = {
    "jobs/__init__.py": "",
    "jobs/visits.py": "import json\nfrom jobs import keys\nfrom .days import day\ndef visits(visits):\n    ...\n",
    "jobs/keys.py": "import shared.names\nKEYS = ['id']\n",
    "jobs/days.py": "from jobs.visits import visits\ndef day(): ...\n",
    "shared/names.py": "ID = 'id'\n",
    "jobs/other.py": "OTHER = 1\n",
}


def digest(root: Path, transform: str = "jobs.visits:visits") -> str | None:
    project = Project(str(root), "p", str(root / "home"), (), (str(root),))
    return transform_digest(project, make_stream(transform=transform))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        put(tmp_path / name, text)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["jobs/visits.py", "jobs/keys.py", "jobs/days.py", "shared/names.py", "jobs/__init__.py"]
)
def test_a_change_in_what_is_imported(root: Path, name: str) -> None:
    """Of the module, of one beside it, of one that this imports, of the package; and back again."""
    before = digest(root)
    put(root / name, f"{FILES[name]}MORE = 1\n")
    changed = digest(root)
    put(root / name, FILES[name])

    assert None not in {before, changed}
    assert changed != before
    assert digest(root) == before


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("# more\nimport json\nfrom jobs import keys\nfrom .days import day\n\n\ndef visits(visits):\n    ...\n", True),
        ("import json\nfrom jobs import keys\nfrom .days import day\ndef visits(visits): ...  # more", True),
        ("import json\nfrom jobs import keys\nfrom .days import day\ndef visits(visits):\n    'more'\n", False),
        ("import json\nfrom jobs import keys\nfrom .days import day\ndef visits(visits:\n", False),
    ],
)
def test_comments_and_lines(root: Path, text: str, is_same: bool) -> None:  # noqa: FBT001 - a parameter
    """They change nothing of what it does; a text that is none of Python's is what it is."""
    before = digest(root)
    put(root / "jobs" / "visits.py", text)
    assert (digest(root) == before) == is_same


def test_a_change_elsewhere(root: Path) -> None:
    """Nobody imports it."""
    before = digest(root)
    put(root / "jobs" / "other.py", "OTHER = 2\n")

    assert digest(root) == before


def test_a_name_that_becomes_a_module(root: Path) -> None:
    """What was a package's name is looked for in a file from then on."""
    before = digest(root)
    put(root / "json.py", "def loads(): ...\n")

    assert digest(root) != before


def test_what_does_not_parse_and_what_is_not_there(root: Path) -> None:
    """The text counts all the same; without one there is nothing to tell."""
    put(root / "jobs" / "keys.py", "def (\n")
    assert digest(root) is not None
    assert digest(root, "jobs.nothing:visits") is None


def test_a_module_in_folders_without_init(root: Path) -> None:
    """However deep: nothing above it need have been imported."""
    put(root / "shop" / "daily" / "visits.py", "from shop.daily import keys\ndef visits(visits): ...\n")
    put(root / "shop" / "daily" / "keys.py", "KEYS = 1\n")
    before = digest(root, "shop.daily.visits:visits")
    put(root / "shop" / "daily" / "keys.py", "KEYS = 2\n")

    assert None not in {before, digest(root, "shop.daily.visits:visits")}
    assert digest(root, "shop.daily.visits:visits") != before
