"""The operator, in real DAG runs with a real database and real drivers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pyarrow as pa
import pytest
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow_project import StreamProject
from deltalake import write_deltalake

from sluice.errors import DeclarationError
from sluice.runs.record import new_run_id
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.run_keys import RunKey
from sluice_airflow.stream_dag import stream_dag
from sluice_airflow.ui.reading import RunFile
from sluice_airflow.ui.run_view import run_page

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_nothing_new_is_a_skip_without_a_jvm(stream_project: StreamProject) -> None:
    """The task ends as skipped, and no driver was started."""
    run = stream_project.dag().test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    assert _state(run, "events") == TaskInstanceState.SKIPPED
    assert stream_project.records() == []
    assert stream_project.home().checked().reason == "nothing new before 2026-01-01T00:00:00+00:00"


def test_a_missing_connection_is_an_error(stream_project: StreamProject) -> None:
    """The provider's hook alone would submit to YARN without a word."""
    stream_project.arrive(1, at=START - timedelta(days=1))

    run = stream_project.dag('conn_id="nowhere"').test(logical_date=START)

    assert _state(run, "events") == TaskInstanceState.FAILED
    assert stream_project.records() == []


def test_a_connection_of_another_type_is_an_error(stream_project: StreamProject) -> None:
    """A typing error in a connection id must not start anything."""
    stream_project.arrive(1, at=START - timedelta(days=1))

    run = stream_project.dag('conn_id="postgres_test"').test(logical_date=START)

    assert _state(run, "events") == TaskInstanceState.FAILED


@pytest.mark.spark
def test_a_run_takes_what_arrived_before_the_end_of_its_interval(stream_project: StreamProject) -> None:
    """The second file arrives after the interval, and is left for the next run; the summary says what was done."""
    stream_project.arrive(1, at=START - timedelta(hours=2))
    stream_project.arrive(1, at=START + timedelta(hours=2))

    run = stream_project.dag().test(logical_date=START)

    assert run.state == DagRunState.SUCCESS
    assert stream_project.rows() == [0]
    record = stream_project.records()[0]
    assert (record.status, record.until) == ("succeeded", START)
    assert _summary(run)["run_id"] == record.run_id
    assert _summary(run)["input_rows"] == _summary(run)["output_rows"] == 1
    assert _event(stream_project.root) == {**_summary(run), "since_runs": [], "partition_count": 0, "partitions": []}


_CHANGES = """
from sluice import Stream, sinks, sources
events = Stream(
    name="events",
    sources={"changed": sources.delta("table", with_event_time_order=True)},
    transform="transform_events:events",
    sink=sinks.delta("out/events"),
)
"""


def _follow_changes(project: StreamProject) -> None:
    """Let `events` read a table of one row in the order of event time: only Spark knows its offsets."""
    (project.root / "streams" / "events.py").write_text(_CHANGES)
    (project.root / "transform_events.py").write_text('def events(changed):\n    return changed.select("n")\n')
    fed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(project.root / "table", pa.table({"n": pa.array([7], pa.int64())}), configuration=fed)


