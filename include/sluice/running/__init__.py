"""Doing what a plan says: lease, session, query, batches, record. Spark is imported in here, and nowhere below."""
