"""Airflow's api-server on loopback, with a database of its own and three users, and a client that logs in."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from tests.airflow_tables import copy_tables

REPOSITORY = Path(__file__).resolve().parents[2]
USERS = {"anna": "admin", "eric": "user", "vera": "viewer"}
"""Name and role; the password is the name."""
_START_SECONDS = 120


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: str


class Site(Protocol):
    """What a server shows."""

    @property
    def root(self) -> Path:
        """The folder of `sluice.toml`."""

    @property
    def dags(self) -> Path:
        """The folder of DAGs."""

    def break_a_declaration(self) -> None:
        """Called when the DAGs are known, before the server starts."""


class ApiServer:
    """The api-server with a project's DAGs, as a process group of its own."""

    def __init__(self, home: Path, showcase: Site, tables: Path) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._home, self._showcase, self._tables = home, showcase, tables
        self._process: subprocess.Popen[bytes] | None = None
        self._tokens: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._home.mkdir()
        (self._home / "passwords.json").write_text(json.dumps({name: name for name in USERS}))
        copy_tables(self._tables, self._home)
        self._airflow("dags", "reserialize")
        self._showcase.break_a_declaration()
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [_AIRFLOW, "api-server", "--host", "127.0.0.1", "--port", str(self.port)],
                env=self._env(), cwd=self._home, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._await_start(self._process)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def resident_bytes(self) -> int:
        """How much memory the processes of the server have."""
        assert self._process is not None
        found = 0
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            if int(fields[2]) == self._process.pid:
                found += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        return found

    def get(self, path: str, user: str | None = None) -> Answer:
        """Ask for a page, as somebody or as nobody."""
        return self.request("GET", path, user)

    def request(self, method: str, path: str, user: str | None = None, body: Any = None, **headers: str) -> Answer:
        """Send a request; redirects are not followed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if user is not None:
            sent["Cookie"] = f"_token={self.token(user)}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def token(self, user: str) -> str:
        """The token that a login gives."""
        if user not in self._tokens:
            answer = self.request("POST", "/auth/token", None, {"username": user, "password": user})
            self._tokens[user] = json.loads(answer.body)["access_token"]
        return self._tokens[user]

    def trigger(self, dag_id: str, run_id: str) -> None:
        """Make a DAG run, unless it is there; no scheduler runs it."""
        body = {"dag_run_id": run_id, "logical_date": None}
        answer = self.request("POST", f"/api/v2/dags/{dag_id}/dagRuns", "anna", body)
        assert answer.status in {200, 409}, answer.body

    @staticmethod
    def until(condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "waited 30 s"
            time.sleep(0.2)

    def run(self, program: str, *folders: Path) -> str:
        """What a program prints in the server's environment, with further folders to import from."""
        environment = self._env()
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, folders), environment["PYTHONPATH"]])
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
        return done.stdout

    def _await_start(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert process.poll() is None, (self._home / "log").read_text()
            assert time.monotonic() < deadline, (self._home / "log").read_text()
            try:
                if self.get("/api/v2/monitor/health").status == 200:
                    return
            except OSError:
                time.sleep(0.2)

    def _airflow(self, *arguments: str) -> None:
        subprocess.run([_AIRFLOW, *arguments], env=self._env(), check=True, capture_output=True, timeout=180)

    def _env(self) -> dict[str, str]:
        paths = [REPOSITORY, REPOSITORY / "include", REPOSITORY / "plugins"]
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SLUICE"))},
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "AIRFLOW_HOME": str(self._home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._showcase.dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.browser.auth_manager.PayrollIsPrivate",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._home / "passwords.json"),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-these-tests-and-never-anywhere-else",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            "SLUICE_PROJECT": str(self._showcase.root),
        }


_AIRFLOW = str(Path(sys.executable).with_name("airflow"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
