"""What must not be told is masked in every text that leaves this process: errors, records, pages, Airflow's logs.

A secret is known by its value, once a project that holds it was read; by the name that stands before it; or by its
place in a URL. `sluice.errors` masks what errors say when they are made, so that whoever shows one later need not.
What Spark's JVM itself writes goes to the driver's log, which only its owner can read.
"""

from __future__ import annotations

import json
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
_SHORTEST_LINE = 8
"""The same of a line of a longer one."""
_VALUE = r"""(?: "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | (?=[^\s&;,"')\]}]*\w) [^\s&;,"')\]}]+ )"""
_IN_URL = re.compile(r"""(?i)(?<![\w+.-])(?!(?:abfss?|wasbs?|hdfs)://[^\s/?#'":]+@)([\w+.-]*://)[^\s/?#'"]+@""")
"""A password, or a token alone; the containers of Azure and the users of Hadoop stand there, too."""
_IN_ORACLES_URL = re.compile(r"(?i)(?<=jdbc:oracle:thin:)[^\s@/]+/[^\s@]*@")
_NAMED = re.compile(
    rf"""(?ix) (?P<name> (?:{_WORDS}|(?<![a-z])(?:sas|sig|x-amz-[\w-]{{1,60}}))[\w.-]{{0,60}} ['"]? \s*=\s*
        | (?<![\w.-]) --?[\w-]{{0,60}}(?:{_WORDS})[\w-]{{0,60}} \s+ (?!-) | \bBearer\s+
        | (?:{_WORDS}) \\?['"]? \s*:\s*+ (?!//|\\?["']\*\*\*) ) (?P<value>{_VALUE})"""
)
"""What stands behind a name: `password=x`, `--password x`, `password: x`."""
_IN_JSON = re.compile(
    r"""(?x) (?P<before>(?P<name_quote>\\?["'])(?P<name>[\w.-]+)(?P=name_quote)\s*:\s*)
    (?P<quote>\\?["'])(?P<value>.*?)(?<!\\)(?P=quote)"""
)
_IN_PAIR = re.compile(
    r"""(?x) (?P<before>\(\s*(?P<name_quote>["'])(?P<name>[\w.-]+)(?P=name_quote)\s*,\s*)
    (?P<quote>["'])(?P<value>.*?)(?<!\\)(?P=quote)(?=\s*\))"""
)
_HEADER = re.compile(
    r"""(?i)((?<![\w-])(?:(?:proxy-)?authorization|(?:set-)?cookie)\s*:\s*+)(?!["']|Bearer\s)[^\r\n"']+"""
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_HOOK = re.compile(
    r"(?i)((?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|webhook\.office\.com/webhookb2)/)[^\s\"'<>)\]},]+"
)
"""Addresses that are secrets themselves: whoever knows one may write there."""

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
    spelled = {text for value in values for part in _parts(value) for text in _spellings(part)}
    # The longest first, for one may be a part of another.
    _known = tuple(sorted({*_known, *spelled}, key=lambda value: (-len(value), value)))


def _parts(value: str) -> Iterator[str]:
    """A secret, and what of it is told by itself: each of its lines, and the secrets that a document of several has."""
    if len(value) < SHORTEST or not value.strip():
        return
    yield from (value, value.strip(), " ".join(value.split()))
    unescaped = value.replace("\\n", "\n")
    lines = [line.strip() for line in unescaped.splitlines()]
    if len(lines) < 2:
        return
    yield from (unescaped, unescaped.strip(), " ".join(lines), "".join(lines))
    yield from (line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----"))
    for found in _NAMED.finditer(value):
        yield from _parts(found["value"].strip("\"'"))
    for found in _IN_JSON.finditer(value):
        if is_secret_name(found["name"]):
            yield from _parts(found["value"])


def _spellings(text: str) -> Iterator[str]:
    """A text as Python, JSON and URLs spell it."""
    spelled = (text, quote(text, safe=""), repr(text)[1:-1], json.dumps(text)[1:-1], text.replace("\n", "\\n"))
    yield from (found for found in spelled if len(found) >= SHORTEST)


def known_secrets() -> tuple[str, ...]:
    """Every value that is masked, for whoever masks texts of its own: Airflow in its logs."""
    return _known


def redacted(text: str) -> str:
    """The text without the secrets that it holds."""
    for secret in _known:
        if secret in text:
            text = text.replace(secret, MASK)
    text = _PEM.sub(MASK, text)
    text = _IN_URL.sub(rf"\g<1>{MASK}@", text)
    text = _IN_ORACLES_URL.sub(f"{MASK}@", text)
    text = _HOOK.sub(rf"\g<1>{MASK}", text)
    text = _HEADER.sub(rf"\g<1>{MASK}", text)
    for pattern in (_IN_JSON, _IN_PAIR):
        text = pattern.sub(_without_value, text)
    return _NAMED.sub(rf"\g<name>{MASK}", text)


def _without_value(found: re.Match[str]) -> str:
    is_secret = is_secret_name(found["name"]) or found["name"].lower() == "authorization"
    return f"{found['before']}{found['quote']}{MASK}{found['quote']}" if is_secret else found[0]


def secrets_of_url(url: str) -> Iterator[str]:
    """The secrets in a URL: the password in front of its host, and parameters that bear the name of a secret."""
    for user in (found[0].removeprefix(found[1]) for found in _IN_URL.finditer(url)):
        yield unquote(user.removesuffix("@").partition(":")[2])
    for parameter in re.split(r"[?;&]", url)[1:]:
        name, _, value = parameter.partition("=")
        # With a slash in it, it is no name of a parameter: a `?` of a pattern stands before it.
        if is_secret_name(name) and "/" not in name:
            yield unquote(value)
