"""A project with two streams for the Airflow tests, and a fixture of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from deltalake import DeltaTable

from sluice.home import StreamHome
from sluice.project import find_project
from sluice.runs.record import RunRecord, RunRecords

_PROJECT = """
[project]
name = "{name}"
streams = ["streams"]
"""
_DECLARATION = """
from sluice import Stream, sinks, sources
events = Stream(
    name="events",
    sources={"events": sources.files("in", format="json", schema="n bigint")},
    transform="transform_events:events",
    sink=sinks.delta("out/events"),
)
hourly = Stream(
    name="hourly",
    sources={"events": sources.delta("out/events")},
    transform="transform_events:events",
    sink=sinks.delta("out/hourly"),
)
"""


_DAG = """
from datetime import datetime, timedelta, timezone
from sluice_airflow.stream_dag import stream_dag
dag = stream_dag(
    {streams}, dag_id="{dag_id}", project="{project}", schedule="@once",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), {arguments}
)
"""


_DECORATED = """
from datetime import datetime, timezone
from airflow.sdk import DAG, task
with DAG("{dag_id}", schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
    @task.stream(stream="events", project="{project}")
    def events(logical_date):
        return {bounds}
    events()
"""


@dataclass
class StreamProject:
    """The project, and what went into it."""

    root: Path
    dags: Path
    """Airflow's DAGs folder: `DAG.test` knows only what lies there."""
    arrived: int = 0

    def dag(self, arguments: str = "", *, streams: str = '"events"', dag_id: str | None = None) -> DAG:
        """Write a DAG file that runs `events`, or other streams, with further arguments of `stream_dag`; load it."""
        dag_id = dag_id or f"events_{self.root.name}"
        arguments = arguments or 'conn_id="spark_test"'
        text = _DAG.format(dag_id=dag_id, project=str(self.root), streams=streams, arguments=arguments)
        return self._load(dag_id, text)

    def decorated_dag(self, bounds: str) -> DAG:
        """Write a DAG file that runs `events` by `@task.stream`, whose function returns an expression's value."""
        dag_id = f"decorated_{self.root.name}"
        return self._load(dag_id, _DECORATED.format(dag_id=dag_id, project=str(self.root), bounds=bounds))

    def dag_by_hand(self, text: str) -> DAG:
        """Write a DAG file as somebody types it, with `dag_id` and `project` in braces; load it."""
        dag_id = f"by_hand_{self.root.name}"
        return self._load(dag_id, text.format(dag_id=dag_id, project=str(self.root)))

    def _load(self, dag_id: str, text: str) -> DAG:
        file = self.dags / f"{dag_id}.py"
        file.write_text(text)
        bag = DagBag(str(file))
        assert not bag.import_errors, bag.import_errors
        return bag.dags[dag_id]

    def arrive(self, files: int, *, at: datetime) -> None:
        """Let files of one row each arrive at a time. Whoever watches sees a file once, whole and with its time."""
        for _ in range(files):
            file = self.root / "in" / f"{self.arrived}.json"
            arriving = self.root / file.name
            arriving.write_text(json.dumps({"n": self.arrived}))
            os.utime(arriving, (at.timestamp(), at.timestamp()))
            arriving.rename(file)
            self.arrived += 1

    def check(self, *, most: int, policy: str = "fail") -> None:
        """Give `events` a suite: no number may be above `most`."""
        expectation = {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "n", "max_value": most},
            "meta": {"sluice": {"policy": policy}},
        }
        (self.root / "suite.json").write_text(json.dumps({"name": "events", "expectations": [expectation]}))
        declared = _DECLARATION.replace(
            'sinks.delta("out/events"),', 'sinks.delta("out/events"), quality="suite.json",'
        )
        (self.root / "streams" / "events.py").write_text(declared)

    def home(self) -> StreamHome:
        """Where the stream `events` keeps what it knows."""
        project = find_project(str(self.root))
        return project.stream_home(project.stream("events"))

    def records(self) -> list[RunRecord]:
        """Its newest run records."""
        return list(RunRecords(self.home()).newest(10))

    def rows(self) -> list[int]:
        """The numbers in its sink, sorted."""
        return sorted(DeltaTable(str(self.root / "out" / "events")).to_pyarrow_table().column("n").to_pylist())


def make_stream_project(root: Path, dags: Path) -> StreamProject:
    """Write the project's files."""
    (root / "in").mkdir()
    (root / "streams").mkdir()
    (root / "sluice.toml").write_text(_PROJECT.format(name=root.name))
    (root / "streams" / "events.py").write_text(_DECLARATION)
    (root / "transform_events.py").write_text("def events(events):\n    return events\n")
    return StreamProject(root, dags)
