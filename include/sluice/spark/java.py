"""Which Java runs Spark."""

from __future__ import annotations

import os
import shutil


def find_java() -> str | None:
    """The `java` that Spark's launcher takes: that of `JAVA_HOME` first; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)
