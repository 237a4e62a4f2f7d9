"""What a client of Kafka complains of while it waits, as one clear error.

librdkafka tries again for as long as it may, also where no try can succeed: a password is wrong, a certificate is not
trusted. It tells of each try aside, and of a time-out at the end.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sluice.errors import UnansweredError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_PATIENCE_SECONDS = 1.5
"""For how long it must be refused again and again: a broker that starts knows its users a moment late."""
_MOST_HEARD = 1000
"""More than a client says in the time of one question."""
_BESIDES = re.compile(
    r"^\w+://\S+: | \(after [^()]* in state \w+\)|: broker certificate could not be verified, verify that ssl\..*"
)
"""What librdkafka says around the cause: which broker, when, and what to do about settings of its own."""


@dataclass(frozen=True)
class _Refusal:
    """Why no further try will succeed."""

    sign: re.Pattern[str]
    problem: str
    remedy: str


_REFUSALS = (
    _Refusal(
        re.compile("SASL authentication error|SASL mechanism"),
        "the cluster does not let this user in",
        "check `sasl.mechanism`, the user and the password in `settings`",
    ),
    _Refusal(
        re.compile("certificate verify failed"),
        "the servers' certificate is not to be trusted",
        "check that `ssl.truststore.location`, or `ssl.truststore.certificates`, has the authority that has signed it,"
        " and that `servers` and the listeners that brokers advertise have the names that are in the certificate",
    ),
    _Refusal(
        re.compile("(?i)alert .*(certificate|unknown ca)"),
        "the cluster wants another certificate of the client",
        "check `ssl.keystore.location` in `settings`: the key and the certificate that the cluster trusts, as PEM",
    ),
    _Refusal(
        # A server without TLS takes the first bytes for nonsense, and ends the connection.
        re.compile("SSL handshake failed|in state SSL_HANDSHAKE"),
        "the cluster does not speak TLS as it is asked to",
        "check `security.protocol` in `settings`, and the port",
    ),
)
_UNREADABLE = {
    "ssl.ca.location": "`ssl.truststore.location` is no file of certificates as PEM",
    "ssl.ca.pem": "`ssl.truststore.certificates` are no certificates as PEM",
    "ssl.certificate.location": "`ssl.keystore.location` is no file that begins with a certificate, or has a key before"
    " it, as PEM",
    "ssl.certificate.pem": "`ssl.keystore.certificate.chain` is no certificate as PEM",
    "ssl.key.location": "`ssl.keystore.location` has no key as PEM that `ssl.key.password` opens",
    "ssl.key.pem": "`ssl.keystore.key` is no key as PEM that `ssl.key.password` opens",
}
"""By librdkafka's name, what is wrong with what is declared when it can't begin."""


class _Heard(NamedTuple):
    """Something that went wrong."""

    number: int
    """It was heard after all of smaller numbers."""
    at: float
    """When, in seconds of the clock."""
    text: str


class Complaints:
    """What one client complains of; of several threads that ask it, each is told what it has said since it asked."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._heard = deque[_Heard](maxlen=_MOST_HEARD)
        self._asked = threading.local()

    @property
    def is_refused(self) -> bool:
        """Whether it is of no use to wait any longer: it was refused, and was so again after a while."""
        refused = [heard.at for heard in self._said() if _refusal(heard.text) is not None]
        return bool(refused) and refused[-1] - refused[0] >= _PATIENCE_SECONDS

    def clear(self) -> None:
        """Forget what was said: this thread asks another question."""
        self._asked.number = next(self._numbers)

    def _said(self) -> list[_Heard]:
        since = getattr(self._asked, "number", 0)
        return [heard for heard in self._heard.copy() if heard.number > since]

    def hear(self, error: KafkaError) -> None:
        """Called by the library with what goes wrong behind a question: why a connection was refused, say."""
        from confluent_kafka import KafkaError

        # That all are down is told for each of them already.
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - it is the name of the library's code
            return
        self._heard.append(_Heard(next(self._numbers), time.monotonic(), error.str()))

    def error(self, exc: Exception, servers: str) -> UnansweredError:
        """The error for a question that was not answered.

        Args:
            exc: How it ended.
            servers: Who was asked.
        """
        said = exc.args[0].str() if exc.args and hasattr(exc.args[0], "str") else str(exc) or "no answer"
        heard = [complaint.text for complaint in self._said()]
        last = heard[-1] if heard else ""
        refused = next((text for text in reversed(heard) if _refusal(text) is not None), "")
        for text in (refused, last, said):
            refusal = _refusal(text)
            if refusal is not None:
                cause = _BESIDES.sub("", text)
                return UnansweredError(f"{refusal.problem}: {cause}", where=servers, remedy=refusal.remedy)
        for name, problem in _UNREADABLE.items():
            if f"{name} failed" in said:
                return UnansweredError(problem, where=servers, remedy="check the file, and that this user may read it")
        told = "; ".join(dict.fromkeys(found for found in (said, last) if found))
        return UnansweredError(
            f"Kafka can't be asked: {told}",
            where=servers,
            remedy="check the servers, the network, and `settings`: their protocol, user and password",
        )


def _refusal(text: str) -> _Refusal | None:
    return next((refusal for refusal in _REFUSALS if refusal.sign.search(text)), None)
