"""Where lineage is told: OpenLineage's own variables and files say it, and nobody is asked for more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from openlineage.client import OpenLineageClient

from sluice.lineage.settings import LineageSettings, Parent, given_environment, lineage_settings, using
from tests.builders import put
from tests.lineage_server import forget_lineage

PARENT = "airflow/prod/dag.task/01a2190e-9322-75e2-a43f-5f099be5f183"
ROOT = "airflow/prod/dag/01a2190e-0000-75e2-a43f-5f099be5f183"
HTTP = {"transport": {"type": "http", "url": "http://127.0.0.1:1", "auth": {"type": "api_key", "apiKey": "a key"}}}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_lineage(monkeypatch, tmp_path)


def test_nothing_is_told_where_nothing_says_where() -> None:
    """OpenLineage's client alone would print to the console."""
    assert lineage_settings() is None


@pytest.mark.parametrize("name", ["OPENLINEAGE_URL", "OPENLINEAGE__TRANSPORT", "OPENLINEAGE__TRANSPORT__TYPE"])
def test_a_variable_says_where(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An empty one says nothing, and `OPENLINEAGE_DISABLED` wins."""
    monkeypatch.setenv(name, "")
    assert lineage_settings() is None
    monkeypatch.setenv(name, "something")
    assert lineage_settings() == LineageSettings()
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "True")
    assert lineage_settings() is None


@pytest.mark.parametrize("name", ["openlineage.yml", ".openlineage/openlineage.yml", "somewhere/else.yml"])
def test_a_file_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """In the working folder, in the user's, or where `OPENLINEAGE_CONFIG` says."""
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "somewhere" / "else.yml"))
    assert lineage_settings() is None

    put(tmp_path / name, "transport: {type: noop}")

    assert lineage_settings() == LineageSettings()


def test_whose_run_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that Airflow's macros are put into for other tools' runs."""
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "lake")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", PARENT)
    monkeypatch.setenv("OPENLINEAGE_ROOT_PARENT_ID", ROOT)

    settings = lineage_settings()

    assert settings is not None
    assert settings.namespace == "lake"
    assert settings.parent == Parent("airflow/prod", "dag.task", PARENT.rpartition("/")[2])
    assert settings.root == Parent.parse(ROOT)
    assert (str(settings.parent), str(settings.root)) == (PARENT, ROOT)


@pytest.mark.parametrize("text", [None, "", "task", "a/b", "/b/c", "a//c"])
def test_what_is_no_parent(text: str | None) -> None:
    """It is left out: no run fails for it."""
    assert Parent.parse(text) is None


def test_a_driver_is_told_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Airflow is set up with reaches the driver as OpenLineage's variables; to be silent, too."""
    settings = LineageSettings("lake", Parent.parse(PARENT), Parent.parse(ROOT), HTTP)
    assert given_environment() == {}
    with using(settings):
        environment = given_environment()
        assert lineage_settings() == settings
    assert lineage_settings() is None

    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert lineage_settings() == LineageSettings("lake", settings.parent, settings.root)
    told = OpenLineageClient().transport.config
    assert (told.url, told.auth.get_bearer()) == ("http://127.0.0.1:1", "Bearer a key")
    with using(LineageSettings(is_disabled=True)):
        assert lineage_settings() is None
        assert given_environment() == {"OPENLINEAGE_DISABLED": "true"}


WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.startswith("openlineage") else found(name, package)
from sluice.lineage.settings import lineage_settings
import sluice.running.runner, sluice.running.backfill, sluice.auditing.return_rows
assert (lineage_settings() is None) == ({installed!r} == "no"), lineage_settings()
assert not [name for name in sys.modules if name.startswith("openlineage")]
"""


def test_nothing_is_imported_before_something_is_told(tmp_path: Path) -> None:
    """Where the package is missing, a variable that is meant for other tools does no harm."""
    environment = {**os.environ, "OPENLINEAGE_URL": "http://127.0.0.1:1"}
    code = WITHOUT.format(installed="no")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
