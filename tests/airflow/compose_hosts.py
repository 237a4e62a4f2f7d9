"""The services of docker-compose.yaml as hosts of their own: each has its network, host name and processes.

No container engine is needed, but the rights to make network namespaces. The commands, settings, health checks and the
order of starting are the file's; the image is a copy of the repository at the image's paths, with this Python.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sluice.spark import jars

REPOSITORY = Path(__file__).resolve().parents[2]
NETWORK = "10.203.77"
BRIDGE = "sluice-net"
_IMAGE = ("include", "plugins", "dags", "jobs", "sluice.toml")
_POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_VARIABLE = re.compile(r"\$(?:\$|\{([A-Z_]+)(?::?([?-])([^}]*))?\})")


def missing() -> str:
    """What this machine lacks for it; empty if nothing."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    lacking = [tool for tool in ("ip", "unshare", "runuser") if shutil.which(tool) is None]
    if not _POSTGRES:
        lacking.append("PostgreSQL's server")
    return f"not installed: {', '.join(lacking)}" if lacking else ""


@dataclass
class Composed:
    """All services of the file.

    Args:
        root: A folder for everything that they write.
        secrets: The variables that the file asks for.
    """

    root: Path
    secrets: Mapping[str, str]
    services: dict[str, dict[str, Any]] = field(init=False)
    _started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _data: Path = Path()
    """PostgreSQL's."""

    def __post_init__(self) -> None:
        text = (REPOSITORY / "docker-compose.yaml").read_text("utf-8")
        self.services = yaml.safe_load(_VARIABLE.sub(self._variable, text))["services"]
        self.project.mkdir(parents=True)
        for name in _IMAGE:
            copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
            copy(REPOSITORY / name, self.project / name)
        (self.root / "opt" / "sluice-jars").symlink_to(jars.cache_folder())
        for folder in ("airflow/auth", "airflow/logs", "sluice/data/landing/flights", "sluice/var/sluice"):
            (self.root / "opt" / folder).mkdir(parents=True)

    @property
    def project(self) -> Path:
        """Where the image has the repository, from outside."""
        return self.root / "opt" / "sluice"

    def address(self, service: str) -> str:
        return f"{NETWORK}.{10 + list(self.services).index(service)}"

    def run(self, service: str, *command: str, timeout_seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Call a command on a service's host, as `docker compose exec` does."""
        return subprocess.run(
            self._on(service, command),
            env=self._environment(service),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )

    def wait_for(self, condition: Callable[[], Any], what: str, timeout_seconds: float) -> Any:
        """Wait until a condition holds; gives what it gave.

        Raises:
            RuntimeError: A service ended, or it took too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while not (found := condition()):
            for name, process in self._started.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended; the logs are in {self.root}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited {timeout_seconds:.0f} s for {what}; the logs are in {self.root}")
            time.sleep(1)
        return found

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start every service once those that it waits for are ready; end them all at the end.

        Raises:
            RuntimeError: One ended, or is not healthy within its retries.
        """
        with ExitStack() as stack:
            # Of its own user, who can't see what root keeps for itself.
            self._data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-postgres-")))
            stack.callback(self._reap)
            self._network(stack)
            waiting = dict(self.services)
            while waiting:
                ready = [name for name, its in waiting.items() if not waiting.keys() & set(its.get("depends_on", {}))]
                for name in ready:
                    self._start(name)
                for name in ready:
                    self._wait(name)
                    del waiting[name]
            yield

    def _network(self, stack: ExitStack) -> None:
        self._clear()  # what a run that was killed has left
        stack.callback(self._clear)
        _ip(f"link add {BRIDGE} type bridge")
        _ip(f"addr add {NETWORK}.1/24 dev {BRIDGE}")
        _ip(f"link set {BRIDGE} up")
        hosts = "".join(f"{self.address(name)} {name}\n" for name in self.services)
        for number, name in enumerate(self.services):
            _ip(f"netns add {_space(name)}")
            _ip(f"link add sluice-{number} type veth peer name eth0 netns {_space(name)}")
            _ip(f"link set sluice-{number} master {BRIDGE} up")
            _ip(f"-n {_space(name)} link set lo up")
            _ip(f"-n {_space(name)} addr add {self.address(name)}/24 dev eth0")
            _ip(f"-n {_space(name)} link set eth0 up")
            # `ip netns exec` puts it in the place of /etc/hosts.
            folder = Path("/etc/netns", _space(name))
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + hosts)

    def _clear(self) -> None:
        """End whatever runs on these hosts, and remove them."""
        there, links = _ip("netns list").split(), _ip("-o link show")
        for number, name in enumerate(self.services):
            if f" sluice-{number}@" in links:
                _ip(f"link del sluice-{number}")  # the network itself lives as long as its last process
            if _space(name) in there:
                for pid in _ip(f"netns pids {_space(name)}").split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                _ip(f"netns del {_space(name)}")
            shutil.rmtree(Path("/etc/netns", _space(name)), ignore_errors=True)
        if f" {BRIDGE}:" in links:
            _ip(f"link del {BRIDGE}")

    def _reap(self) -> None:
        for process in self._started.values():
            process.wait()

    def _on(self, service: str, command: tuple[str, ...], *, is_pid_1: bool = False) -> list[str]:
        """The command, on a host with this service's network and name, and with the image's folders."""
        image = f"hostname {service}; mount --bind {self.root / 'opt'} /opt; cd /opt/sluice"
        own = ["--pid", "--fork", "--kill-child", "--mount-proc"] if is_pid_1 else []
        host = ["ip", "netns", "exec", _space(service), "unshare", "--uts", "--mount", *own]
        return [*host, "bash", "-euc", f"{image}; exec {shlex.join(command)}"]

    def _start(self, name: str) -> None:
        command = tuple(self.services[name].get("command", ()))
        if not command:
            command = self._postgres()
        with (self.root / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                self._on(name, command, is_pid_1=True),
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _postgres(self) -> tuple[str, ...]:
        """What the image of PostgreSQL does when it starts for the first time."""
        its, data = self.services["postgres"]["environment"], self._data / "data"
        password = self._data / "password"
        password.write_text(its["POSTGRES_PASSWORD"])
        for path in (self._data, password):
            shutil.chown(path, "postgres")
        user = f"-U {its['POSTGRES_USER']} --pwfile {password}"
        make = f"{_POSTGRES[-1]}/initdb -D {data} {user} -A scram-sha-256"
        create = f"echo create database {its['POSTGRES_DB']} | {_POSTGRES[-1]}/postgres --single -D {data} postgres"
        serve = f"exec {_POSTGRES[-1]}/postgres -D {data} -h '*' -k {data}"
        trust = f"echo host all all {NETWORK}.0/24 scram-sha-256 >> {data}/pg_hba.conf"
        return ("runuser", "-u", "postgres", "--", "bash", "-euc", f"{make}; {create}; {trust}; {serve}")

    def _wait(self, name: str) -> None:
        check = self.services[name].get("healthcheck")
        if check is None:
            code = self._started.pop(name).wait(timeout=300)
            if code:
                raise RuntimeError(f"{name} ended with {code}; the logs are in {self.root}")
            return
        kind, *test = check["test"]
        command = ("sh", "-c", *test) if kind == "CMD-SHELL" else tuple(test)
        if name == "postgres":
            command = (str(_POSTGRES[-1] / command[0]), "--host=127.0.0.1", *command[1:])
        self.wait_for(lambda: self.run(name, *command).returncode == 0, f"{name} to be healthy", 300)

    def _environment(self, service: str) -> dict[str, str]:
        """The image's own variables, and the service's."""
        image = re.search(r"^ENV ((?:.*\\\n)*.*)$", (REPOSITORY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
        assert image is not None
        scripts, installed = Path(sys.executable).parent, "/opt/sluice/include:/opt/sluice/plugins"
        own = dict(word.split("=", 1) for word in image[1].replace("\\\n", " ").split())
        return {
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "HOSTNAME": service,
            "LANG": "C.UTF-8",
            **own,
            "PYTHONPATH": f"{own['PYTHONPATH']}:{installed}",
            **{name: str(value) for name, value in self.services[service].get("environment", {}).items()},
        }

    def _variable(self, found: re.Match[str]) -> str:
        name, kind, default = found.groups()
        if name is None:
            return "$"
        if name not in self.secrets and kind != "-":
            raise KeyError(name)
        return self.secrets.get(name, default)


def _space(service: str) -> str:
    return f"sluice-{service}"


def _ip(command: str) -> str:
    return subprocess.run(["ip", *command.split()], check=True, capture_output=True, text=True).stdout
