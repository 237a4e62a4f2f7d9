"""Measuring rows with Spark, splitting batches by the verdict, publishing them, and returning rows."""
