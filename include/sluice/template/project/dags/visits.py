"""Takes every day what has arrived until its midnight, in an Airflow that has this folder or one below as its DAGs'."""

from datetime import UTC, datetime

from sluice_airflow.stream_dag import stream_dag

visits = stream_dag("visits", schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False)
