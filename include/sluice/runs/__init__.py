"""What is kept of runs on disk, and who may write it: records, leases, stop requests, drivers. Without Spark."""
