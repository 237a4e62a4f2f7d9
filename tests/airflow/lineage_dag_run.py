"""One DAG run of a stream in an Airflow of its own, whose OpenLineage provider is set up by the environment.

    lineage_dag_run.py ROOT DAGS

Airflow reads how the provider is set up when it is imported, so these tests' own Airflow can't be told.
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_project import StreamProject

START = datetime(2026, 1, 1, tzinfo=UTC)

project = StreamProject(Path(sys.argv[1]), Path(sys.argv[2]))
project.arrived = len(list((project.root / "in").iterdir()))
project.arrive(1, at=START - timedelta(days=1))
run = project.dag('conn_id="spark_test", default_args={"retries": 0}').test(logical_date=START)
assert run.state == "success", run.state
