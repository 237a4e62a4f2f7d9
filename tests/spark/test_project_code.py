"""A project's own code in Spark's Python workers: found from any folder, on any Spark, and as it is now."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import Project, find_project
from sluice.running.runner import run_stream
from sluice.spark_setting import spark_setting
from tests.campaign import in_campaigns, rarely
from tests.code_project import WRITTEN, arrive, import_at_the_top, make_code_project, written_by_batches
from tests.spark.connect_server import DELTA, serving

pytestmark = pytest.mark.spark

Run = Callable[[str], None]
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGES = {"beside.py": ("10", "100"), "jobs/steps.py": ("beside.STEP", "100"), "shapes/late.py": ("1", "10")}
"""What is changed by module, such that the step of ten is one of a hundred."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The project, in a folder that is not the one that Spark was started in."""
    return find_project(str(make_code_project(tmp_path)))


@pytest.fixture
def run(project: Project, spark: SparkSession) -> Run:
    """Runs a stream of the project."""

    def run(name: str) -> None:
        record = run_stream(project, Request(project.stream(name), Limits()), session=spark)
        assert record.status == "succeeded"

    return run


def rows(project: Project, name: str) -> list[int]:
    return sorted(DeltaTable(f"{project.root}/out/{name}").to_pyarrow_table()["n"].to_pylist())


@pytest.mark.parametrize("name", ["row_by_row", *rarely("in_pandas", "with_state")])
def test_functions_of_every_kind(project: Project, run: Run, name: str) -> None:
    run(name)

    assert rows(project, name) == WRITTEN[name]


@in_campaigns
def test_a_stateful_processor(project: Project, run: Run, spark: SparkSession) -> None:
    with spark_setting(spark, _PROVIDER, _ROCKSDB):
        run("with_processor")

    assert rows(project, "with_processor") == WRITTEN["with_processor"]


def test_functions_in_batches(project: Project, run: Run) -> None:
    run("in_batches")

    assert written_by_batches(Path(project.root)) == ([11], [31])


@pytest.mark.parametrize("changed", ["shapes/late.py", *rarely("beside.py", "jobs/steps.py")])
def test_code_that_changes_between_two_runs(project: Project, run: Run, changed: str) -> None:
    """Neither the driver nor a worker goes on with what it imported before, at its top or in a function."""
    run("row_by_row")
    file = Path(project.root, "code", changed)
    file.write_text(file.read_text().replace(*_CHANGES[changed]))
    arrive(Path(project.root), 2)

    run("row_by_row")

    step = 10 if changed == "shapes/late.py" else 100
    assert rows(project, "row_by_row") == [31, 2 + 100 + 100 + step]


def test_two_projects_with_modules_of_the_same_names(project: Project, run: Run, spark: SparkSession) -> None:
    other = find_project(str(make_code_project(Path(project.root, "other"))))
    Path(other.root, "code", "beside.py").write_text("STEP = 1000\n")
    run("row_by_row")

    run_stream(other, Request(other.stream("row_by_row"), Limits()), session=spark)

    assert rows(project, "row_by_row") == [31]
    assert rows(other, "row_by_row") == [3001]


def _spark_home(folder: Path) -> Path:
    """A Spark whose executors work in a folder of the test."""
    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("server"), {**DELTA, _PROVIDER: _ROCKSDB}) as running:
        yield running.url


@in_campaigns
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,1024]", "sc"])
@pytest.mark.parametrize("name", [*WRITTEN, "in_batches"])
def test_runs_from_another_folder(
    project: Project, master: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`sluice run --project`, where other modules of the same names lie; executors have folders of their own."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "jobs").mkdir(parents=True)
    (elsewhere / "jobs" / "__init__.py").write_text("raise ImportError('not this one')\n")
    if master == "sc":
        master = request.getfixturevalue("server")
        import_at_the_top(Path(project.root))
    else:
        with Path(project.root, "sluice.toml").open("a") as file:
            file.write(f'[spark]\nconf = {{ "{_PROVIDER}" = "{_ROCKSDB}" }}\n')
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if master.startswith("local-cluster"):
        environment |= {"SPARK_HOME": str(_spark_home(tmp_path / "spark")), "SPARK_SCALA_VERSION": "2.13"}

    done = subprocess.run(
        [str(Path(sys.executable).with_name("sluice")), "run", name, "--project", project.root],
        cwd=elsewhere,
        env=environment | {"SLUICE_SPARK_MASTER": master},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    if name == "in_batches":
        assert written_by_batches(Path(project.root)) == ([11], [31])
    else:
        assert rows(project, name) == WRITTEN[name]