@pytest.mark.spark
def test_what_only_spark_plans_is_scheduled(
    stream_project: StreamProject, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the interval bounds nothing, which record, log and page say; with nothing new, no Spark starts."""
    _follow_changes(stream_project)
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(RunStreamOperator, "log", logging.getLogger("said"))

    run = stream_project.dag().test(logical_date=START)

    assert run.state == DagRunState.SUCCESS, stream_project.records()
    assert stream_project.rows() == [7]
    (record,) = stream_project.records()
    said = "not bounded by the data interval: `changed`"
    assert (record.status, record.plan.strategy, record.plan.unbounded) == ("succeeded", "drain", ("changed",))
    assert said in record.plan.reason
    assert said in caplog.text
    page = run_page("events", RunFile(record.run_id, record), None, START, owner=None, is_visible=lambda _: True)
    facts = {fact.name: fact.value for fact in page.facts}
    assert (facts["takes"], "takes input before" in facts) == ("what is there", False)

    idle = stream_project.dag().test(logical_date=START + timedelta(days=1))
    assert _state(idle, "events") == TaskInstanceState.SKIPPED
    assert len(stream_project.records()) == 1
    assert stream_project.home().checked().reason == "nothing new"


def test_a_typed_bound_of_what_only_spark_plans(
    stream_project: StreamProject, capfd: pytest.CaptureFixture[str]
) -> None:
    """Who starts a run by hand, and bounds it, hears that it can't be, and what to do."""
    _follow_changes(stream_project)

    run = stream_project.dag().test(run_conf={"until": "2025-06-01T00:00:00Z"})

    assert _state(run, "events") == TaskInstanceState.FAILED
    assert stream_project.records() == []
    assert 'with `trigger="available-now"`' in capfd.readouterr().out


def test_a_bound_by_a_function(stream_project: StreamProject) -> None:
    """What `@task.stream` returns is typed; a limit of batches leaves the interval's end as it was."""
    _follow_changes(stream_project)
    for bounds in ('{"until": logical_date}', '{"to_version": 0}'):
        run = stream_project.decorated_dag(bounds).test(logical_date=START)
        assert _state(run, "events") == TaskInstanceState.FAILED
    assert stream_project.records() == []


@pytest.mark.spark
def test_a_live_run(stream_project: StreamProject) -> None:
    """The driver takes trigger and time from the record; the end of the interval bounds nothing."""
    stream_project.arrive(1, at=START + timedelta(hours=2))

    run = stream_project.dag('conn_id="spark_test", trigger="processing-time=500ms", run_for="8s"').test(
        logical_date=START
    )

    assert run.state == DagRunState.SUCCESS, stream_project.records()
    assert stream_project.rows() == [0]
    (record,) = stream_project.records()
    assert (record.status, record.plan.strategy, record.until) == ("succeeded", "live", None)
    assert record.live is not None
    assert record.ended_at is not None
    assert record.ended_at >= record.live.ends_at
    assert _summary(run)["input_rows"] == 1


def test_what_bounds_a_run_with_a_trigger(stream_project: StreamProject) -> None:
    """A planned one as without; of what Spark decides only what somebody asks for, who then hears of it."""
    untils = {
        trigger: RunStreamOperator(task_id="t", stream="events", trigger=trigger, run_for=run_for).until
        for trigger, run_for in ((None, None), ("once", None), ("available-now", None), ("real-time", "5m"))
    }
    assert untils[None] == untils["once"] != ""
    assert untils["available-now"] == untils["real-time"] == ""
    asked = RunStreamOperator(
        task_id="t", stream="events", trigger="processing-time=1s", run_for=timedelta(minutes=2), until="2026-01-01"
    )
    assert asked.limits(_context()).bound.until == START
    assert str(asked.limits(_context()).trigger) == "processing-time=1s for 2m"


_ONLY_WITH_THE_SECRET = """
def events(events):
    import os
    seen = events.sparkSession.conf.get("spark.test.secret")
    command = " ".join(open(f"/proc/{pid}/cmdline").read() for pid in (os.getpid(), os.getppid()))
    assert seen == "hush" and "hush" not in command and os.environ["PYSPARK_GATEWAY_PORT"]
    return events
"""


@pytest.mark.spark
def test_what_only_spark_submit_follows(stream_project: StreamProject) -> None:
    """A connection with more than a master is followed by `spark-submit`, whose settings are on no command line."""
    stream_project.arrive(1, at=START - timedelta(hours=2))
    (stream_project.root / "transform_events.py").write_text(_ONLY_WITH_THE_SECRET)
    with (stream_project.root / "sluice.toml").open("a") as file:
        file.write('[spark]\nconf = { "spark.test.secret" = "hush" }\n')

    run = stream_project.dag('conn_id="spark_submitted"').test(logical_date=START)

    assert run.state == DagRunState.SUCCESS, stream_project.records()
    assert stream_project.rows() == [0]


@pytest.mark.spark
def test_a_failing_transform_fails_the_task_with_its_message(stream_project: StreamProject) -> None:
    """The declaration is wrong: another try would not help, so the task fails for good."""
    stream_project.arrive(1, at=START - timedelta(hours=2))
    (stream_project.root / "transform_events.py").write_text("def events(events):\n    return 1\n")

    run = stream_project.dag('conn_id="spark_test", default_args={"retries": 3}').test(logical_date=START)

    assert _state(run, "events") == TaskInstanceState.FAILED
    error = stream_project.records()[0].error
    assert error is not None
    assert error.type == "DeclarationError"
    assert "not a DataFrame" in error.message


def test_a_downstream_stream_follows_its_source(stream_project: StreamProject) -> None:
    """The order comes from sinks and sources; the bound of the second is the version that the first one left."""
    dag = stream_dag(
        "hourly", "events", project=str(stream_project.root), schedule="0 * * * *", start_date=START, dag_id="both"
    )

    hourly = dag.get_task("hourly")
    assert hourly.upstream_task_ids == {"events"}
    assert hourly.until == ""
    assert "xcom_pull(task_ids='events')" in hourly.to_version
    assert hourly.trigger_rule == "none_failed"


def test_no_version_bounds_another_table(stream_project: StreamProject) -> None:
    """A run's bound holds for each Delta table that it reads: the version of one says nothing of another."""
    declared = stream_project.root / "streams" / "both.py"
    declared.write_text(
        "from sluice import Stream, sinks, sources\n"
        'read = {name: sources.delta(f"out/{name}") for name in ("events", "days")}\n'
        'both = Stream(name="both", sources=read, transform="transform_events:events", sink=sinks.delta("out/both"))\n'
    )
    dag = stream_dag("events", "both", project=str(stream_project.root), schedule=None, dag_id="with_another")

    both = dag.get_task("both")
    assert (both.upstream_task_ids, both.until, both.to_version) == ({"events"}, "", None)


def test_a_cron_schedule_gets_real_intervals(stream_project: StreamProject) -> None:
    """Airflow's default for a cron string has intervals without length."""
    dag = stream_dag("events", project=str(stream_project.root), schedule="0 * * * *", start_date=START)

    interval = coerce_to_core_timetable(dag.timetable).infer_manual_data_interval(run_after=pendulum.instance(START))
    assert interval.end - interval.start == timedelta(hours=1)


_BERLIN = datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("schedule", "start", "is_said"),
    [
        ("0 * * * *", START, True),
        ("@hourly", START, True),
        ("30 0 * * *", START, True),
        ("@daily", _BERLIN, True),
        (timedelta(hours=6), START, True),
        (timedelta(days=1), START + timedelta(hours=1), True),
        ("@daily", START, False),
        ("0 0 * * 1", START, False),
        (timedelta(days=7), START, False),
        ("@once", START, False),
        (None, START, False),
    ],
)
def test_intervals_that_are_not_whole_days_are_told_of(
    stream_project: StreamProject, schedule: Any, start: datetime, *, is_said: bool
) -> None:
    """When the DAG is parsed: its backfills fail where the interval column is a date."""
    declaration = stream_project.root / "streams" / "events.py"
    text = declaration.read_text()
    declaration.write_text(
        text.replace('sinks.delta("out/events"),', 'sinks.delta("out/events"), interval_column="d",')
    )

    dag = stream_dag("events", project=str(stream_project.root), schedule=schedule, start_date=start, dag_id="told")

    assert ("not whole days (UTC)" in (dag.doc_md or "")) == is_said


