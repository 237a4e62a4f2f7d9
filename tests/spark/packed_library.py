"""What somebody has installed: the streams of test_packed_runs.py use it, and it is no part of their project."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

hour = F.udf(lambda at: at.strftime("%H"), StringType())
_names: list[str] = []


def first_name(name: str) -> Column:
    """The first name that was ever given, in a Python of Spark's."""

    def found() -> str:
        _names.append(name)
        return _names[0]

    return F.udf(found, StringType())()
