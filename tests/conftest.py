"""What all tests share: the library's log is heard, whatever ran before."""

from __future__ import annotations

import logging
import os

import pytest

# Drivers of tests live for seconds: what Java's second compiler makes, it makes in vain. A third of their time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(autouse=True)
def _sluice_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Airflow, once imported by a test in the same process, turns its settings of logging upon everybody."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("sluice") and isinstance(logger, logging.Logger):
            logger.disabled = False
    for package in ("sluice", "sluice_airflow"):
        caplog.set_level(logging.WARNING, logger=package)
