"""What must not be told is masked in every text that leaves this process: errors, records, pages, Airflow's logs.

A secret is known by its value, once a project that holds it was read; by the name that stands before it; or by its
place in a URL. `sluice.errors` masks what errors say when they are made, so that whoever shows one later need not.
What Spark's JVM itself writes goes to the driver's log, which only its owner can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

MASK = "***"
"""What stands in the place of a secret."""

_WORDS = (
    r"secret|passw(?:or)?d|passphrase|passwd|pwd|token|credential|signature|jaas|salt|pepper"
    r"|(?:access|account|api|private|encryption|storage|sas|shared)[._-]?key"
)
_SECRET_NAME = re.compile(rf"(?i){_WORDS}|(?:^|[._-])(?:sas|key|sig|pass|auth)(?:$|[._-])")
SHORTEST = 4
"""How many characters a value has at least to be masked wherever it stands: a shorter one is part of other words."""
_HARMLESS = re.compile(r"(?i)true|false|[\d.]+[kmgt]?b?|/.*|local\[?.*|(?!.*@)[a-z0-9+.-]+://[^?;]*")
"""What a variable of the environment says without being a secret: numbers, paths, addresses without credentials."""
_IN_URL = re.compile(r"(?<=://)[^\s/?#@'\"]+@")
_NAMED = re.compile(
    rf"""(?ix) (?P<name> [\w.-]*(?:{_WORDS}|(?<![a-z])(?:sas|sig|x-amz-[\w-]+))[\w.-]* ['"]? \s*=\s* | \bBearer\s+ )
    (?: "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | (?=[^\s&;,"')\]}}]*\w) [^\s&;,"')\]}}]+ )"""
)
_IN_JSON = re.compile(
    rf"""(?i)(?P<name>["'][\w.-]*(?:{_WORDS})[\w.-]*["']\s*:\s*)(?P<quote>["'])(?:[^"'\\]|\\.)*["']"""
)

_known: tuple[str, ...] = ()


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret, such as `fs.s3a.secret.key` or `sasl.jaas.config`."""
    return _SECRET_NAME.search(name) is not None


def is_harmless(value: str) -> bool:
    """Whether a value is surely no secret: a number, a path, an address without credentials."""
    return _HARMLESS.fullmatch(value) is not None


def remember_secrets(values: Iterable[str]) -> None:
    """From now on, mask these values wherever a text of this process has one."""
    global _known  # noqa: PLW0603 - what a process knows, all of it must keep
    found = {value for value in values if len(value) >= SHORTEST}
    # As URLs spell them, too; the longest first, for one may be a part of another.
    spelled = found | {quote(value, safe="") for value in found} | {value.strip() for value in found}
    _known = tuple(sorted({*_known, *spelled} - {""}, key=lambda value: (-len(value), value)))


def known_secrets() -> tuple[str, ...]:
    """Every value that is masked, for whoever masks texts of its own: Airflow in its logs."""
    return _known


def redacted(text: str) -> str:
    """The text without the secrets that it holds."""
    for secret in _known:
        if secret in text:
            text = text.replace(secret, MASK)
    text = _IN_URL.sub(f"{MASK}@", text)
    text = _NAMED.sub(rf"\g<name>{MASK}", text)
    return _IN_JSON.sub(rf"\g<name>\g<quote>{MASK}\g<quote>", text)


def secrets_of_url(url: str) -> Iterator[str]:
    """The secrets in a URL: the password in front of its host, and parameters that bear the name of a secret."""
    for user in _IN_URL.findall(url):
        yield unquote(user.removesuffix("@").partition(":")[2])
    for parameter in re.split(r"[?;&]", url)[1:]:
        name, _, value = parameter.partition("=")
        if is_secret_name(name):
            yield unquote(value)
