"""The example DAGs, as Airflow's own DAG processor loads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import REPOSITORY

from sluice.project import find_project
from sluice.quality.declared_suite import declared_suite
from sluice.storage import Storage

pytestmark = pytest.mark.airflow

HEAVY = ("great_expectations", "pyspark", "deltalake", "pandas", "pyarrow")
_PROGRAM = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(sys.argv[1])
for dag in bag.dags.values():
    DagSerialization.to_dict(dag)
print(json.dumps([sorted(bag.dags), bag.import_errors, sorted(sys.modules)]))
"""


def test_loading_them_imports_nothing_heavy() -> None:
    """Great Expectations alone would cost six seconds, at every parse; also with streams that declare a suite."""
    project = find_project(str(REPOSITORY))
    assert declared_suite(project, project.stream("departures"), storage=Storage()) is not None
    paths = f"{REPOSITORY / 'include'}:{REPOSITORY / 'plugins'}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(REPOSITORY / "dags")],
        env=os.environ | {"PYTHONPATH": paths, "SLUICE_PROJECT": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    dags, errors, modules = json.loads(done.stdout.splitlines()[-1])

    assert dags == [
        "delay_report", "flights", "flights_audit", "flights_complete_day", "flights_now", "flights_on_arrival",
        "flights_per_commit", "flights_per_day",
    ]  # fmt: skip
    assert errors == {}
    assert [name for name in HEAVY if name in modules] == []
