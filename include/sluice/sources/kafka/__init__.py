"""Topics of Kafka as a source: how they are declared, looked at without Spark, planned and read."""