@pytest.mark.parametrize("version", ["", "None", None])
def test_an_absent_version_is_no_bound(stream_project: StreamProject, version: str | None) -> None:
    """An upstream that was skipped has left no version."""
    operator = RunStreamOperator(
        task_id="events", stream="events", project=str(stream_project.root), until="", to_version=version
    )

    assert operator.limits(_context()).bound.to_version is None


def test_a_person_can_bound_a_run(stream_project: StreamProject) -> None:
    """By the parameters that the form in the UI shows."""
    stream_project.arrive(1, at=START - timedelta(days=1))

    run = stream_project.dag().test(run_conf={"until": "2025-06-01T00:00:00Z"})

    assert _state(run, "events") == TaskInstanceState.SKIPPED
    reason = stream_project.home().checked().reason
    assert reason.startswith("nothing new before 2025-06-01T00:00:00+00:00; left to a later run: 1 file")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [({"until": "soon"}, "until"), ({"to_version": "x"}, "to_version"), ({"max_batches": "many"}, "max_batches")],
)
def test_a_bound_that_is_none_names_its_argument(arguments: dict[str, Any], where: str) -> None:
    """A template can give anything."""
    operator = RunStreamOperator(task_id="events", stream="events", **{"until": "", **arguments})

    with pytest.raises(DeclarationError) as refused:
        operator.limits(_context())
    assert refused.value.where == where


