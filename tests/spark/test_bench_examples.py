"""Every example of the bench runs: those of its page, and the test that a new project has."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.template import create_project
from sluice.testing import Bench
from tests.shown_code import files_of

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")
EXAMPLES = files_of(PAGE)


class Outcomes:
    """Hears what becomes of the tests of a run of pytest."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        if not report.passed:
            self.others.append(f"{name}: {report.longreprtext}")
        elif report.when == "call":
            self.passed.append(name)


@pytest.fixture(autouse=True)
def _own_modules(spark: SparkSession) -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in {"conftest", *(name for name in sys.modules if name.startswith("test_"))} - before:
        sys.modules.pop(name, None)


def run_tests(project: Path) -> list[str]:
    """Run the tests of a project as pytest does, in this process and its Spark; the names of those that passed."""
    outcomes = Outcomes()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null", f"--rootdir={project}"]
    pytest.main([*options, str(project / "tests")], plugins=[outcomes])
    assert outcomes.others == []
    return outcomes.passed


def test_the_page(tmp_path: Path) -> None:
    """What the page has is a whole project."""
    (tmp_path / "sluice.toml").write_text("[project]\n", "utf-8")
    for file, content in EXAMPLES:
        place = tmp_path / file
        place.parent.mkdir(exist_ok=True)
        place.write_text(content, "utf-8")
    assert len(EXAMPLES) == PAGE.count("```python") == 9
    assert len(run_tests(tmp_path)) == 16
    assert {file.name for file in tmp_path.iterdir()} == {"sluice.toml", "streams", "jobs", "tests"}


def test_the_difference_on_the_page(tmp_path: Path) -> None:
    """The page shows the message as it is."""
    create_project(tmp_path / "shop")
    for file, content in EXAMPLES[:3]:
        (tmp_path / "shop" / file).write_text(content, "utf-8")
    with Bench(tmp_path / "bench", str(tmp_path / "shop")) as bench:
        bench.open("orders")
        bench.add("orders", [{"order_id": 1, "amount": 9.5}, {"order_id": 2, "amount": 3.0}])
        bench.run()
        with pytest.raises(AssertionError) as caught:
            bench.check_rows([{"order_id": 1, "amount": 9.0}])
    shown = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert re.sub(r", \d+\.\d s$", "", str(caught.value), flags=re.MULTILINE) == shown[0]


def test_a_new_project(tmp_path: Path) -> None:
    """What `sluice init` brings passes."""
    create_project(tmp_path / "shop")
    assert run_tests(tmp_path / "shop") == ["test_a_visit_that_is_delivered_twice", "test_a_run_that_dies"]
    assert not (tmp_path / "shop" / "var").exists()
