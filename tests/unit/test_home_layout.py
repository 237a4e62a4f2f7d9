"""The layout of a home has one owner, `home.py`; its map there, the tour's, and what is on disk agree."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

from sluice import home
from tests.golden_homes.unpacking import ARCHIVES, NAMES, unpack

REPOSITORY = Path(__file__).parents[2]
_LINE = re.compile(r"^ *<home>/<stream>/(\S+)", re.MULTILINE)
OWNED = _LINE.findall(home.__doc__ or "")
MAP = _LINE.findall((REPOSITORY / "docs" / "engine.md").read_text("utf-8"))


def matches(place: str, path: PurePosixPath) -> bool:
    """Whether a file of a stream's folder is the one that a line of the map tells of, or lies in its folder."""
    parts = place.rstrip("/").split("/")
    patterns = [re.sub(r"<\w+>", "[^/]+", re.escape(part).replace("0001", "[0-9]+")) for part in parts]
    return len(path.parts) >= len(parts) and all(
        re.fullmatch(pattern, part) for pattern, part in zip(patterns, path.parts, strict=False)
    )


def test_the_tour_has_the_map() -> None:
    """What the tour of the engine shows is what the owner of the layout says."""
    assert len(OWNED) > 20
    assert sorted(MAP) == sorted(OWNED)


@pytest.mark.parametrize("archive", ARCHIVES, ids=NAMES)
def test_what_is_on_disk_is_on_the_map(archive: Path, tmp_path: Path) -> None:
    """Homes that runs, backfills, releases and kills have left have nothing that the map does not show."""
    folder = unpack(archive, tmp_path).root / "var" / "sluice" / "numbers"
    files = [PurePosixPath(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]
    assert [file for file in files if not any(matches(place, file) for place in MAP)] == []


def test_nobody_else_makes_paths_of_a_home() -> None:
    """A second owner of the layout would not move with the first; the project knows where its home is."""
    pattern = re.compile(r"join\((?:self\.|project\.|_)*home(?:\.location)?, ")
    sources = [*(REPOSITORY / "include" / "sluice").rglob("*.py"), *(REPOSITORY / "plugins").rglob("*.py")]
    others = {file.name for file in sources if pattern.search(file.read_text("utf-8"))}
    assert others == {"project.py", "java.py"}, "java.py speaks of Java's home"
