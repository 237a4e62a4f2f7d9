"""Flights as soon as a file of them lands, in place of the quarters of the DAG `flights`.

Paused at first: let one of both run the stream.
"""

from airflow.sdk import DAG, task

from sluice_airflow.assets import outlets
from sluice_airflow.timetables import on_arrival

with DAG(
    "flights_on_arrival",
    schedule=on_arrival("departures"),
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["sluice", "example"],
):
    # `stream_dag("departures", schedule=on_arrival("departures"))` runs it without a limit of its own.
    @task.stream(stream="departures", outlets=outlets("departures"), retries=2)
    def departures() -> dict:
        """How far this run goes; what it leaves starts another one."""
        return {"max_batches": 3}

    departures()
