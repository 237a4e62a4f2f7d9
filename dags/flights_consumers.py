"""Who follows the flights: each day that was written, each commit, and a day once it is complete and good.

Paused at first: unpause what you want to see. Nothing here runs the streams.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, task
from airflow.sdk.types import DagRunProtocol

from sluice_airflow.sensors.progress import BatchSensor, WatermarkSensor
from sluice_airflow.sensors.quality import QualitySensor
from sluice_airflow.timetables import data_intervals, on_commit, per_partition

TAGS = ["sluice", "example"]

# One run for each day that a run of `departures` touched: late flights touch an old day, and it gets another run.
with DAG("flights_per_day", schedule=per_partition("departures"), is_paused_upon_creation=True, tags=TAGS):

    @task
    def refresh(dag_run: DagRunProtocol) -> str:
        """Whatever must be made anew when a day changed: a report, a file, a cache."""
        return f"flights of {dag_run.partition_key}"

    refresh()

# After every commit, also where a person runs the stream by hand. Several commits may come as one run.
with DAG("flights_per_commit", schedule=on_commit("hourly_delays"), is_paused_upon_creation=True, tags=TAGS):

    @task
    def newest(triggering_asset_events: dict) -> dict:
        """The newest commit's own words: its batches, and the watermark."""
        events = [event for found in triggering_asset_events.values() for event in found]
        return max(events, key=lambda event: event.timestamp).extra

    newest()

# A run for each day of a week, which waits until its hours are there, and nothing of it is worse than a warning.
with DAG(
    "flights_complete_day",
    schedule=data_intervals("@daily"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 1, 7, tzinfo=UTC),
    catchup=True,
    is_paused_upon_creation=True,
    tags=TAGS,
):
    begun = BatchSensor(task_id="begun", stream="departures", batch_id=0, timeout=3600)
    complete = WatermarkSensor(task_id="complete", stream="hourly_delays", timeout=3600, start_from_trigger=True)
    good = QualitySensor(task_id="good", stream="departures", verdict="warn", timeout=3600, start_from_trigger=True)

    @task
    def report(watermark: str, verdict: str) -> str:
        """By now no hour of the day changes any more, unless by a backfill."""
        return f"complete at watermark {watermark}; quality: {verdict}"

    begun >> [complete, good] >> report(complete.output["watermark"], good.output["verdict"])
