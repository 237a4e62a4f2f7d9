"""A Kafka broker for the demo and for tests: one node on loopback, from pinned jars, that ends with whoever started it.

`python -m demo.kafka.broker` fetches the jars, as `make setup` does; no test does.
"""

from __future__ import annotations

import base64
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sluice.spark.jars import Jar, fetch_into, read_manifest
from sluice.spark.java import find_java
from sluice.spark.user_cache import user_cache

PATIENCE_SECONDS = 120
"""For whatever a broker does: a machine may be busy with other tests."""

_BIND_ATTEMPTS = 5
_CLUSTER_ID = base64.urlsafe_b64encode(uuid.UUID("51c1ce00-0000-4000-8000-000000000001").bytes).decode().rstrip("=")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{advertised}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=2097152
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
file.delete.delay.ms=1000
# On a busy machine a heartbeat may be late by seconds; with a short session the broker would take no more requests.
broker.session.timeout.ms=30000
broker.heartbeat.interval.ms=500
initial.broker.registration.timeout.ms=120000
"""
_LOGGING = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
"""


def pinned_jars() -> tuple[Jar, ...]:
    """What a broker consists of."""
    return read_manifest(Path(__file__).with_name("broker_jars.toml").read_text("utf-8"))


def jars_folder() -> Path:
    """Where its jars are kept: `$SLUICE_BROKER_JARS`, else a folder of the user's cache."""
    return user_cache("broker-jars", "SLUICE_BROKER_JARS")


@dataclass(frozen=True)
class Doors:
    """Further ways into a broker."""

    protocols: Mapping[str, str] = field(default_factory=dict)
    """By the name of the listener, its protocol. Clients find it on the host `localhost`."""
    properties: str = ""
    """Lines of the broker's configuration."""
    scram: tuple[str, ...] = ()
    """Users with passwords, as the tool that formats the storage takes them."""


class Broker:
    """A broker that runs while its context does, in a folder of its own."""

    def __init__(self, folder: Path, doors: Doors | None = None) -> None:
        self._folder = folder
        self._doors = doors or Doors()
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: tuple[int, ...] = (0, 0)

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self._ports[0]}"

    def bootstrap_of(self, door: str, host: str = "localhost") -> str:
        """Where clients find one of its further doors."""
        return f"{host}:{self._ports[2 + list(self._doors.protocols).index(door)]}"

    @property
    def log(self) -> Path:
        """What it says."""
        return self._folder / "broker.log"

    def __enter__(self) -> Self:
        missing = [jar.file_name for jar in pinned_jars() if not jar.is_in(jars_folder())]
        if missing:
            raise RuntimeError(f"`make setup` fetches the broker's jars: {', '.join(missing)}")
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j2.properties").write_text(_LOGGING)
        try:
            for _ in range(_BIND_ATTEMPTS):
                if self._start():
                    return self
        except BaseException:
            self.stop()
            raise
        raise RuntimeError(f"others were always faster to take a port:\n{self._last_words()}")

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, and remove what it kept; what it said stays."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        shutil.rmtree(self._folder / "data", ignore_errors=True)

    def _start(self) -> bool:
        """Start it on free ports, and wait until it answers; False if somebody took a port meanwhile."""
        self._ports = _free_ports(2 + len(self._doors.protocols))
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        (self._folder / "data").mkdir()
        properties = self._folder / "server.properties"
        port, controller_port, *others = self._ports
        doors = dict(zip(self._doors.protocols, others, strict=True))
        written = _PROPERTIES.format(
            port=port,
            controller_port=controller_port,
            data=self._folder / "data" / "log",
            listeners="".join(f",{name}://127.0.0.1:{at}" for name, at in doors.items()),
            advertised="".join(f",{name}://localhost:{at}" for name, at in doors.items()),
            protocols="".join(f",{name}:{protocol}" for name, protocol in self._doors.protocols.items()),
        )
        properties.write_text(written + self._doors.properties)
        with self.log.open("wb") as log:
            formatting = self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties))
            for user in self._doors.scram:
                formatting += ["--add-scram", user]
            done = subprocess.run(
                formatting, stdout=log, stderr=subprocess.STDOUT, timeout=PATIENCE_SECONDS, check=False
            )
            if done.returncode != 0:
                raise RuntimeError(self._last_words())
            self._process = subprocess.Popen(
                [*_ending_with_us(), *self._java("kafka.Kafka", str(properties))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._is_answering(self._process)

    def _is_answering(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until it answers; False if it ended because a port was taken."""
        admin, deadline = self.admin(), time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                words = self._last_words()
                if "Address already in use" not in words:
                    raise RuntimeError(words)
                return False
            try:
                if admin.list_topics(timeout=1).brokers:
                    return True
            except KafkaException:
                continue  # it waited for its second
        raise RuntimeError(f"the broker does not answer:\n{self._last_words()}")

    def admin(self) -> AdminClient:
        """A client of its own for whoever asks. Hold it in a variable: results of one that is gone never come."""
        return AdminClient(self.client_conf())

    def client_conf(self) -> dict[str, str | int | float | bool]:
        """The settings of any client: silent, and quick to try again."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}

    def _java(self, *arguments: str) -> list[str]:
        java = find_java()
        if java is None:
            raise RuntimeError("there is no `java`")
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        options.append(f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}")
        # Libraries for compression unpack themselves there, and stay.
        options.append(f"-Djava.io.tmpdir={self._folder / 'data'}")
        jars = ":".join(str(jars_folder() / jar.file_name) for jar in pinned_jars())
        return [java, *options, "-cp", jars, *arguments]

    def _last_words(self) -> str:
        return self.log.read_text("utf-8", "replace")[-5000:]


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a broker has done something, which it says before all of it knows.

    Args:
        condition: Whether it has.
        what: What is wrong if it never has.

    Raises:
        RuntimeError: It has not in `PATIENCE_SECONDS`.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(what)
        time.sleep(0.02)


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports of loopback that nobody listens on."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return tuple(int(one.getsockname()[1]) for one in taken)


def _ending_with_us() -> list[str]:
    """Words before a command that let it end when this process is killed, which cleans up after nothing."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "TERM", "--"]


def main() -> None:
    """Fetch the jars that are missing."""
    folder, pinned = jars_folder(), pinned_jars()
    for jar in fetch_into(folder, pinned):
        print(f"fetched {jar.file_name}", file=sys.stderr)
    print(f"{len(pinned)} jars of the tests' Kafka broker in {folder}")


if __name__ == "__main__":
    main()