@pytest.mark.parametrize(("content", "code"), [(b"{", "does not parse"), (b'{"format": 99}', "has format 99")])
def test_a_record_that_can_not_be_read_is_never_written_over(
    stream_project: StreamProject, content: bytes, code: str
) -> None:
    """Half written, or by a newer Sluice: the task fails for good and names the file."""
    stream_project.arrive(1, at=START - timedelta(days=1))
    project = str(stream_project.root)
    operator = RunStreamOperator(task_id="events", stream="events", until="", project=project, retries=0)
    key = RunKey("d", "r", "events", -1, 0)
    file = Path(stream_project.home().runs_folder(), f"{new_run_id(START, str(key))}.json")
    file.parent.mkdir(parents=True)
    file.write_bytes(content)

    with pytest.raises(AirflowFailException, match=f"{code}.*{file.name}"):
        operator.execute(_context())
    assert file.read_bytes() == content


def test_a_stream_that_was_renamed_fails_its_task(
    stream_project: StreamProject, capfd: pytest.CaptureFixture[str]
) -> None:
    """The DAG still names it: the error says which streams there are."""
    dag = stream_project.decorated_dag("None")
    declaration = stream_project.root / "streams" / "events.py"
    declaration.write_text(declaration.read_text().replace('name="events"', 'name="happenings"'))

    run = dag.test(logical_date=START)

    assert _state(run, "events") == TaskInstanceState.FAILED
    assert "there is no stream `events`" in capfd.readouterr().out


def test_a_folder_that_is_away_is_looked_for_again(stream_project: StreamProject) -> None:
    """A mount may be back, or a producer make it: Airflow's retries are for that."""
    stream_project.arrive(1, at=START - timedelta(days=1))
    (stream_project.root / "in").rename(stream_project.root / "away")
    operator = RunStreamOperator(task_id="events", stream="events", until="", project=str(stream_project.root))

    with pytest.raises(AirflowException, match="the source's path does not exist") as caught:
        operator.execute(_context())
    assert not isinstance(caught.value, AirflowFailException)


def test_a_backfill_without_an_interval_says_what_to_do(stream_project: StreamProject) -> None:
    """Runs by partition have none: nothing says which rows to recompute."""
    operator = RunStreamOperator(task_id="events", stream="events", project=str(stream_project.root))

    with pytest.raises(AirflowFailException, match="no data interval"):
        operator.execute(_context("backfill"))


def test_a_dag_of_which_one_stream_can_not_be_backfilled(stream_project: StreamProject) -> None:
    """Every task fails at once and says which one and why: half a backfill would leave the rest refused."""
    declaration = stream_project.root / "streams" / "events.py"
    text = declaration.read_text()
    declaration.write_text(
        text.replace('sinks.delta("out/events"),', 'sinks.delta("out/events"), interval_column="d",', 1)
    )
    dag = stream_dag("events", "hourly", project=str(stream_project.root), schedule="@daily", start_date=START)

    for name in ("events", "hourly"):
        with pytest.raises(AirflowFailException) as failed:
            dag.get_task(name).execute(_context("backfill"))
        assert "can't be backfilled, and nothing was changed: `hourly`: it reads `events` without" in str(failed.value)
        assert "`skip_change_commits=True` where one reads another" in str(failed.value)
    assert dag.allowed_run_types is None
    assert "`hourly`: it reads `events` without" in str(dag.doc_md)


