"""Measuring rows with Spark, splitting batches by the verdict, publishing them, and releasing what was held."""
