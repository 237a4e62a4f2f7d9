"""A broker that wants a password or a certificate, and a TLS that is real: one declaration, and two clients."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, StorageError
from sluice.kafka.cluster import cluster
from sluice.kafka.settings import for_planner
from sluice.surroundings import Surroundings
from tests.builders import put
from tests.kafka.secured_broker import KEY_PASSWORD, PASSWORD, PLAIN_PASSWORD, USER, SecuredBroker
from tests.kafka.topics import Kafka
from tests.spark.lab import Lab

AROUND = Surroundings("/")

CANARY = b"canary"
"""What each secret begins with, however the rest of it is escaped."""
SOON_SECONDS = 30
"""A bound for a machine that is busy: it is told after two seconds, and a driver that waits for Kafka takes minutes."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as started:
        yield started


@pytest.fixture(scope="module")
def kafka(broker: SecuredBroker) -> Kafka:
    """The tests' own way in."""
    return Kafka(broker)


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("KAFKA_PLAIN_PASSWORD", PLAIN_PASSWORD)


def trusting(ca_file: Path, protocol: str) -> dict[str, str]:
    return {
        "security.protocol": protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca_file),
    }


def by_password(
    broker: SecuredBroker, mechanism: str = "SCRAM-SHA-512", *, variable: str = "KAFKA_PASSWORD"
) -> dict[str, str]:
    user = {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": f"${{{variable}}}"}
    return trusting(broker.ca_file, "SASL_SSL") | user


def by_certificate(broker: SecuredBroker) -> dict[str, str]:
    key = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(broker.client_file)}
    return trusting(broker.ca_file, "SSL") | key


def ways_in(broker: SecuredBroker) -> Mapping[str, tuple[str, dict[str, str]]]:
    """By name, the door and the settings."""
    return {
        "scram-sha-256": ("PASSWORDS", by_password(broker, "SCRAM-SHA-256")),
        "scram-sha-512": ("PASSWORDS", by_password(broker)),
        "plain": ("PASSWORDS", by_password(broker, "PLAIN", variable="KAFKA_PLAIN_PASSWORD")),
        "certificate": ("CERTIFICATES", by_certificate(broker)),
    }


def values(orders: DataFrame) -> DataFrame:
    return orders.select("value")


@pytest.mark.spark
@pytest.mark.parametrize("way", ["scram-sha-256", "scram-sha-512", "plain", "certificate"])
def test_a_way_in(lab: Lab, broker: SecuredBroker, kafka: Kafka, way: str) -> None:
    """The planner counts what waits, Spark reads it, and its writer sends it on; all by the same settings."""
    door, settings = ways_in(broker)[way]
    servers = broker.bootstrap_of(door)
    topic, out = kafka.topic(), kafka.topic()
    kafka.send(topic, ["1", "2"])
    made = Stream(
        name="orders",
        sources={"orders": sources.kafka(servers, topics=[topic], settings=settings)},
        transform=f"{__name__}:values",
        sink=sinks.kafka(servers, topic=out, settings=settings),
    )
    back = Stream(
        name="back",
        sources={"orders": sources.kafka(servers, topics=[out], settings=settings)},
        transform=f"{__name__}:values",
        sink=sinks.delta("back"),
    )

    assert [dict(batch.sources["orders"].amount) for batch in lab.plan(made).batches] == [{"offsets": 2}]
    lab.run(made)
    lab.run(back)

    assert sorted(bytes(row.value) for row in lab.table("back").collect()) == [b"1", b"2"]


def project(root: Path, servers: str, topic: str, settings: Mapping[str, str], sink: str) -> Path:
    put(root / "sluice.toml", b'[project]\nname = "p"\nstreams = ["streams"]\n[spark]\nmaster = "local[1]"\n')
    put(root / "jobs" / "orders.py", b"def values(orders):\n    return orders.select('value')\n")
    declared = f"sources.kafka({servers!r}, topics=[{topic!r}], settings={settings!r})"
    put(
        root / "streams" / "orders.py",
        (
            "from sluice import Stream, sinks, sources\n"
            f"read = {declared}\n"
            f"orders = Stream(name='orders', sources={{'orders': read}}, transform='jobs.orders:values', sink={sink})\n"
        ).encode(),
    )
    return root


def tells(root: Path) -> list[str]:
    """The files below a folder that have one of the secrets in them, in clear."""
    files = [file for file in root.rglob("*") if file.is_file()]
    assert files
    return [str(file) for file in files if CANARY in file.read_bytes()]


