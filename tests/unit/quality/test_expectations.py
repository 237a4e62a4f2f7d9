"""The table of expectations: it is Great Expectations' own registry, and the page shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sluice.quality.expectations import EXPECTATIONS

PAGE = Path(__file__).parents[3] / "docs" / "quality.md"
SHOWN = {
    "exact": "compiled, exact",
    "schema": "compiled, from the columns",
    "sketch": "compiled with a sketch when asked, else re-read",
    "reread": "re-read",
    "none": "not applicable",
}
WALK = """
import json, logging, warnings
warnings.simplefilter("ignore"); logging.disable(50)
import great_expectations as gx
from great_expectations.expectations import registry
common = {"id", "meta", "notes", "result_format", "description", "catch_exceptions", "rendered_content", "severity",
          "windows", "batch_id", "library_metadata"}
print(json.dumps({"version": gx.__version__, "found": {
    name: {field: [model.required, None if callable(model.default) else model.default]
           for field, model in registry.get_expectation_impl(name).__fields__.items() if field not in common}
    for name in registry.list_registered_expectation_implementations()}}))
"""


@pytest.fixture(scope="module")
def registry() -> dict[str, dict[str, list[object]]]:
    """Every registered expectation with its arguments: whether each is required, and its default."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", WALK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    walked = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert walked["version"].startswith("1.24.")
    found: dict[str, dict[str, list[object]]] = walked["found"]
    return found


def test_no_expectation_is_forgotten(registry: dict[str, dict[str, list[object]]]) -> None:
    """The table has exactly the expectations that Great Expectations has registered."""
    assert sorted(EXPECTATIONS) == sorted(registry)


def test_arguments_are_the_library_s(registry: dict[str, dict[str, list[object]]]) -> None:
    """Every expectation takes the library's arguments, requires those that it requires, and has its defaults."""
    ours = {
        kind: {name: [found.is_required, found.default] for name, found in entry.arguments.items()}
        for kind, entry in EXPECTATIONS.items()
    }

    assert ours == registry


def test_the_page_has_the_table() -> None:
    """The table in the documentation says of every expectation what the code does."""
    rows = re.findall(
        r"^\| `((?:expect|unexpected)_\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )

    assert rows == [(name, SHOWN[kind.path], kind.why) for name, kind in sorted(EXPECTATIONS.items())]
