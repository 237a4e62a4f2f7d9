"""Airflow's tables, made once: `airflow db migrate` costs five seconds of a core, and a copy of its file none."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

DATABASE = "airflow.db"


def tables_for_all(base: Path, worker: str | None) -> Path:
    """The file of a database with Airflow's tables and nothing in them, made by whichever worker comes first.

    Args:
        base: A folder of this session's.
        worker: The worker of pytest-xdist, whose folder lies in one that all of them share.
    """
    home = (base if worker is None else base.parent) / "airflow-tables"
    home.mkdir(exist_ok=True)
    made = home / "made"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
            airflow = str(Path(sys.executable).with_name("airflow"))
            subprocess.run(
                [airflow, "db", "migrate"],
                env=environment | {"AIRFLOW_HOME": str(home)},
                check=True,
                capture_output=True,
                timeout=400,
            )
            made.touch()
    return home / DATABASE


def copy_tables(tables: Path, home: Path) -> None:
    """Let an Airflow begin with them; some may still be in the log beside the file, which the copy has, too."""
    with closing(sqlite3.connect(tables)) as source, closing(sqlite3.connect(home / DATABASE)) as copy:
        source.backup(copy)


@pytest.fixture(scope="session")
def airflow_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database to begin with, for `copy_tables` and `Standalone`."""
    return tables_for_all(tmp_path_factory.getbasetemp(), os.environ.get("PYTEST_XDIST_WORKER"))
