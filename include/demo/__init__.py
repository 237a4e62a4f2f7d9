"""The main job on real data, through Airflow: land, schedule, kill, retry, compare with DuckDB."""
