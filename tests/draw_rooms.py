"""Draws the rooms of the code into `docs/architecture.md`: `python -m tests.draw_rooms`. A test says when it is due."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_layers import GRAPH, LAYERS, REPOSITORY, ROOMS

PAGE = REPOSITORY / "docs" / "architecture.md"
BEGIN, END = "```mermaid\n", "```\n"
_GROUND = ROOMS[0][0]


def _room(module: str) -> str | None:
    """The room of a module, named by the first of its parts; None for the package itself."""
    package, _, rest = module.partition(".")
    part = rest.partition(".")[0]
    if package == "sluice_airflow":
        return package
    return ROOMS[LAYERS[part]][0] if part in LAYERS else None


def _arrows() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for module, imported in GRAPH.items():
        room = _room(module)
        below = {other for other in map(_room, imported) if other is not None}
        if room is not None:
            found.setdefault(room, set()).update(below - {room})
    return found


def _reached(room: str, arrows: dict[str, set[str]]) -> set[str]:
    below = arrows.get(room, set())
    return below.union(*(_reached(other, arrows) for other in below))


def drawing() -> str:
    """The picture: an arrow for each room that another needs at once; what is reached through others goes unsaid."""
    return "".join((BEGIN, *_lines(_arrows()), END))


def _lines(arrows: dict[str, set[str]]) -> Iterator[str]:
    yield "flowchart TD\n"
    yield f'    {_GROUND}["the ground"]\n'
    for room, below in sorted(arrows.items()):
        further = set().union(*(_reached(other, arrows) for other in below))
        yield from (f"    {room} --> {other}\n" for other in sorted(below - further))


def drawn(page: str) -> str:
    """The picture that a page has."""
    begin = page.index(BEGIN)
    return page[begin : page.index(END, begin + len(BEGIN)) + len(END)]


def main() -> None:
    """Put the picture of today into the page."""
    page = PAGE.read_text("utf-8")
    Path(PAGE).write_text(page.replace(drawn(page), drawing()), "utf-8")


if __name__ == "__main__":
    main()
