"""Flights, quarter by quarter: clean departures, then hourly delays."""

from datetime import UTC, datetime, timedelta

from sluice_airflow.stream_dag import stream_dag

flights = stream_dag(
    "departures",
    "hourly_delays",
    dag_id="flights",
    schedule="0 0 1 */3 *",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2014, 1, 1, tzinfo=UTC),
    catchup=True,
    # After a quarter that failed, Airflow pauses the DAG: a person looks at it before the next one is tried.
    max_consecutive_failed_dag_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    tags=["sluice", "example"],
)