def commands_of(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The command lines of a process and all that it has started, as long as it runs."""
    while process.poll() is None:
        listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, check=True).stdout
        ours = {str(process.pid).encode()}
        for line in listed.splitlines():
            pid, parent, command = line.split(maxsplit=2)
            if pid in ours or parent in ours:
                ours.add(pid)
                yield command
        time.sleep(0.1)


@pytest.mark.spark
def test_nothing_tells_the_secrets(tmp_path: Path, broker: SecuredBroker, kafka: Kafka) -> None:
    """Neither a command line, nor what a driver with Spark in it prints, nor any file of the home or of Spark."""
    topic, out = kafka.topic(), kafka.topic()
    kafka.send(topic, ["1"])
    servers, settings = broker.bootstrap_of("PASSWORDS"), by_password(broker)
    sink = f"sinks.kafka({servers!r}, topic={out!r}, settings={settings!r})"
    root = project(tmp_path / "p", servers, topic, settings, sink)

    printed = []
    for words in (["run", "orders"], ["explain", "orders"], ["inspect", "orders", "--json"], ["lag", "orders"]):
        with (tmp_path / "p" / f"{words[0]}.log").open("wb") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "sluice", *words], cwd=root, stdout=log, stderr=subprocess.STDOUT
            )
            commands = set(commands_of(driver))
        printed.append((words, driver.wait(), any(b"java" in command for command in commands)))
        assert not [command for command in commands if CANARY in command]

    assert [code for _, code, _ in printed] == [0, 0, 0, 0], printed
    assert printed[0][2], "no driver with a JVM was seen"
    assert tells(root) == []


REFUSALS = {
    "password": "the cluster does not let this user in: SASL authentication error: .*check `sasl.mechanism`",
    "authority": "the servers' certificate is not to be trusted: .*check that `ssl.truststore.location`",
    "host": "the servers' certificate is not to be trusted: .*have the names that are in the certificate",
    "certificate": "the cluster wants another certificate of the client: .*check `ssl.keystore.location`",
    "file": "`ssl.truststore.location` is no file of certificates as PEM",
    "protocol": "the cluster does not speak TLS as it is asked to: .*check `security.protocol`",
}


def refused(broker: SecuredBroker, wrong: str) -> tuple[str, dict[str, str]]:
    """The servers and the settings of a declaration in which something is wrong."""
    passwords, certificates = broker.bootstrap_of("PASSWORDS"), broker.bootstrap_of("CERTIFICATES")
    login = by_password(broker)
    return {
        "password": (passwords, login),
        "authority": (passwords, login | trusting(broker.other_ca_file, "SASL_SSL")),
        "host": (broker.bootstrap_of("PASSWORDS", "127.0.0.1"), login),
        "certificate": (certificates, trusting(broker.ca_file, "SSL")),
        "file": (passwords, login | trusting(Path("/nowhere.pem"), "SASL_SSL")),
        "protocol": (broker.bootstrap, login),
    }[wrong]


@pytest.fixture
def root(tmp_path: Path, broker: SecuredBroker, kafka: Kafka, wrong: str, side: str) -> Path:
    """A project whose source, or whose sink, is declared in a wrong way."""
    topic, out = kafka.topic(), kafka.topic()
    kafka.send(topic, ["1"])
    servers, settings = refused(broker, wrong)
    if side == "source":
        return project(tmp_path / "p", servers, topic, settings, "sinks.noop()")
    sink = f"sinks.kafka({servers!r}, topic={out!r}, settings={settings!r})"
    return project(tmp_path / "p", broker.bootstrap, topic, {}, sink)


@pytest.mark.parametrize("wrong", REFUSALS)
@pytest.mark.parametrize("side", ["source", "sink"])
def test_refused(root: Path, wrong: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message within seconds, without a JVM and without a secret; the exit code of a cluster that is not there."""
    monkeypatch.setenv("KAFKA_PASSWORD", "canary-of-somebody")
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-m", "sluice", "run", "orders"], cwd=root, capture_output=True, text=True, check=False
    )

    assert time.monotonic() - began < SOON_SECONDS
    told = done.stdout + done.stderr
    read = "source `orders` could not be read: " if side == "source" else ""
    assert re.fullmatch(f"error: {read}{REFUSALS[wrong]}.*", told, re.DOTALL), told
    assert [line.split(":")[0].strip() for line in told.splitlines()] == ["error", "where", "what to do"]
    assert (done.returncode, "canary" in told, tells(root)) == (StorageError.exit_code, False, [])


@pytest.mark.spark
def test_each_row_names_its_topic(
    broker: SecuredBroker, kafka: Kafka, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no topic to look for: whether the cluster lets this user in is asked all the same."""
    topic = kafka.topic()
    kafka.send(topic, ["1"])
    monkeypatch.setenv("KAFKA_PASSWORD", "canary-of-somebody")
    made = Stream(
        name="orders",
        sources={"orders": sources.kafka(broker.bootstrap, topics=[topic])},
        transform=f"{__name__}:values",
        sink=sinks.kafka(broker.bootstrap_of("PASSWORDS"), settings=by_password(broker)),
    )

    with pytest.raises(StorageError, match="does not let this user in"):
        lab.run(made)


def test_a_key_that_does_not_open(broker: SecuredBroker) -> None:
    """The planner's client tells a wrong password at once, and of a key that Java's can't open the declaration does."""
    settings = by_certificate(broker) | {"ssl.keystore.location": str(broker.locked_client_file)}
    servers = broker.bootstrap_of("CERTIFICATES")
    opened = cluster(for_planner(servers, settings | {"ssl.key.password": KEY_PASSWORD}, "here"))
    closed = cluster(for_planner(servers, settings | {"ssl.key.password": "canary-of-somebody"}, "here"))

    assert opened.topics(["nowhere"]) == {}
    with pytest.raises(
        StorageError, match=r"`ssl\.keystore\.location` has no key as PEM that `ssl.key.password` opens"
    ):
        closed.topics(["nowhere"])
    with pytest.raises(DeclarationError, match="PBES2"):
        sources.kafka(servers, topics=["t"], settings=settings | {"ssl.key.password": KEY_PASSWORD}).resolved(AROUND)
