"""After each run that wrote hourly delays: once nothing more waits upstream, say what is new."""

from airflow.sdk import DAG, task

from sluice_airflow.sensors.lag import LagSensor
from sluice_airflow.timetables import after_run

with DAG("delay_report", schedule=after_run("hourly_delays"), tags=["sluice", "example"]) as delay_report:
    caught_up = LagSensor(task_id="caught_up", stream="hourly_delays", max_files=0, timeout=600, soft_fail=True)

    @task
    def report(triggering_asset_events: dict) -> dict:
        """The newest run's own words: rows, watermark, version of the table."""
        events = [event for found in triggering_asset_events.values() for event in found]
        return max(events, key=lambda event: event.timestamp).extra

    caught_up >> report()
