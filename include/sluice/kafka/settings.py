"""The settings of Kafka's client as they are declared, for Spark's client in Java and for the planner's in C.

They are written as Java's client has them. What tells how to reach a cluster, the planner needs as well: most of it has
the same name there; keys, certificates and passwords have others.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress

from sluice.datasets import Dataset
from sluice.declaration_checks import refuse_name
from sluice.errors import DeclarationError
from sluice.paths import expand, resolve_path
from sluice.redaction import is_secret_name, remember_secrets

_OURS = {
    "bootstrap.servers": 'leave it out: `sources.kafka("HOST:PORT", ...)` says it',
    "group.id": "leave it out: the checkpoint knows how far a stream has read, and no group does",
    "auto.offset.reset": 'write it as `starting="earliest"` or `starting="latest"`',
    "enable.auto.commit": "leave it out: the checkpoint knows how far a stream has read",
    "key.serializer": "leave it out: Spark sends `key` as it is",
    "value.serializer": "leave it out: Spark sends `value` as it is",
    "transactional.id": "leave it out: Spark's writer begins no transactions",
    "key.deserializer": "leave it out: `key` is binary; cast or decode it in the transform",
    "value.deserializer": "leave it out: `value` is binary; cast or decode it in the transform",
    "interceptor.classes": "leave it out: Spark allows none",
    "max.poll.records": "write it as `max_offsets_per_batch`, if batches are to be smaller",
}
_OF_THE_PLANNERS_CLIENT = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
}
"""What other clients call what Java's client has as something else."""
_JAAS = re.compile(
    r"""(?x)\s* [\w.]+\.(?P<module>\w+)LoginModule \s+ required
    (?P<options>(?: \s+ \w+ \s*=\s* (?: "(?:\\["'\\]|[^"\\])*" | '(?:\\["'\\]|[^'\\])*' ) )+) \s*;\s*"""
)
"""A login that both clients read alike: nothing but options, and of the escapes those of quotes and themselves."""
_JAAS_OPTION = re.compile(
    r"""(?<!\w)(?P<name>\w+)\s*=\s*(?P<quote>["'])(?P<value>(?:\\.|(?!(?P=quote))[^\\])*)(?P=quote)"""
)
_LOGIN_REMEDY = 'give `sasl.username` and `sasl.password` in `settings`, as variables: "${KAFKA_PASSWORD}"'
_USER = ("sasl.username", "sasl.password")
"""What Java's client wants within a text of its own, in which some signs mean something else: that is made here."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SAME = (
    "security.protocol",
    "sasl.mechanism",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "client.id",
    "client.dns.lookup",
)
"""What both clients call the same."""
_MECHANISMS = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}
"""By how a user proves who it is, the module of Java's client that does it."""
_DEFAULT_MECHANISM = "PLAIN"
_ENCRYPTED_KEY = re.compile(
    "-----BEGIN ENCRYPTED PRIVATE KEY-----(?P<content>[^-]*)-----END ENCRYPTED PRIVATE KEY-----"
)
_OLD_KEY = re.compile("-----BEGIN (?:RSA|EC|DSA) PRIVATE KEY-----")
_PLAIN_KEY = "-----BEGIN PRIVATE KEY-----"
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""How a key says, in its first bytes, that it is encrypted in the way that Java 17 has no name for."""
_FILES = ("ssl.truststore.location", "ssl.keystore.location")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LARGEST_KEY = 1_000_000
_SERVER = r"(?:[\w.-]+|\[[\da-fA-F:]+\]):\d{1,5}"
_SERVERS = re.compile(rf"{_SERVER}(,{_SERVER})*")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NAME = re.compile(r"[a-z][a-z0-9]*(\.[a-z0-9]+)+|acks|retries")


def named(function: str, servers: object) -> str:
    """What is declared, for messages; not what may have a password in it."""
    return f"{function}({'...' if isinstance(servers, str) and '@' in servers else repr(servers)})"


def check_servers(servers: object, place: str) -> str:
    """Where a cluster is, without spaces; what is to come from the environment is looked at by `expanded`.

    Raises:
        DeclarationError: It names no servers.
    """
    if isinstance(servers, str) and "@" in servers:
        raise DeclarationError("the servers have a user in front of them", where=place, remedy=_LOGIN_REMEDY)
    if not isinstance(servers, str) or ("$" not in servers and not _SERVERS.fullmatch(re.sub(r"\s+", "", servers))):
        raise DeclarationError(f"{servers!r} names no servers", where=place, remedy='write them as "HOST:PORT"')
    return re.sub(r"\s+", "", servers)


def check_topic(topic: object, place: str, *, remedy: str = "write letters, digits, `.`, `_` and `-`") -> None:
    """Refuse what is no name of a topic.

    Raises:
        DeclarationError: It is none.
    """
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
        raise DeclarationError(f"{topic!r} is no name of a topic", where=place, remedy=remedy)


def topic_dataset(servers: str, topic: str) -> Dataset:
    """A topic as other tools name it: by the first of the servers, the only one that the name has room for."""
    return Dataset(f"kafka://{servers.partition(',')[0]}", topic)


def expanded(servers: str, settings: Mapping[str, str], root: str, place: str) -> tuple[str, dict[str, str]]:
    """The servers and the settings with the environment's values; what of these is a secret is masked from then on.

    Args:
        servers: As they are declared.
        settings: Likewise.
        root: The project's folder, below which relative files are: a JVM would look in whatever folder it was started.
        place: For messages.

    Raises:
        DeclarationError: A variable is not set, a file is outside of the project, or the planner's client can't be told
            what they say.
    """
    remember_secrets(secrets_of(settings))
    found = {
        name: resolve_path(value, root, place=f"{place}, `{name}`")
        if name in _FILES
        else expand(value, place=f"{place}, settings")
        for name, value in settings.items()
    }
    remember_secrets(secrets_of(found))
    where = check_servers(expand(servers, place=place), place)
    if not _SERVERS.fullmatch(where):
        raise DeclarationError("a variable names no servers", where=place, remedy='let it be "HOST:PORT"')
    for_planner(where, found, place)
    _check_login(found, place)
    _check_stores(found, place)
    _check_key(found, place)
    # Java's client tells a password as it is written for it.
    remember_secrets(secrets_of(for_spark(where, found)))
    return where, found


def _check_key(settings: Mapping[str, str], place: str) -> None:
    """Refuse a key that only the planner's client can open: Java's would fail in the middle of a batch."""
    text = settings.get("ssl.keystore.key", "")
    if location := settings.get("ssl.keystore.location"):
        # Where it can't be read, the planner's client says so once it is to be used.
        with suppress(OSError), open(location, encoding="latin-1") as file:
            text = file.read(_LARGEST_KEY)
    if _OLD_KEY.search(text) is not None:
        raise DeclarationError(
            "Java's client can't open the key of the client's certificate: it is not written as PKCS 8",
            where=place,
            remedy="write it so: `openssl pkcs8 -topk8 -nocrypt`",
        )
    if _PLAIN_KEY in text and "ssl.key.password" in settings:
        raise DeclarationError(
            "`ssl.key.password` is given, and the key of the client's certificate is not encrypted",
            where=place,
            remedy="leave it out: Java's client would take the key for an encrypted one",
        )
    for found in _ENCRYPTED_KEY.finditer(text):
        with suppress(ValueError):
            if _PBES2 in b64decode(found["content"]):
                raise DeclarationError(
                    "Java's client can't open the key of the client's certificate: it is encrypted by PBES2",
                    where=place,
                    remedy="encrypt it as Java takes it: `openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES`",
                )


def _check_stores(settings: Mapping[str, str], place: str) -> None:
    """Refuse what only the planner's client takes: Spark would fail in the middle of a batch."""
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in {"https", ""}:
        raise DeclarationError(
            "`ssl.endpoint.identification.algorithm` is another one", where=place, remedy='leave it out, or give ""'
        )
    for store, texts in {"truststore": ["certificates"], "keystore": ["key", "certificate.chain"]}.items():
        given = [f"ssl.{store}.{name}" for name in texts if f"ssl.{store}.{name}" in settings]
        refused, remedy = None, ""
        if f"ssl.{store}.password" in settings and settings.get(f"ssl.{store}.type") == "PEM":
            refused, remedy = f"`ssl.{store}.password` is given, and a PEM has none", "leave it out"
        elif given and f"ssl.{store}.location" in settings:
            refused, remedy = f"`ssl.{store}.location` and `{given[0]}` are given", "give one of them"
        elif given and len(given) < len(texts):
            refused, remedy = f"`{given[0]}` is given alone", f"give {' and '.join(texts)} of `ssl.{store}`"
        if refused is not None:
            raise DeclarationError(refused, where=place, remedy=remedy)


