"""What all tests share: the library's log is heard, whatever ran before."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _sluice_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Airflow, once imported by a test in the same process, turns its settings of logging upon everybody."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("sluice") and isinstance(logger, logging.Logger):
            logger.disabled = False
    for package in ("sluice", "sluice_airflow"):
        caplog.set_level(logging.WARNING, logger=package)
