"""What Airflow tells when a part of it starts or a task changes its state, and what we make of it."""
