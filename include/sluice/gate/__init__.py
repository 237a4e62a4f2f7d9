"""What quality has decided of a stream and what still waits for it, kept in the home. Without Spark.

`sluice.quality` says what a suite means; `sluice.auditing` measures it with Spark.
"""
