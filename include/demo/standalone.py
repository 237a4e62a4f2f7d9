"""An Airflow of one's own: every component on this machine, with a connection to local Spark.

The components are started one by one, and not by `airflow standalone`, because that one serves task logs on every
network interface; here everything is bound to loopback.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from demo.airflow_api import AirflowApi

REPOSITORY = Path(__file__).resolve().parents[2]
USER = "admin"
_COMPONENTS = {
    "api_server": ["api-server", "--host", "127.0.0.1"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag_processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
_GRACE_SECONDS = 20


@dataclass
class Standalone:
    """All of Airflow, each component in a process group of its own.

    Args:
        home: `AIRFLOW_HOME`: database, logs, the password; kept between starts.
        dags: The folder of DAGs.
        project: The folder of the project's `sluice.toml`.
        spark_master: What the connection `spark_default` names.
        environment: Further variables.
        tables: The file of a database with Airflow's tables and nothing in them; when not given, they are made.
    """

    home: Path
    dags: Path
    project: Path
    spark_master: str = "local[2]"
    environment: dict[str, str] = field(default_factory=dict)
    tables: Path | None = None
    port: int = 0
    password: str = ""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    api: AirflowApi = field(init=False)
    """The REST API, as the administrator; there once it is started."""

    @property
    def url(self) -> str:
        """Where the UI and the API are."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        """What all components print."""
        return self.home / "airflow.log"

    @property
    def _database(self) -> Path:
        return self.home / "airflow.db"

    def start(self) -> Self:
        """Make the database if there is none, start every component, and return at once.

        Raises:
            RuntimeError: The database could not be made.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = self.port or _free_port()
        self.password = self._keep_password()
        self.api = AirflowApi(self.url, USER, self.password)
        self._keep_configuration()
        if self.tables is not None:
            with closing(sqlite3.connect(self.tables)) as made, closing(sqlite3.connect(self._database)) as ours:
                made.backup(ours)
        elif self._spawn(["db", "migrate"]).wait() != 0:
            raise RuntimeError(f"the database could not be made; see {self.log_file}")
        for component in _COMPONENTS:
            self.start_component(component)
        return self

    def start_component(self, component: str) -> None:
        """Start one component, in the place of one that has ended."""
        self._processes[component] = self._spawn(_COMPONENTS[component])

    def _spawn(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [str(Path(sys.executable).with_name("airflow")), *arguments],
                env=self._env(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_healthy(self, timeout_seconds: float = 180) -> None:
        """Wait until every component reports itself healthy.

        Raises:
            RuntimeError: It ended, or took too long; the message points at the log.
        """

        def healthy() -> bool:
            try:
                found = self.api.health()
            except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
                return False
            parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
            return all((found.get(name) or {}).get("status") == "healthy" for name in parts)

        self.wait_for(healthy, "Airflow to be healthy", timeout_seconds)

    def wait_for(self, condition: Callable[[], Any], what: str, timeout_seconds: float) -> Any:
        """Wait until a condition holds, and return what it gave.

        Raises:
            RuntimeError: Airflow ended, or it took too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            if not self._processes or any(process.poll() is not None for process in self._processes.values()):
                raise RuntimeError(f"a component of Airflow ended; its log is {self.log_file}")
            if found := condition():
                return found
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited {timeout_seconds:.0f} s for {what}; Airflow's log is {self.log_file}")
            time.sleep(0.25)

    def stop(self) -> None:
        """End every component with all of its processes, and wait for them."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            living = [process for process in self._processes.values() if _group_lives(process)]
            for process in living:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal_number)
            deadline = time.monotonic() + _GRACE_SECONDS
            while time.monotonic() < deadline and any(_group_lives(process) for process in living):
                time.sleep(0.1)
        self._processes.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def keep_command(self) -> Path:
        """Write a command `airflow` into the home that works on this Airflow, and return it."""
        ours = {name: value for name, value in self._env().items() if name.startswith(("AIRFLOW", "SLUICE"))}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in ours.items()]
        airflow = shlex.quote(str(Path(sys.executable).with_name("airflow")))
        file = self.home / "airflow"
        file.unlink(missing_ok=True)
        _write_private(file, "\n".join(["#!/bin/sh", *lines, f'exec {airflow} "$@"', ""]))
        file.chmod(0o700)
        return file

    def _env(self) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # Several components and the command line write to one SQLite file: they wait for each other.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self._database}?timeout=60",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API_AUTH__JWT_SECRET": self._keep("jwt_secret", secrets.token_hex(32)),
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            # What has changed is parsed at once all the same; the others would cost a tenth of the machine.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": self.spark_master}),
            "SLUICE_PROJECT": str(self.project),
            **self.environment,
        }

    def _keep_password(self) -> str:
        return str(json.loads(self._keep("passwords.json", json.dumps({USER: secrets.token_urlsafe(9)})))[USER])

    def _keep_configuration(self) -> None:
        """Components that start together and find no file each write one, and read another's half-written keys."""
        fernet_key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        keys = f"[core]\nfernet_key = {fernet_key}\n[api]\nsecret_key = {secrets.token_hex(32)}\n"
        self._keep("airflow.cfg", keys)

    def _keep(self, name: str, content: str) -> str:
        """What a file of the home has; at the first start, that is written."""
        file = self.home / name
        if not file.exists():
            _write_private(file, content)
        return file.read_text()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_private(file: Path, content: str) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(content)


def _group_lives(process: subprocess.Popen[bytes]) -> bool:
    # A leader that has ended is a zombie, and keeps its group, until it is asked for.
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
