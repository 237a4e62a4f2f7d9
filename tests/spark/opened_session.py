"""Opens a session as drivers do, and tells what became of it, as JSON in the last line.

Usage: python opened_session.py KEY VALUE MASTER
"""

from __future__ import annotations

import json
import logging
import shlex
import sys
from pathlib import Path

from pyspark.sql import functions

from sluice import Stream, sinks, sources
from sluice.project import Project
from sluice.spark.java import Work
from sluice.spark.launch_profile import current_profile
from sluice.spark.session import jvm_pid, open_session

if __name__ == "__main__":
    logging.basicConfig()
    key, value, master = sys.argv[1:]
    # The value comes in the environment's words, as a secret does: `${NAME}` is expanded by the project.
    secret = Path(value).read_text("utf-8")
    # And one that Java gets itself, as the password of a store of keys.
    options = {"spark.driver.extraJavaOptions": shlex.join([f"-D{key}={secret}"])}
    project = Project(".", "p", "home", (), (), master, {key: secret, **options})
    source = sources.files("in", format="json", schema="n bigint")
    stream = Stream(name="s", sources={"s": source}, transform="none:none", sink=sinks.noop())
    session = open_session(project, stream, work=Work(0))
    moment = session.sql("SELECT TIMESTAMP'2026-03-29 00:30:00 UTC' AS moment")
    process = Path("/proc", str(jvm_pid(session)))
    print(
        json.dumps(
            {
                "rows": session.range(100).selectExpr("sum(id)").first()[0],
                "python_time": moment.select(functions.udf(lambda found: found.isoformat())("moment")).first()[0],
                "value": session.conf.get(key),
                "java_value": session._jvm.System.getProperty(key),
                "has_archive": str(current_profile().archive) in process.joinpath("maps").read_text(),
            }
        )
    )
