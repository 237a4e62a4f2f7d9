"""The assets of a stream with several sinks: each has the events of the runs that wrote into it, and of no others.

The drivers are small programs that end runs in place of Spark's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from airflow_project import StreamProject
from ended_runs import Launched, launching
from made_records import kept, live_run, plan_of
from sqlalchemy import select, update

from sluice import Stream, sinks
from sluice.errors import DeclarationError
from sluice.home import StreamHome
from sluice.runs.record import BatchRecord, RunRecord, RunRecords
from sluice.runs.told import read_told
from sluice.storage import Storage
from sluice_airflow import assets, timetables
from sluice_airflow.assets import Emitted, partition_asset, stream_asset
from tests.builders import QUERY_ID, commit_file, edit_commit, make_delta, make_stream

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)
_SUCCESS, _SKIPPED, _FAILED = TaskInstanceState.SUCCESS, TaskInstanceState.SKIPPED, TaskInstanceState.FAILED
_ONCE = 'conn_id="spark_test", default_args={"retries": 0}'
_DECLARATION = """
from sluice import Stream, sinks, sources

events = Stream(
    name="events",
    sources={"events": sources.files("in", format="json", schema="n bigint")},
    transform="transform_events:sorted_out",
    sinks={"good": sinks.delta("out/events"), "rest": sinks.delta("out/rest", partition_by=["part"])},
)
hourly = Stream(
    name="hourly",
    sources={"events": sources.files("in", format="json", schema="n bigint")},
    transform="transform_events:sorted_out",
    sinks={"good": sinks.delta("out/hourly"), "rest": sinks.delta("out/late")},
)
"""
_TRANSFORM = """
def sorted_out(events):
    return {"good": events.where("n % 2 = 0"), "rest": events.where("n % 2 = 1").selectExpr("n", "n as part")}
"""
_BY_REFERENCE = """
from datetime import datetime, timezone
from airflow.sdk import DAG, Asset, task
from sluice_airflow.assets import stream_asset

