"""Spark's files on disk: what a checkpoint says, and how a planned batch is written into it."""
