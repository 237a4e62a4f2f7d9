"""The Airflow side of Sluice."""
