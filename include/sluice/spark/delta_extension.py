"""What makes a session of Spark know Delta tables."""

from __future__ import annotations

from typing import Any

EXTENSIONS = "spark.sql.extensions"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


def has_delta(session: Any) -> bool:
    """Whether a session was started with it, here or on a server."""
    return DELTA_EXTENSION in (session.conf.get(EXTENSIONS, None) or "")
