"""Doing what a plan says: preparation, batches, backfills, each a run with its stages."""
