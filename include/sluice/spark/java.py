"""The Java that runs Spark: where it is, and its options for a driver, chosen by what is planned."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass

EXTRA_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SMALL_BYTES = 64 * 1024 * 1024
"""Up to here, Java's second compiler costs more than its code saves; `benchmarks/compiler_tiers.py` measures it."""
_BYTES_OF_A_BATCH = 1024 * 1024
"""What a batch weighs beside what it reads: Spark plans each one anew."""
_FEW_TASKS = 2
_STARTING = "-Djdk.lang.Process.launchMechanism=VFORK"
"""How Java starts a program: without its helper. Hadoop starts `chmod` twice for each file that it writes."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


@dataclass(frozen=True)
class Work:
    """What a session is opened for, as far as it is planned."""

    size_bytes: int
    """How much is going to be read."""
    batches: int = 1

    @property
    def is_small(self) -> bool:
        """Whether it is done before Java's second compiler has paid off."""
        return self.size_bytes + self.batches * _BYTES_OF_A_BATCH <= _SMALL_BYTES


def find_java() -> str | None:
    """The `java` that Spark's launcher takes: that of `JAVA_HOME` first; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def java_options(given: str, *, tasks: int, work: Work | None) -> str:
    """Java's options for a driver, by what it is going to do; the project's own come last and win.

    Args:
        given: The project's own.
        tasks: How many tasks the driver runs at once; 0 where others run them.
        work: What the driver is going to do; None when nobody knows.
    """
    environment = (os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"))
    is_small = work is not None and work.is_small
    # Java starts with room for a fifth of Spark's classes, and collects all garbage each time that it gives it more.
    options = ["-XX:MetaspaceSize=256m", _STARTING]
    chosen = _COLLECTOR.search(" ".join([given, *environment]))
    if chosen is None and (is_small or 0 < tasks <= _FEW_TASKS):
        # Java's default works beside the tasks, which costs a twentieth on two cores. It refuses two collectors.
        options.append("-XX:+UseSerialGC")
    if is_small:
        # With one compiler, Java keeps room for a fifth of the code, which a session of many runs outgrows.
        options += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    return " ".join(filter(None, [*options, given]))
