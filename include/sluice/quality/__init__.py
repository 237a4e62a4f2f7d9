"""Quality: Great Expectations suites, compiled into aggregates that Spark observes while it writes.

    suite (JSON) -> `Suite` -> `compile_suite` with the columns -> `QualityPlan` -> observed rows -> results -> verdict

Nothing here imports pyspark, and only suites written in Python import great_expectations.
"""
