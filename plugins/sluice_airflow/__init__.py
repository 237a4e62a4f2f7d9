"""The Airflow side of Sluice. Import from its modules: Airflow looks in here before it is configured itself."""
