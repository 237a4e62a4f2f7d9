"""Airflow's task log shows a driver's log without the errors of Spark, which quote literals and rows."""

from __future__ import annotations

from pathlib import Path

from sluice import find_project
from sluice.spark.query_words import QueryWords
from sluice.spark.shown_log import shown_lines, words_of_stream
from tests.builders import put

WORDS = QueryWords(literals=("hush4canary",))
LOG = """\
sluice s: starting Spark
26/11/24 20:00:00 WARN Utils: Your hostname resolves to a loopback address
what the transform prints, with hush4canary
2026-11-24 20:00:01,000 INFO jobs.visits: looked up `x` for 3 countries
26/11/24 20:00:02 WARN TaskSetManager: Lost task 0.0: org.apache.spark.SparkException: The value 'r0w' is bad
== DataFrame ==
"cast" was called from
	at org.apache.spark.Foo.bar(Foo.scala:3)
26/11/24 20:00:03 ERROR MicroBatchExecution: Query terminated with error
org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'r0w'
Project [concat(hush4canary, id)]
2026-11-24 20:00:04,000 ERROR py4j.clientserver: There was an exception while executing 'r0w'
Traceback (most recent call last):
  File "/x/jobs.py", line 3, in f
ValueError: r0w
{"ts": "2026-11-24", "level": "ERROR", "msg": "hush4canary r0w"}
sluice s: BatchFailedError: Spark failed: [CAST_INVALID_INPUT] The value '?'
""".splitlines()


def test_what_is_shown() -> None:
    """Our lines, prints and logs stay; of an error the first line, masked, and how many follow."""
    assert list(shown_lines(LOG, WORDS)) == [
        "sluice s: starting Spark",
        "26/11/24 20:00:00 WARN Utils: Your hostname resolves to a loopback address",
        "what the transform prints, with ***",
        "2026-11-24 20:00:01,000 INFO jobs.visits: looked up `x` for 3 countries",
        "26/11/24 20:00:02 WARN TaskSetManager: Lost task 0.0: org.apache.spark.SparkException: The value '?' is bad",
        "(3 lines of an error: they are in the driver's log)",
        "26/11/24 20:00:03 ERROR MicroBatchExecution: Query terminated with error",
        "(2 lines of an error: they are in the driver's log)",
        "2026-11-24 20:00:04,000 ERROR py4j.clientserver: There was an exception while executing '?'",
        "(4 lines of an error: they are in the driver's log)",
        "sluice s: BatchFailedError: Spark failed: [CAST_INVALID_INPUT] The value '?'",
    ]


def test_the_literals_of_a_stream(tmp_path: Path) -> None:
    """They are found without importing the transform; names of columns are none."""
    put(tmp_path / "sluice.toml", "")
    declared = 'from sluice import Stream, sinks, sources\ns = Stream(name="s", sources={"a": sources.delta("a")},'
    put(tmp_path / "streams" / "s.py", f'{declared} transform="jobs_of_log:f", sink=sinks.noop())')
    code = """
import absent_module
from pyspark.sql import functions as F
SALT = "salted-one"
def f(a):
    '''Some words.'''
    if a is None:
        raise ValueError("there is no frame")
    hidden = F.expr("sha2(concat('in-the-sql', name), 256)")
    return a.withColumn("hashed", F.concat(F.lit("salted-two"), F.col("name"))).where(a["kind"] != "salted-three")
"""
    put(tmp_path / "jobs_of_log.py", code)

    found = words_of_stream(find_project(str(tmp_path)), "s")

    assert {"salted-one", "salted-two", "salted-three", "in-the-sql"} <= set(found.literals)
    assert not {"name", "hashed", "kind", "Some words.", "there is no frame"} & set(found.literals)
    assert {"name", "hashed"} <= found.columns
    assert words_of_stream(find_project(str(tmp_path)), "absent") == QueryWords()
