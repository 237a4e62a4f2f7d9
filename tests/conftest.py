"""What all tests share: the library's log is heard, whatever ran before."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.airflow_tables import airflow_tables
from tests.engine_verdicts import Verdicts, takes_all_tests
from tests.spark_session import lab, spark

__all__ = ["airflow_tables", "lab", "spark"]


class _FilesTogether(LoadFileScheduling):
    """A file's tests run in one worker, and all of those of the browser, which share a server."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return "tests/browser" if file.startswith("tests/browser/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return _FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    if takes_all_tests(config):
        config.pluginmanager.register(Verdicts())


def pytest_collection_finish() -> None:
    """From here on no bytecode is kept: a test edits a module twice in a second, which bytecode can't tell apart."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process never forgets a secret; what one test takes for one may be a word in another's messages."""
    monkeypatch.setattr("sluice.redaction._known", ())


@pytest.fixture(autouse=True)
def _sluice_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Airflow, once imported by a test in the same process, turns its settings of logging upon everybody."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("sluice") and isinstance(logger, logging.Logger):
            logger.disabled = False
    for package in ("sluice", "sluice_airflow"):
        caplog.set_level(logging.WARNING, logger=package)


@pytest.fixture(scope="module", autouse=True)
def _no_garbage() -> Iterator[None]:
    """Python looks for garbage the less the more tests there are; of what it finds, Spark keeps the other half."""
    yield
    if "pyspark" in sys.modules:
        gc.collect()