def test_a_function_says_how_far(stream_project: StreamProject) -> None:
    """`@task.stream`: its function is called when the task runs, and its result is checked."""
    stream_project.arrive(1, at=START - timedelta(days=1))
    taken = stream_project.decorated_dag('{"until": logical_date.subtract(days=30).isoformat()}').test(
        logical_date=START
    )
    assert _state(taken, "events") == TaskInstanceState.SKIPPED
    reason = stream_project.home().checked().reason
    assert reason.startswith("nothing new before 2025-12-02T00:00:00+00:00; left to a later run: 1 file")

    refused = stream_project.decorated_dag('{"untill": "2026-01-01"}').test(logical_date=START + timedelta(days=1))
    assert _state(refused, "events") == TaskInstanceState.FAILED


@pytest.mark.parametrize(("given", "held"), [({}, 2), ({"retries": 0}, 0), ({"retries": 5}, 5)])
def test_a_lost_worker_is_tried_again_unless_somebody_says_no(given: dict[str, Any], held: int) -> None:
    """However the task is made: the scheduler and the worker count with the same number, which tells a clear."""
    with DAG("several", schedule=None, default_args=given) as dag:
        RunStreamOperator(task_id="plain", stream="events")
        RunStreamOperator.partial(task_id="mapped").expand(stream=["events"])

        @task.stream(stream="events")
        def decorated() -> None: ...

        @task.stream(stream="events")
        def decorated_mapped(n: int) -> None: ...

        decorated()
        decorated_mapped.expand(n=[1])
        never = RunStreamOperator(task_id="never", stream="events", retries=0)

    of_scheduler = DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_dict
    tasks = {name: found for name, found in dag.task_dict.items() if found is not never}
    assert {name: of_scheduler[name].retries for name in tasks} == dict.fromkeys(tasks, held)
    of_worker = {
        name: found.unmap({"op_kwargs": {"n": 1}} if "decorated" in name else {"stream": "events"})
        if found.is_mapped
        else found
        for name, found in tasks.items()
    }
    assert {name: found.retries for name, found in of_worker.items()} == dict.fromkeys(tasks, held)
    assert (never.retries, of_scheduler["never"].retries) == (0, 0)


def test_a_greater_default_of_airflows_own_holds() -> None:
    program = (
        "from sluice_airflow.operators.run_stream import RunStreamOperator\n"
        "print(RunStreamOperator(task_id='t', stream='s').retries)"
    )
    environment = os.environ | {"AIRFLOW__CORE__DEFAULT_TASK_RETRIES": "7"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "7"


def test_dag_files_need_no_pyspark() -> None:
    """Every DAG file imports with pyspark and Great Expectations absent."""
    repository = Path(__file__).resolve().parents[2]
    program = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['great_expectations'] = None\n"
        "from airflow.dag_processing.dagbag import DagBag\n"
        f"bag = DagBag({str(repository / 'dags')!r})\n"
        "assert not bag.import_errors, bag.import_errors\n"
        "print(sorted(bag.dags))\n"
    )
    environment = os.environ | {"SLUICE_PROJECT": str(repository)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "flights" in done.stdout.splitlines()[-1]


def _context(run_type: str = "manual") -> Any:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="events", map_index=-1, max_tries=0, try_number=1)
    return {"ti": ti, "dag_run": SimpleNamespace(run_type=run_type), "task_state_store": _Store()}


class _Store(dict[str, Any]):
    """What Airflow keeps for the tries of a task."""

    set = dict.__setitem__


def _state(run: Any, task_id: str) -> Any:
    return next(ti.state for ti in run.get_task_instances() if ti.task_id == task_id)


def _event(project: Path) -> dict[str, Any]:
    """What the only event of the sink's asset says."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return dict(events.filter(AssetModel.uri == f"file://{project}/out/events").one().extra)


def _summary(run: Any) -> dict[str, Any]:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(XComModel).filter_by(run_id=run.run_id, task_id="events", key="return_value").one()
        return XComModel.deserialize_value(found)
