"""Flights as events of Kafka: a join of two topics, a history, a kill, a backfill; compared with DuckDB."""