REST = stream_asset("events", sink="rest", project="{project}")
with DAG("{dag_id}", schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
    @task.stream(
        stream="events", project="{project}", conn_id="spark_test", retries=0,
        outlets=[stream_asset("events", project="{project}"), Asset.ref(name=REST.name), Asset("mine_{dag_id}")],
    )
    def events():
        pass
    events()
with DAG("{dag_id}_after", schedule=REST) as after:
    pass
"""


class TestWhatEventsTell:
    """What the events of a run are filled with."""

    def test_assets(self) -> None:
        """The first table has the stream's name, as that of one sink has; a topic can't tell what it has got."""
        declared = {
            "good": sinks.delta("/lake/good"),
            "topic": sinks.kafka("localhost:9092", topic="t"),
            "partitions": sinks.delta("/lake/rest", partition_by=["part"]),
        }
        stream = make_stream(sink=None, sinks=declared)

        assert {asset.name: asset.uri for asset in assets.outlets(stream)} == {
            "visits": "file:///lake/good",
            "visits.partitions": "file:///lake/rest",
            "visits.partitions/partitions": "file:///lake/rest?by=partition",
        }
        assert stream_asset(stream, sink="good") == stream_asset(stream)
        assert partition_asset(stream, sink="partitions").name == "visits.partitions/partitions"

    def test_each_tells_of_its_own_rows_and_versions(self, tmp_path: Path) -> None:
        """Of a batch that gave it none, it tells nothing; the rest is the run's."""
        stream = sorted_out(tmp_path, good=[[0], [1]], rest=[[5], [6, 7]])
        edit_commit(tmp_path / "rest", 1, {"version": 2}, action="txn")
        done = kept(
            tmp_path / "home", run(1, {"good": 1, "rest": 1}, {"good": 1, "rest": 0}, {"good": 0, "rest": 2}, first=0)
        )

        told, events = emit(tmp_path, stream, done)

        good, rest = (events[stream_asset(stream, sink=name)].extra for name in ("good", "rest"))
        assert (good["output_rows"], good["sink_version"], good["partitions"]) == (2, 1, ["0", "1"])
        assert (rest["output_rows"], rest["sink_version"], rest["partitions"]) == (3, 1, ["5", "6", "7"])
        assert (good["batches"], good["input_rows"]) == (rest["batches"], rest["input_rows"]) == ([0, 1, 2], 12)
        assert good.keys() == rest.keys()
        assert events[partition_asset(stream)].partition_keys == {"0", "1"}
        assert events[partition_asset(stream, sink="rest")].partition_keys == {"5", "6", "7"}
        assert told.silent == []

    def test_what_a_run_before_has_written_into_another_one(self, tmp_path: Path) -> None:
        """It failed, and no event told of it: that of the sink does, though the run that tells wrote none of it."""
        stream = sorted_out(tmp_path, good=[[0]], rest=[[5]])
        edit_commit(tmp_path / "good", 0, {"version": 1}, action="txn")
        failed = run(1, {"good": 0, "rest": 1}, first=0, status="failed")
        done = kept(tmp_path / "home", failed, run(2, {"good": 1, "rest": 0}, first=1))

        told, events = emit(tmp_path, stream, done)

        good, rest = (events[stream_asset(stream, sink=name)].extra for name in ("good", "rest"))
        assert (good["output_rows"], good["sink_version"], good["partitions"]) == (1, 0, ["0"])
        assert (rest["output_rows"], rest["sink_version"], rest["partitions"]) == (0, None, ["5"])
        assert good["since_runs"] == rest["since_runs"] == [failed.run_id]
        assert told.silent == []

    @pytest.mark.parametrize("is_recorded", [True, False], ids=["recovered", "never recorded"])
    def test_a_batch_whose_rows_died_with_its_driver(self, tmp_path: Path, *, is_recorded: bool) -> None:
        """Each sink's own log knows what it has of it: the first nothing, another one its part."""
        stream = sorted_out(tmp_path, good=[[0]], rest=[[5], [6]])
        edit_commit(tmp_path / "good", 0, {"version": 2}, action="txn")
        edit_commit(tmp_path / "rest", 1, {"version": 2}, action="txn")
        recovered = {0: None} if is_recorded else {}
        killed = live_run(1, "failed", recovered, plan=plan_of([0, 1]))
        done = kept(tmp_path / "home", killed, run(2, {"good": 1, "rest": 0}, first=2))

        told, events = emit(tmp_path, stream, done)

        assert told.silent == []
        assert events[partition_asset(stream)].partition_keys == {"0"}
        assert events[partition_asset(stream, sink="rest")].partition_keys == {"5"}

    def test_a_recovered_run_tells_the_rows_that_the_log_knows(self, tmp_path: Path) -> None:
        """Of itself alone, as any run."""
        stream = sorted_out(tmp_path, good=[[]], rest=[[5, 6]])

        told, events = emit(tmp_path, stream, kept(tmp_path / "home", live_run(1, "succeeded", {0: 0})))

        rest = events[stream_asset(stream, sink="rest")].extra
        assert (rest["output_rows"], rest["sink_version"]) == (2, 0)
        # The commit without a row has made the table, so that it can be read.
        assert told.silent == [stream_asset(stream), partition_asset(stream)]

    def test_a_table_whose_log_is_cleaned_up(self, tmp_path: Path) -> None:
        """The record says that it got rows: it has its event, without their version."""
        stream = sorted_out(tmp_path, good=[], rest=[])

        told, events = emit(tmp_path, stream, kept(tmp_path / "home", run(1, {"good": 0, "rest": 2}, first=0)))

        rest = events[stream_asset(stream, sink="rest")].extra
        assert (rest["output_rows"], rest["sink_version"]) == (2, None)
        assert told.silent == [stream_asset(stream), partition_asset(stream)]

    def test_a_log_that_can_not_be_read(self, tmp_path: Path) -> None:
        """Nobody knows what was written into which: all have an event, and it is not kept that they told."""
        stream = sorted_out(tmp_path, good=[[0]], rest=[[5]])
        commit_file(tmp_path / "rest", 0).write_bytes(b"{")

        told, _ = emit(tmp_path, stream, kept(tmp_path / "home", run(1, {"good": 0, "rest": 1}, first=0)))

        assert told == Emitted(None)


class TestTasks:
    """What Airflow has of tasks that succeed."""

    @pytest.fixture
    def launched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
        found = launching(monkeypatch)
        yield found
        found.end()

    @pytest.fixture(autouse=True)
    def project(self, stream_project: StreamProject) -> StreamProject:
        (stream_project.root / "streams" / "events.py").write_text(_DECLARATION)
        (stream_project.root / "transform_events.py").write_text("def sorted_out(events): ...\n")
        stream_project.arrive(1, at=START - timedelta(hours=2))
        return stream_project

    def test_each_sink_has_the_events_of_the_runs_that_wrote_into_it(
        self, project: StreamProject, launched: Launched
    ) -> None:
        """The second of two that are written by one run, the first alone by the next one, and neither by a third."""
        dag = project.dag(_ONCE)
        for day, rows in enumerate(({"good": 0, "rest": 2}, {"good": 3, "rest": 0}, {"good": 0, "rest": 0})):
            launched.batches = (batch(day, rows),)
            assert states(dag.test(logical_date=START + timedelta(days=day))) == {"events": _SUCCESS}

        third, second, first = project.records()
        assert told_by(project, "rest") == [(first.run_id, 2, [])]
        assert told_by(project, "events") == [(second.run_id, 3, [])]
        told = read_told(project.home())
        assert told is not None
        # There is nothing to tell of the last one, now or later.
        assert told.runs.keys() == {first.run_id, second.run_id, third.run_id}

    def test_one_that_nobody_heard_of_is_told_of_by_the_sink_that_it_wrote_into(
        self, project: StreamProject, launched: Launched
    ) -> None:
        """Its task was marked. The next one finds nothing to do, and tells; the one behind it is a skip."""
        dag = project.dag(_ONCE)
        launched.batches, launched.meanwhile = (batch(0, {"good": 0, "rest": 2}),), lambda: mark_failed(dag)
        dag.test(logical_date=START)
        assert told_by(project, "rest") == told_by(project, "events") == []
        launched.batches, launched.meanwhile = (), lambda: None

        ended = [states(dag.test(logical_date=START + timedelta(days=day))) for day in (1, 2)]

        assert ended == [{"events": _SUCCESS}, {"events": _SKIPPED}]
        _, second, first = project.records()
        assert told_by(project, "rest") == [(second.run_id, 0, [first.run_id])]
        assert told_by(project, "events") == []

    @pytest.mark.parametrize("rest", [0, 2])
    def test_a_run_without_a_batch(self, project: StreamProject, launched: Launched, *, rest: int) -> None:
        """It is a skip, unless one that failed before it has written a row somewhere."""
        failed = run(1, {"good": 0, "rest": rest}, first=0, status="failed")
        RunRecords(project.home()).save(msgspec.structs.replace(failed, stream="events"))
        launched.batches = ()

        assert states(project.dag(_ONCE).test(logical_date=START)) == {"events": _SUCCESS if rest else _SKIPPED}
        assert [since for _, _, since in told_by(project, "rest")] == ([[failed.run_id]] if rest else [])
        assert told_by(project, "events") == []

    def test_together(self, project: StreamProject, launched: Launched) -> None:
        """The task of each stream tells of its own sinks."""
        launched.batches = (batch(0, {"good": 0, "rest": 2}),)
        dag = project.dag(f"{_ONCE}, together=True", streams='"events", "hourly"')

        ended = states(dag.test(logical_date=START))

        assert ended == dict.fromkeys(("together", "events", "hourly"), _SUCCESS)
        told = {
            place: [rows for _, rows, _ in told_by(project, place)] for place in ("events", "rest", "hourly", "late")
        }
        assert told == {"events": [], "rest": [2], "hourly": [], "late": [2]}

    @pytest.mark.parametrize("written", ["good", "rest"])
    def test_outlets_by_hand(self, project: StreamProject, launched: Launched, written: str) -> None:
        """Also where one is named by a reference; an asset of others is none of ours."""
        launched.batches = (batch(0, {"good": 0, "rest": 0} | {written: 1}),)
        dag = project.dag_by_hand(_BY_REFERENCE)

        assert states(dag.test(logical_date=START)) == {"events": _SUCCESS}
        places = {"good": f"file://{project.root}/out/events", "rest": f"file://{project.root}/out/rest"}
        assert [name for name, place in places.items() for _ in extras(place)] == [written]
        assert len(extras(f"mine_{dag.dag_id}")) == 1

    @pytest.mark.spark
    def test_what_spark_has_written(self, project: StreamProject) -> None:
        """Each table's own log tells its versions; a commit without a row, which makes a table, has no event."""
        (project.root / "transform_events.py").write_text(_TRANSFORM)
        dag = project.dag(_ONCE)
        for day in range(2):
            assert states(dag.test(logical_date=START + timedelta(days=day))) == {"events": _SUCCESS}
            project.arrive(1, at=START + timedelta(days=day, hours=-1))

        told = {table: extras(f"file://{project.root}/out/{table}") for table in ("events", "rest")}
        keys = ("batches", "output_rows", "sink_version", "partitions")
        assert [[extra[key] for key in keys] for extra in told["events"]] == [[[0], 1, 0, []]]
        assert [[extra[key] for key in keys] for extra in told["rest"]] == [[[1], 1, 1, ["1"]]]

    def test_schedules(self, project: StreamProject) -> None:
        """After any of the sinks, or one of them; what is no table is refused while the DAG is parsed."""
        root = str(project.root)
        name = f"{project.root.name}/events"

        assert [asset.name for asset in timetables.after_run("events", project=root).objects] == [name, f"{name}.rest"]
        assert timetables.after_run("events", sink="rest", project=root).name == f"{name}.rest"
        by_part = timetables.per_partition("events", sink="rest", project=root)
        assert f"{name}.rest/partitions" in json.dumps(coerce_to_core_timetable(by_part).serialize())
        with pytest.raises(DeclarationError, match=r"no asset of a sink `rets`.*stream `events`.*`good`, `rest`"):
            timetables.after_run("events", sink="rets", project=root)


def sorted_out(root: Path, *, good: list[list[int]], rest: list[list[int]]) -> Stream:
    """A stream with two tables, and what batches from 0 on have written into them."""
    tables = {name: make_delta(root / name, *ids, app_id=QUERY_ID) for name, ids in (("good", good), ("rest", rest))}
    declared = {name: sinks.delta(str(table), partition_by=["part"]) for name, table in tables.items()}
    return make_stream(sink=None, sinks=declared)


def batch(batch_id: int, rows: dict[str, int]) -> BatchRecord:
    return BatchRecord(
        batch_id=batch_id, kind="data", input_rows=4, output_rows=sum(rows.values()), watermark=None, rows_by_sink=rows
    )


def run(number: int, *batches: dict[str, int], first: int, status: str = "succeeded") -> RunRecord:
    """A run with batches, by the rows of each in each sink."""
    done = tuple(batch(first + index, rows) for index, rows in enumerate(batches))
    planned = live_run(number, status, {}, plan=plan_of(one.batch_id for one in done))
    return msgspec.structs.replace(planned, batches=done)


def emit(root: Path, stream: Stream, done: RunRecord) -> tuple[Emitted, OutletEventAccessors]:
    events = OutletEventAccessors()
    context: Any = {"outlet_events": events}
    return assets.emit_events(context, stream, done, home=StreamHome(str(root / "home"), Storage())), events


def states(ended: Any) -> dict[str, Any]:
    return {ti.task_id: ti.state for ti in ended.get_task_instances()}


def mark_failed(dag: DAG) -> None:
    """As a person does while the task runs."""
    with create_session() as session:
        at_work = TaskInstance.dag_id == dag.dag_id, TaskInstance.state == TaskInstanceState.RUNNING
        assert session.execute(update(TaskInstance).where(*at_work).values(state=_FAILED)).rowcount == 1


def told_by(project: StreamProject, table: str) -> list[tuple[str, int, list[str]]]:
    """The events of a table: of each the run, its rows, and the runs of which it tells beside it."""
    told = extras(f"file://{project.root}/out/{table}")
    return [(extra["run_id"], extra["output_rows"], extra["since_runs"]) for extra in told]


def extras(uri: str) -> list[dict[str, Any]]:
    """What the events of an asset say, oldest first."""
    with create_session() as session:
        of_asset = select(AssetEvent.extra).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return list(session.scalars(of_asset.where(AssetModel.uri == uri).order_by(AssetEvent.id)))
