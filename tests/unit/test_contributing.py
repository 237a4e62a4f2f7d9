"""The table of plausible changes in CONTRIBUTING: what it names is there, and a change touches few files."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ROOTS = (REPOSITORY / "include" / "sluice", REPOSITORY / "plugins" / "sluice_airflow")
MOST_PER_CHANGE = 1.5


def changes() -> dict[str, list[str]]:
    """By change, the files and folders that it touches."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("| change | files |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = (line.strip("| ").split(" | ") for line in table.splitlines())
    return {change: re.findall(r"`([a-z_/]+(?:NAME)?(?:\.py|/))`", files) for change, files in rows}


def test_what_a_change_touches_is_there() -> None:
    """A file that was moved or renamed is no help; new ones go into a folder that is there."""
    named = [path for paths in changes().values() for path in paths]
    places = [path.rpartition("/")[0] if path.endswith(("NAME.py", "pulsar.py")) else path for path in named]

    assert len(changes()) == 15
    assert [place for place in places if not any((root / place).exists() for root in ROOTS)] == []


def test_a_change_touches_few_files() -> None:
    """At most one and a half, on average: where one needs more, the rooms want mending."""
    counts = [len(paths) for paths in changes().values()]

    assert min(counts) >= 1
    assert sum(counts) / len(counts) <= MOST_PER_CHANGE
