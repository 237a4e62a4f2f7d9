"""Writes `docs/coverage.md` from the table of the engine's systems: `python -m tests.draw_coverage`.

A test says when it is due. What the page claims is held by the run of all tests: see `tests/engine_verdicts.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
TABLE = REPOSITORY / "tests" / "engine_systems.toml"
PAGE = REPOSITORY / "docs" / "coverage.md"
_HEAD = """\
# Spark's systems, one by one

Each system of Spark's streaming engine, how Sluice shows it, and the tests that fail if it does not work. `S` is the
name of a stream; links in the second column lead to steps of [the life of a query](engine-tour.md). The page comes from
`tests/engine_systems.toml` by `python -m tests.draw_coverage`. `passes` is said of `make test`, which fails if a test
that is named here did not run, or of which no case passed.
"""
_END = """
## Without a row

No test shows these through a run of Sluice: Spark's own web UI, which runs leave off, and its log; its registry of
where state is loaded, which each commit unloads; the inner messages of a continuous query. Scala's typed API and its
memory source have no counterpart in Python.
"""


@dataclass(frozen=True)
class System:
    """One system of the engine: a row of the page."""

    area: str
    name: str
    shown_by: str
    """What shows it to a user, in Markdown: commands, or what is declared."""
    tests: tuple[str, ...]
    """Node ids without parameters; each of them fails if the system does not work."""
    remark: str = ""


def systems() -> tuple[System, ...]:
    """Every system of the table, in its order."""
    table: dict[str, Any] = tomllib.loads(TABLE.read_text("utf-8"))
    return tuple(
        System(area["name"], **(found | {"tests": tuple(found["tests"])}))
        for area in table["area"]
        for found in area["system"]
    )


def page() -> str:
    """The page as the table has it."""
    return "".join(_lines(systems()))


def _lines(found: tuple[System, ...]) -> Iterator[str]:
    yield _HEAD
    area = None
    for system in found:
        if system.area != area:
            area = system.area
            yield f"\n## {area}\n\n| system | shown by | tests | verdict |\n|---|---|---|---|\n"
        tests = ", ".join(map(_link, system.tests))
        verdict = f"passes. {system.remark}" if system.remark else "passes"
        yield f"| {system.name} | {system.shown_by} | {tests} | {verdict} |\n"
    yield _END


def _link(node: str) -> str:
    file, _, name = node.partition("::")
    return f"[{name.rpartition('::')[2].removeprefix('test_').replace('_', ' ')}](../{file})"


def main() -> None:
    """Write the page of today."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
