"""The zone that Python workers are told is the one that Spark's own functions have."""

from __future__ import annotations

import json
import subprocess
import sys
import zoneinfo

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sluice.option_values import time_zone
from sluice.spark.python_zone import system_zone
from tests.spark.lab import Lab

pytestmark = pytest.mark.spark

MOMENTS = (1_769_860_800, 1_784_000_000)
"""In winter and in summer."""
OF_OLD = (
    "ACT AET AGT ART AST BET BST CAT CNT CST CTT EAT ECT EST HST IET IST JST MIT MST NET NST PLT PNT PRT PST SST VST"
)
OFFSETS = "+01:00 -03:30 +05:45 +1:00 +01 UTC+2 GMT-08:00 UT+09:30 +01:02:03 -18:00 +18:00 Z UT UTC GMT GMT0"
IN_PYTHON = """
import json, os, sys, time
found = {}
for zone, told in json.load(sys.stdin).items():
    os.environ["TZ"] = told
    time.tzset()
    found[zone] = [time.localtime(moment).tm_gmtoff for moment in MOMENTS]
print(json.dumps(found))
"""


def is_taken(lab: Lab, zone: str) -> bool:
    """Whether Spark knows a zone."""
    try:
        lab.spark._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(zone)  # type: ignore[union-attr]
    except PySparkException:
        return False
    return True


def test_every_zone(lab: Lab) -> None:
    """Names, names of old, and offsets; what the system has no zone for is left alone, and is no zone of anybody's."""
    zones = [*sorted(zoneinfo.available_timezones()), *OF_OLD.split(), *OFFSETS.split()]
    told = {zone: found for zone in zones if time_zone(zone) is None and (found := system_zone(zone)) is not None}
    script = IN_PYTHON.replace("MOMENTS", repr(MOMENTS))
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(told), capture_output=True, text=True, check=True
    )
    of_python = json.loads(done.stdout)

    # Spark takes fewer than the database has.
    taken = lab.spark.createDataFrame([(zone,) for zone in told if is_taken(lab, zone)], "zone string")
    moments = [
        F.expr(f"unix_seconds(from_utc_timestamp(timestamp_seconds({moment}), zone)) - {moment}") for moment in MOMENTS
    ]
    of_spark = {
        row.zone: list(row.moments) for row in taken.select("zone", F.array(*moments).alias("moments")).collect()
    }

    assert {zone: of_python[zone] for zone in of_spark} == of_spark
    assert len(of_spark) > 600
    assert set(OF_OLD.split()) <= told.keys()
