"""Who gets the slots of the pool: Airflow's own scheduler is asked, with a real database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow_project import StreamProject

from sluice_airflow.listeners.drivers_pool import POOL
from sluice_airflow.operators.run_stream import RunStreamOperator

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

_DAG = """
from datetime import datetime, timedelta, timezone
from airflow.sdk import DAG
from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.timetables import data_intervals
with DAG("live_first", schedule=data_intervals("@daily"), start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
    RunStreamOperator(task_id="events", stream="events", project="{project}")
"""
DAY = timedelta(days=1)
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


class Scheduled:
    """The DAG's runs in the database, and which tasks the scheduler would start next."""

    def __init__(self, session: Any, dag: Any) -> None:
        self.session, self.dag = session, dag

    def live_run(self, start: datetime) -> None:
        """The run that a scheduler makes when a day is over."""
        from airflow.timetables.base import DataInterval
        from airflow.utils.types import DagRunTriggeredByType, DagRunType

        interval = DataInterval(start, start + DAY)
        self.dag.create_dagrun(
            run_id=f"scheduled__{start.isoformat()}", logical_date=start, data_interval=interval,
            run_after=start + DAY, run_type=DagRunType.SCHEDULED, triggered_by=DagRunTriggeredByType.TIMETABLE,
            state="running", session=self.session,
        )  # fmt: skip
        self.session.commit()

    def backfill(self, first: datetime, last: datetime) -> None:
        """What `airflow backfill create --reprocess-behavior completed` does."""
        from airflow.models.backfill import ReprocessBehavior, _create_backfill

        _create_backfill(
            dag_id="live_first", from_date=first, to_date=last, max_active_runs=10, reverse=False, dag_run_conf={},
            triggering_user_name="ada", reprocess_behavior=ReprocessBehavior.COMPLETED, run_on_latest_version=False,
        )  # fmt: skip

    def set_state(self, state: str, *, run_id: str = "") -> None:
        from airflow.models.dagrun import DagRun
        from airflow.models.taskinstance import TaskInstance

        self.session.expire_all()
        for ti in self.session.query(TaskInstance).filter_by(dag_id="live_first"):
            if run_id in ti.run_id:
                ti.state, ti.try_number = state, int(state == "success")
        of_run = "success" if state == "success" and not run_id else "running"
        self.session.query(DagRun).filter_by(dag_id="live_first").update({"state": of_run})
        self.session.commit()

    def set_slots(self, slots: int) -> None:
        from airflow.models.pool import Pool

        Pool.create_or_update_pool(POOL, slots, "", include_deferred=True)

    def next_runs(self, most: int) -> list[str]:
        """The days of the runs whose tasks the scheduler starts next, in order."""
        from airflow.jobs.job import Job
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

        found = SchedulerJobRunner(Job())._executable_task_instances_to_queued(most, self.session)
        days = [str(ti.dag_run.logical_date.date()) for ti in found]
        self.session.rollback()
        return days


@pytest.fixture
def scheduled(stream_project: StreamProject) -> Iterator[Scheduled]:
    """A DAG in the database, and a pool of one slot that counts deferred tasks."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.models.dagbag import DBDagBag
    from airflow.models.dagrun import DagRun
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session

    file = stream_project.dags / "live_first.py"
    file.write_text(_DAG.format(project=stream_project.root))
    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)
    bag = BundleDagBag(dag_folder=file, bundle_path=stream_project.dags, bundle_name="dags-folder")
    assert not bag.import_errors, bag.import_errors
    sync_bag_to_db(bag, "dags-folder", None)
    Pool.create_or_update_pool(POOL, 1, "", include_deferred=True)
    with create_session(scoped=False) as session:
        session.query(DagModel).filter_by(dag_id="live_first").update({"is_paused": False})
        session.commit()
        yield Scheduled(session, DBDagBag().get_latest_version_of_dag("live_first", session=session))
        session.query(DagRun).filter_by(dag_id="live_first").delete()
    Pool.delete_pool(POOL)


def test_a_live_run_comes_before_a_backfill(scheduled: Scheduled) -> None:
    """Also before runs that the backfill has taken over from the scheduler, whose names tell nothing of it."""
    old, newest = TODAY - 5 * DAY, TODAY - DAY
    scheduled.live_run(old)
    scheduled.set_state("success")
    scheduled.backfill(old - DAY, old + DAY)
    scheduled.live_run(newest)
    scheduled.set_state("scheduled")

    assert scheduled.next_runs(1) == [str(newest.date())]
    scheduled.set_slots(4)
    days = [str(day.date()) for day in (newest, old - DAY, old, old + DAY)]
    assert scheduled.next_runs(4) == days


def test_a_deferred_task_keeps_its_slot(scheduled: Scheduled) -> None:
    """Its driver is at work: a pool of one slot lets no second one begin beside it."""
    first, second = TODAY - 2 * DAY, TODAY - DAY
    for day in (first, second):
        scheduled.live_run(day)
    scheduled.set_state("scheduled")
    assert len(scheduled.next_runs(2)) == 1

    scheduled.set_state("deferred", run_id=str(first.date()))
    assert scheduled.next_runs(2) == []

    scheduled.set_state("success", run_id=str(first.date()))
    assert scheduled.next_runs(2) == [str(second.date())]


@pytest.mark.parametrize("given", [{"weight_rule": "absolute"}, {"default_args": {"weight_rule": "absolute"}}])
def test_another_rule_can_be_given(given: dict[str, Any]) -> None:
    """By the task, or by the DAG for all of them."""
    assert RunStreamOperator(task_id="events", stream="events", **given).weight_rule == "absolute"
