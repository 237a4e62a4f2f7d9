"""Settings of a session that tell Delta's own writer how to write: a commit of metadata would pass over them.

What is not known to mean nothing to it is taken for such a setting: Delta's writer is right with every one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = re.compile(r"\bspark\.(?:databricks\.)?delta\.[\w.]+(?==)")
_PLAIN = re.compile(
    r"spark\.databricks\.delta\."
    r"(snapshotPartitions$|merge\.|optimize\.|retentionDurationCheck\.enabled$|schema\.autoMerge\.enabled$|vacuum\."
    r"|lastCommitVersionInSession$)"
)
"""No batch brings columns that the table has not, so that nothing is to be merged. Delta sets the last one itself."""
_DEFAULTS = "spark.databricks.delta.properties.defaults."


def setting_for_delta(session: SparkSession, *, is_new: bool) -> str | None:
    """A setting of a session that only Delta's writer heeds; None when there is none.

    Args:
        session: One of a Spark in this process.
        is_new: Whether a table is to be made.
    """
    # One call: pyspark asks for the entries of a map one by one.
    settings = session.conf._jconf.getAllAsJava().toString()
    for setting in _DELTA.findall(settings):
        if not _PLAIN.match(setting) and (is_new or not setting.startswith(_DEFAULTS)):
            return str(setting)
    return None
