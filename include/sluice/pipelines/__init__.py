"""Projects of Spark's declarative pipelines: what they define, and where Spark keeps it."""
