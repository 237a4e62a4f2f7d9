"""What librdkafka tells aside, as one error: by texts that a real broker made it say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException

from sluice.kafka import complaints
from sluice.kafka.complaints import Complaints

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller"))
PASSWORD = (
    "sasl_ssl://b:1/bootstrap: SASL authentication error: Authentication failed during authentication due to invalid"
    " credentials with SASL mechanism SCRAM-SHA-512 (after 310ms in state AUTH_REQ)"
)
UNTRUSTED = (
    "ssl://b:1/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify"
    " failed: broker certificate could not be verified, verify that ssl.ca.location is correctly"
    " configured (after 2ms in state SSL_HANDSHAKE)"
)
CERTIFICATE = (
    "ssl://b:1/0: SSL handshake failed: error:0A000412:SSL routines::ssl/tls alert bad certificate:"
    " SSL alert number 42 (after 9ms in state UP)"
)
VERSION = (
    "ssl://b:1/0: SSL handshake failed: error:0A00042E:SSL routines::tlsv1 alert protocol version:"
    " SSL alert number 70 (after 9ms in state SSL_HANDSHAKE)"
)
CLOSED = "sasl_ssl://b:1/bootstrap: Disconnected: SSL connection closed by peer (after 1ms in state SSL_HANDSHAKE)"
GONE = "b:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(complaints, "time", made)
    return made


def heard(clock: Clock, *told: tuple[float, str]) -> Complaints:
    """Texts, each after some seconds."""
    made = Complaints()
    for seconds, text in told:
        clock.now += seconds
        made.hear(KafkaError(KafkaError._AUTHENTICATION, text))
    return made


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PASSWORD, "the cluster does not let this user in: SASL authentication error: "),
        (
            UNTRUSTED,
            "the servers' certificate is not to be trusted: SSL handshake failed: ",
        ),
        (
            CERTIFICATE,
            "the cluster wants another certificate of the client: ",
        ),
        (
            VERSION,
            "the cluster does not speak TLS as it is asked to: ",
        ),
        (CLOSED, "the cluster does not speak TLS as it is asked to: Disconnected: SSL connection closed by peer"),
        (GONE, "Kafka can't be asked: Failed while waiting for controller; b:1/bootstrap: Connect to "),
    ],
)
def test_why(clock: Clock, text: str, problem: str) -> None:
    assert heard(clock, (0, text)).error(TIMED_OUT, "b:1").problem.startswith(problem)


def test_what_is_said_after_a_refusal(clock: Clock) -> None:
    """It does not hide why."""
    assert "does not let this user in" in heard(clock, (0, PASSWORD), (1, GONE)).error(TIMED_OUT, "b:1").problem


@pytest.mark.parametrize(
    ("told", "is_refused"),
    [
        ([], False),
        ([(0, GONE), (3, GONE)], False),
        ([(0, CLOSED)], False),
        ([(0, CLOSED), (1, GONE), (1, GONE)], False),
        ([(0, PASSWORD), (0.5, PASSWORD)], False),
        ([(0, PASSWORD), (0.5, PASSWORD), (1, PASSWORD)], True),
        ([(0, CLOSED), (1, GONE), (1, CLOSED)], True),
    ],
)
def test_no_further_try(clock: Clock, told: list[tuple[float, str]], is_refused: bool) -> None:  # noqa: FBT001
    """It is given up where it was refused again after a while: one connection that ends is not enough."""
    assert heard(clock, *told).is_refused is is_refused


def test_the_next_question(clock: Clock) -> None:
    """Nothing of the one before is told for it."""
    made = heard(clock, (0, PASSWORD), (3, PASSWORD))
    made.clear()
    assert not made.is_refused
    assert made.error(TIMED_OUT, "b:1").problem == "Kafka can't be asked: Failed while waiting for controller"


def test_questions_of_several_threads(clock: Clock) -> None:
    """One that asks takes nothing away from what another is told, and is told nothing of what was said before."""
    made = heard(clock, (0, PASSWORD), (2, PASSWORD))

    def ask() -> tuple[bool, str]:
        made.clear()
        return made.is_refused, made.error(TIMED_OUT, "b:1").problem

    with ThreadPoolExecutor(1) as others:
        other = others.submit(ask).result()

    assert other == (False, "Kafka can't be asked: Failed while waiting for controller")
    assert made.is_refused
    assert made.error(TIMED_OUT, "b:1").problem.startswith("the cluster does not let this user in")
