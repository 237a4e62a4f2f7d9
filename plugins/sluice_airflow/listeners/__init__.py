"""What Airflow tells when a task changes its state, and what we make of it."""
