"""Projects in DAG bundles: each DAG has that of its own bundle, and no version moves what lasts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.configuration import conf
from airflow.dag_processing.bundles.base import BaseDagBundle, BundleVersion
from airflow.dag_processing.bundles.local import LocalDagBundle
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DAG
from airflow.sdk.execution_time.context import set_current_context

from sluice.errors import DeclarationError
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.projects import airflow_project, project_for_others
from sluice_airflow.sensors.progress import WatermarkSensor

pytestmark = pytest.mark.airflow

_DECLARATION = """
from sluice import Stream, sinks, sources
events = Stream(
    name="events",
    sources={{"landing": sources.files("{source}", format="json", schema="n bigint")}},
    transform="jobs:events",
    sink=sinks.delta("{sink}"),
)
"""
_DAG = """
from sluice_airflow.timetables import on_arrival
from sluice_airflow.sensors.progress import WatermarkSensor
from sluice_airflow.stream_dag import stream_dag
dag = stream_dag("events", dag_id="{dag_id}", schedule=on_arrival("events"))
with dag:
    WatermarkSensor(task_id="wait", stream="events", start_from_trigger=True)
"""


@pytest.fixture(autouse=True)
def _no_project_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Airflow's DAGs folder has none, and its bundles are kept in a folder of this test."""
    monkeypatch.delenv("SLUICE_PROJECT", raising=False)
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(tmp_path / "dags"))
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH", str(tmp_path / "bundles"))


def write_project(
    root: Path, *, name: str = "", home: str = "var/sluice", source: str = "in", sink: str = "out"
) -> Path:
    """A project with a DAG in it, as a team keeps it."""
    (root / "streams").mkdir(parents=True)
    (root / "dags").mkdir()
    named = f'name = "{name}"\n' if name else ""
    (root / "sluice.toml").write_text(f'[project]\n{named}home = "{home}"\n')
    (root / "streams" / "events.py").write_text(_DECLARATION.format(source=source, sink=sink))
    (root / "dags" / "events.py").write_text(_DAG.format(dag_id=f"events_of_{root.name}"))
    return root


