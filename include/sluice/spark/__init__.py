"""Spark's side of a run: sessions, the JVM they live in, queries, and what plans and progress tell."""
