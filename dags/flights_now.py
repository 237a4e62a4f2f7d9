"""Flights up to this moment, whenever somebody asks; and an alert when their hours are too old meanwhile."""

from datetime import timedelta

from airflow.sdk import AsyncCallback, DeadlineAlert

from sluice_airflow.deadlines import report_delay, stream_watermark
from sluice_airflow.stream_dag import stream_dag

flights_now = stream_dag(
    "departures",
    "hourly_delays",
    dag_id="flights_now",
    schedule=None,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    tags=["sluice", "example"],
    deadline=DeadlineAlert(
        name="hourly delays are on time",
        reference=stream_watermark("hourly_delays"),
        # The watermark trails the newest departure by the two days for which flights may come late.
        interval=timedelta(days=2, hours=3),
        callback=AsyncCallback(report_delay, kwargs={"stream": "hourly_delays"}),
    ),
)