def check_names(settings: Mapping[str, object] | None, place: str) -> dict[str, str]:
    """The settings as texts.

    Raises:
        DeclarationError: One is no business of a declaration, or no name of Java's client.
    """
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise DeclarationError(
            f"`settings` is {settings!r}", where=place, remedy='give names and texts: settings={"client.id": "shop"}'
        )
    for name, value in settings.items():
        _check_name(name, value, place)
    _check_login(settings, place)
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


def _check_login(settings: Mapping[str, object], place: str) -> None:
    """What is not told by a variable of the environment can be looked at before there is one."""
    protocol = str(settings.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in _PROTOCOLS and "$" not in protocol:
        raise DeclarationError(
            f"`security.protocol` is {protocol!r}", where=place, remedy=f"use one of {', '.join(_PROTOCOLS)}"
        )
    user = [name for name in _USER if name in settings]
    if user and not protocol.startswith("SASL") and "$" not in protocol:
        raise DeclarationError(
            f"`{user[0]}` is given, and `security.protocol` is {protocol!r}, which has no users",
            where=place,
            remedy='set "security.protocol": "SASL_SSL"',
        )
    if user and "sasl.jaas.config" in settings:
        raise DeclarationError(
            f"`{user[0]}` and `sasl.jaas.config` are given", where=place, remedy="leave `sasl.jaas.config` out"
        )
    if not protocol.startswith("SASL"):
        return
    mechanism = str(settings.get("sasl.mechanism", _DEFAULT_MECHANISM))
    if mechanism not in _MECHANISMS and "$" not in mechanism:
        raise DeclarationError(
            f"`sasl.mechanism` is {mechanism!r}", where=place, remedy=f"use one of {', '.join(_MECHANISMS)}"
        )
    missing = [name for name in _USER if name not in settings]
    if missing and "sasl.jaas.config" not in settings:
        raise DeclarationError(f"`{missing[0]}` is missing", where=place, remedy=_LOGIN_REMEDY)


def _check_name(name: object, value: object, place: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str | int | float):
        raise DeclarationError(
            f"`settings` has {name!r} with a {type(value).__name__}",
            where=place,
            remedy='give names and texts: settings={"security.protocol": "SSL"}',
        )
    ours = name.removeprefix("kafka.")
    if ours in _OURS:
        raise DeclarationError(f"`{name}` can't be set", where=place, remedy=_OURS[ours])
    if name != ours:
        raise DeclarationError(f"unknown setting `{name}`", where=place, remedy=f"write it as `{ours}`")
    if name in _OF_THE_PLANNERS_CLIENT:
        raise DeclarationError(
            f"unknown setting `{name}`",
            where=place,
            remedy=f"write it as Java's client has it: `{_OF_THE_PLANNERS_CLIENT[name]}`",
        )
    if not _NAME.fullmatch(name):
        refuse_name(name, _SAME, what="setting", place=place, words={})


def secrets_of(settings: Mapping[str, str]) -> list[str]:
    """The values that nobody is to see."""
    found = [value for name, value in settings.items() if is_secret_name(name)]
    # A message of a login may tell the password alone.
    options = _JAAS_OPTION.finditer(settings.get("sasl.jaas.config", ""))
    return found + [option["value"] for option in options if is_secret_name(option["name"])]


def for_spark(servers: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's source and writer, whose client is Java's."""
    found = {name: value for name, value in settings.items() if name not in _USER} | {"bootstrap.servers": servers}
    if _is_sasl(settings):
        # Java's own default is another one than that of the planner's client.
        mechanism = found.setdefault("sasl.mechanism", _DEFAULT_MECHANISM)
        if "sasl.password" in settings:
            options = " ".join(f'{name}="{_escaped(settings[f"sasl.{name}"])}"' for name in ("username", "password"))
            module = f"org.apache.kafka.common.security.{_MECHANISMS[mechanism]}LoginModule"
            found["sasl.jaas.config"] = f"{module} required {options};"
    return {f"kafka.{name}": value for name, value in found.items()}


def _is_sasl(settings: Mapping[str, str]) -> bool:
    return settings.get("security.protocol", "").upper().startswith("SASL")


def _escaped(text: str) -> str:
    return re.sub(r"([\\\"])", r"\\\1", text)


def for_planner(servers: str, settings: Mapping[str, str], place: str) -> dict[str, str]:
    """The settings of librdkafka that lead to the same cluster as the same user.

    Raises:
        DeclarationError: They can't be told to it.
    """
    found = {name: settings[name] for name in _SAME if name in settings}
    found["bootstrap.servers"] = servers
    if _is_sasl(settings):
        found["sasl.mechanism"] = _mechanism(settings, place)
        found["sasl.username"], found["sasl.password"] = _credentials(settings, place)
    found |= _stored(settings, "truststore", {"location": "ssl.ca.location", "certificates": "ssl.ca.pem"}, place)
    keys = {"certificate.chain": "ssl.certificate.pem", "key": "ssl.key.pem", "location": "ssl.certificate.location"}
    found |= _stored(settings, "keystore", keys, place)
    if "ssl.certificate.location" in found:
        # Java's client takes the key and its certificates from one file.
        found["ssl.key.location"] = found["ssl.certificate.location"]
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _mechanism(settings: Mapping[str, str], place: str) -> str:
    mechanism = settings.get("sasl.mechanism", _DEFAULT_MECHANISM)
    if mechanism not in _MECHANISMS:
        raise DeclarationError(
            "`sasl.mechanism` is another one", where=place, remedy=f"use one of {', '.join(_MECHANISMS)}"
        )
    return mechanism


def _credentials(settings: Mapping[str, str], place: str) -> tuple[str, str]:
    """The user and the password.

    Raises:
        DeclarationError: One is empty, not there or no plain text, or Java's client would prove it in another way.
    """
    if "sasl.jaas.config" not in settings:
        user, password = (settings.get(name, "") for name in _USER)
        if not (user and password):
            raise DeclarationError("the user, or the password, is missing or empty", where=place, remedy=_LOGIN_REMEDY)
        return _plain(user, place), _plain(password, place)
    found = _JAAS.fullmatch(settings["sasl.jaas.config"])
    given = list(_JAAS_OPTION.finditer(found["options"])) if found else []
    options = {option["name"]: re.sub(r"\\(.)", r"\1", option["value"]) for option in given}
    is_told = {"username", "password"} <= options.keys() and len(options) == len(given)
    if found is None or found["module"] not in {"Plain", "Scram"} or not is_told:
        raise DeclarationError(
            "`sasl.jaas.config` names no user and password",
            where=place,
            remedy=f"leave it out, and {_LOGIN_REMEDY}",
        )
    mechanism = _mechanism(settings, place)
    if not _MECHANISMS[mechanism].endswith(f".{found['module']}"):
        raise DeclarationError(
            f"`sasl.jaas.config` has the module {found['module']}LoginModule, and `sasl.mechanism` is {mechanism}",
            where=place,
            remedy=f"leave it out, and {_LOGIN_REMEDY}",
        )
    return _plain(options["username"], place), _plain(options["password"], place)


def _plain(text: str, place: str) -> str:
    """A user or a password. Java's client reads no line break in one, the planner's nothing behind a NUL."""
    if _CONTROL.search(text) is not None:
        raise DeclarationError(
            "the user, or the password, has a line break or another control character",
            where=place,
            remedy="leave it out; a variable that was made of a file may have the line break at the file's end",
        )
    return text


def _stored(settings: Mapping[str, str], store: str, names: Mapping[str, str], place: str) -> dict[str, str]:
    """What one of Java's stores holds, by the names of librdkafka."""
    declared = {name: settings[f"ssl.{store}.{name}"] for name in names if f"ssl.{store}.{name}" in settings}
    kind = settings.get(f"ssl.{store}.type", "JKS")
    if declared and kind != "PEM":
        raise DeclarationError(
            f"`ssl.{store}.type` is {kind}",
            where=place,
            remedy=f'give it as PEM, which both clients read: "ssl.{store}.type": "PEM"',
        )
    return {names[name]: value for name, value in declared.items()}