class CopyBundle(BaseDagBundle):
    """A bundle with versions: each is a copy in the folder that Airflow gives it, as GitDagBundle clones one there."""

    supports_versioning = True

    def __init__(self, *, repository: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._repository = repository

    def initialize(self) -> None:
        if not self.path.exists():
            shutil.copytree(self._repository, self.path)
        super().initialize()

    @property
    def path(self) -> Path:
        return self.versions_dir / self.version if self.version else self.base_dir / "tracking_repo"

    def get_current_version(self) -> BundleVersion:
        return BundleVersion("newest")

    def refresh(self) -> None:
        shutil.rmtree(self.path)
        self.initialize()


def load(bundle: BaseDagBundle) -> tuple[dict[str, DAG], str]:
    """The DAGs of a bundle, as the DAG processor and workers load them, and what it says of those that do not load."""
    bundle.initialize()
    bag = BundleDagBag(str(bundle.path / "dags"), bundle_path=bundle.path, bundle_name=bundle.name)
    return bag.dags, "\n".join(bag.import_errors.values())


def asset_uris(dag: DAG) -> set[str]:
    """What its stream writes."""
    return {asset.uri for asset in dag.task_dict["events"].outlets}


def test_two_bundles_have_two_projects(tmp_path: Path) -> None:
    """Of one stream's name; whoever knows no DAG is told which one is meant."""
    roots = [write_project(tmp_path / name, name=name) for name in ("sales", "web")]
    for root in roots:
        dags, errors = load(LocalDagBundle(name=root.name, path=str(root)))
        assert errors == ""
        (dag,) = dags.values()
        assert any(uri.endswith(f"{root.name}/out") for uri in asset_uris(dag))
        sensor = dag.task_dict["wait"]
        assert isinstance(sensor, WatermarkSensor)
        assert sensor.start_trigger_args.trigger_kwargs["project"] == str(root)
        with set_current_context({"dag": dag}):  # type: ignore[typeddict-item]
            assert airflow_project().root == str(root)
            assert project_for_others() == str(root)


def test_sluice_project_wins_over_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said for this process."""
    here, there = (write_project(tmp_path / name, name=name) for name in ("here", "there"))
    monkeypatch.setenv("SLUICE_PROJECT", str(there))

    (dag,) = load(LocalDagBundle(name="here", path=str(here)))[0].values()

    assert any(uri.endswith("there/out") for uri in asset_uris(dag))


def test_no_project_anywhere_is_said(tmp_path: Path) -> None:
    """As without bundles."""
    write_project(tmp_path / "sales")
    (tmp_path / "sales" / "sluice.toml").unlink()

    assert "no sluice.toml here or in a folder above" in load(LocalDagBundle(name="s", path=str(tmp_path / "sales")))[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"home": "var/sluice"}, "every stream would begin anew"),
        ({"source": "in"}, "source `landing` of stream `events`"),
        ({"source": "in/*/day"}, "source `landing` of stream `events`"),
        ({"sink": "out"}, "the sink of stream `events`"),
        ({"name": ""}, "the project has no name of its own"),
    ],
)
def test_what_a_version_would_move_is_refused(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    """When the DAG is parsed, and so before anything is written: the DAG does not load, and says what to write."""
    lasting = {"name": "sales", "home": f"{tmp_path}/home", "source": f"{tmp_path}/in", "sink": f"{tmp_path}/out"}
    repository = write_project(tmp_path / "repository", **lasting | changes)

    dags, errors = load(CopyBundle(name="sales", repository=str(repository), version="v1"))

    assert dags == {}
    assert said in errors


def test_versions_share_what_lasts(tmp_path: Path) -> None:
    """The code is another one, home, sources and sinks are the same; so are the assets, by which DAGs wait."""
    repository = write_project(
        tmp_path / "repository", name="sales", home=f"{tmp_path}/home", source=f"{tmp_path}/in", sink="${LAKE}/events"
    )
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKE", str(tmp_path / "lake"))
        for version in ("v1", "v2", None):
            bundle = CopyBundle(name="sales", repository=str(repository), version=version)
            dags, errors = load(bundle)
            assert errors == ""
            (dag,) = dags.values()
            with set_current_context({"dag": dag}):  # type: ignore[typeddict-item]
                project = airflow_project()
                assert project.root == str(bundle.path)
                stream = project.stream("events")
                seen.append((project.home, project.name, stream.sink.location, *sorted(asset_uris(dag))))
    assert len(set(seen)) == 1
    assert seen[0][:3] == (f"{tmp_path}/home", "sales", f"{tmp_path}/lake/events")


def test_a_folder_that_was_named_is_checked_as_well(tmp_path: Path) -> None:
    """`project=` and `SLUICE_PROJECT` may lead there, too."""
    bundle = CopyBundle(name="sales", repository=str(write_project(tmp_path / "repository")), version="v1")
    bundle.initialize()

    with pytest.raises(DeclarationError, match="every stream would begin anew"):
        airflow_project(str(bundle.path))


@pytest.fixture
def in_the_file() -> Iterator[None]:
    """`default_deferrable = false`, as Airflow writes it into every airflow.cfg that it makes."""
    had = conf.has_section("operators")
    conf.read_dict({"operators": {"default_deferrable": "false"}})
    yield
    conf.remove_option("operators", "default_deferrable", remove_default=False)
    if not had:
        conf.remove_section("operators")


def deferrables() -> tuple[bool | None, bool]:
    """What an operator and a sensor make of it where they are not told."""
    return RunStreamOperator(task_id="a", stream="s").deferrable, WatermarkSensor(task_id="b", stream="s").deferrable


def test_nobody_has_said_whether_to_defer() -> None:
    """Airflow's own `False` is no word of anybody's: a run is not to keep a worker."""
    assert deferrables() == (None, True)


@pytest.mark.parametrize(("said", "expected"), [("True", (None, True)), ("False", (False, False))])
def test_default_deferrable_is_followed(
    monkeypatch: pytest.MonkeyPatch, said: str, *, expected: tuple[bool | None, bool]
) -> None:
    """Unless a task says otherwise. A task whose driver would end with it stays, also where all are to be deferred."""
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", said)

    assert deferrables() == expected
    assert RunStreamOperator(task_id="a", stream="s", deferrable=True).deferrable is True
    assert WatermarkSensor(task_id="b", stream="s", deferrable=True, start_from_trigger=True).start_from_trigger
    assert WatermarkSensor(task_id="c", stream="s", start_from_trigger=True).start_from_trigger is expected[1]


@pytest.mark.usefixtures("in_the_file")
def test_airflows_own_file_says_nothing() -> None:
    assert deferrables() == (None, True)
