"""The suite that a stream declares: a JSON file, a function, or a Python file that builds one with the real library."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.errors import DeclarationError
from sluice.project import Project
from sluice.quality.declared_suite import declared_suite
from sluice.storage import Storage
from tests.builders import make_stream
from tests.unit.quality.suites import document, row

BUILDS = """
import great_expectations as gx
from great_expectations.expectations.row_conditions import Column


def suite():
    return gx.ExpectationSuite(name="built", expectations=[
        gx.expectations.ExpectColumnValuesToBeBetween(
            column="n", min_value=1, mostly=0.9, severity="warning", meta={"sluice": {"policy": "drop"}},
            row_condition=(Column("t") == "x") & Column("n").is_not_null(),
        ),
    ])
"""
READS = """
import sys, warnings
warnings.simplefilter("ignore")
from sluice.project import Project
from sluice.quality.compile import compile_suite
from sluice.quality.declared_suite import declared_suite
from sluice.storage import Storage
from tests.builders import make_stream
project = Project(sys.argv[1], "p", sys.argv[1] + "/home", (), (sys.argv[1],))
for declared in sys.argv[2:]:
    found = declared_suite(project, make_stream(quality=declared), storage=Storage())
    print(found.expectations[0].policy, compile_suite(found, "n INT, t STRING").checks[0].unexpected)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project in a temporary folder."""
    return Project(str(tmp_path), "p", str(tmp_path / "home"), (), (str(tmp_path),))


def test_none(project: Project) -> None:
    """A stream without `quality` has no suite."""
    assert declared_suite(project, make_stream(), storage=Storage()) is None


def test_json(project: Project, tmp_path: Path) -> None:
    """A path is relative to the project."""
    (tmp_path / "s.json").write_bytes(document(row("expect_table_row_count_to_equal", value=1)))

    found = declared_suite(project, replace(make_stream(), quality="s.json"), storage=Storage())

    assert found is not None
    assert (len(found.expectations), found.source) == (1, str(tmp_path / "s.json"))


def test_python(tmp_path: Path) -> None:
    """Python builds a suite with Great Expectations itself: in its file, or as a function of the project."""
    declared = ["built_suite.py", "built_suite.py:suite", "built_suite:suite"]
    (tmp_path / "built_suite.py").write_text(BUILDS)

    done = subprocess.run(
        [sys.executable, "-c", READS, str(tmp_path), *declared], capture_output=True, text=True, check=False
    )

    compiled = "drop (coalesce((`t` == 'x' AND `n` IS NOT NULL), false)) AND (`n` IS NOT NULL AND NOT (`n` >= 1.0D))"
    assert done.stdout.splitlines() == [compiled] * len(declared), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("content", "declared", "problem"),
    [
        ("def suite(:", "x.py", "does not import"),
        ("1 / 0", "x.py", "ZeroDivisionError"),
        ("suite = 5", "x.py", "has no function `suite`"),
        ("def other(): return 5", "x.py:other", "gives a int"),
        ("", "y.py", "does not import"),
        ("", "../x.json", "leaves the project"),
        ("", "none.json", "there is no suite"),
    ],
)
def test_mistakes(project: Project, tmp_path: Path, content: str, declared: str, problem: str) -> None:
    """What builds no suite is refused, with the file."""
    (tmp_path / "x.py").write_text(content)

    with pytest.raises(DeclarationError, match=problem):
        declared_suite(project, replace(make_stream(), quality=declared), storage=Storage())
