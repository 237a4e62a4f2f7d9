"""The settings of Kafka's client as they are declared, for Spark's client in Java and for the planner's in C.

They are written as Java's client has them. What tells how to reach a cluster, the planner needs as well: most of it has
the same name there; keys, certificates and passwords have others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sluice.datasets import Dataset
from sluice.declaration_checks import refuse_name
from sluice.errors import DeclarationError
from sluice.paths import expand
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
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
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
    r"""(?x)\s* [\w.]+\.(?P<module>\w+)LoginModule \s+ required\b
    (?P<options>(?: [^;"'] | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )*) ;\s*"""
)
_JAAS_OPTION = re.compile(r"""(?P<name>\w+)\s*=\s*(?P<quote>["'])(?P<value>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""")
_JAAS_REMEDY = (
    "write it as for Java: `org.apache.kafka.common.security.plain.PlainLoginModule required` (or"
    ' `...scram.ScramLoginModule`), then `username` and `password`, each as `"${NAME}"`, and a `;`'
)
_SAME = (
    "security.protocol",
    "sasl.mechanism",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "client.id",
    "client.dns.lookup",
)
"""What both clients call the same."""
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
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
        raise DeclarationError("the servers have a user in front of them", where=place, remedy=_JAAS_REMEDY)
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


def expanded(servers: str, settings: Mapping[str, str], place: str) -> tuple[str, dict[str, str]]:
    """The servers and the settings with the environment's values; what of these is a secret is masked from then on.

    Raises:
        DeclarationError: A variable is not set, or the planner's client can't be told what they say.
    """
    remember_secrets(secrets_of(settings))
    found = {name: expand(value, place=f"{place}, settings") for name, value in settings.items()}
    remember_secrets(secrets_of(found))
    where = check_servers(expand(servers, place=place), place)
    if not _SERVERS.fullmatch(where):
        raise DeclarationError("a variable names no servers", where=place, remedy='let it be "HOST:PORT"')
    for_planner(where, found, place)
    return where, found


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
    mechanism = str(settings.get("sasl.mechanism", "PLAIN"))
    is_sasl = str(settings.get("security.protocol", "")).upper().startswith("SASL")
    if is_sasl and mechanism not in _MECHANISMS and "$" not in mechanism:
        raise DeclarationError(
            f"`sasl.mechanism` is {mechanism!r}", where=place, remedy=f"use one of {', '.join(_MECHANISMS)}"
        )
    if is_sasl and "sasl.jaas.config" not in settings:
        raise DeclarationError("`sasl.jaas.config` is missing", where=place, remedy=_JAAS_REMEDY)
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


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
    options = [option for value in found for option in _JAAS_OPTION.finditer(value)]
    return found + [option["value"] for option in options if is_secret_name(option["name"])]


def for_spark(servers: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's source."""
    return {f"kafka.{name}": value for name, value in {**settings, "bootstrap.servers": servers}.items()}


def for_planner(servers: str, settings: Mapping[str, str], place: str) -> dict[str, str]:
    """The settings of librdkafka that lead to the same cluster as the same user.

    Raises:
        DeclarationError: They can't be told to it.
    """
    found = {name: settings[name] for name in _SAME if name in settings}
    found["bootstrap.servers"] = servers
    if found.get("security.protocol", "").upper().startswith("SASL"):
        found.setdefault("sasl.mechanism", "PLAIN")
        found["sasl.username"], found["sasl.password"] = _credentials(settings.get("sasl.jaas.config", ""), place)
    found |= _stored(settings, "truststore", {"location": "ssl.ca.location", "certificates": "ssl.ca.pem"}, place)
    keys = {"certificate.chain": "ssl.certificate.pem", "key": "ssl.key.pem", "location": "ssl.certificate.location"}
    found |= _stored(settings, "keystore", keys, place)
    if "ssl.certificate.location" in found:
        # Java's client takes the key and its certificates from one file.
        found["ssl.key.location"] = found["ssl.certificate.location"]
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _credentials(jaas: str, place: str) -> tuple[str, str]:
    found = _JAAS.fullmatch(jaas)
    options = {}
    for option in _JAAS_OPTION.finditer(found["options"]) if found else ():
        options[option["name"]] = re.sub(r"\\(.)", r"\1", option["value"])
    if found is None or found["module"] not in {"Plain", "Scram"} or not {"username", "password"} <= options.keys():
        raise DeclarationError("`sasl.jaas.config` names no user and password", where=place, remedy=_JAAS_REMEDY)
    return options["username"], options["password"]


def _stored(settings: Mapping[str, str], store: str, names: Mapping[str, str], place: str) -> dict[str, str]:
    """What one of Java's stores holds, by the names of librdkafka."""
    declared = {name: settings[f"ssl.{store}.{name}"] for name in names if f"ssl.{store}.{name}" in settings}
    kind = settings.get(f"ssl.{store}.type", "JKS").upper()
    if declared and kind != "PEM":
        raise DeclarationError(
            f"`ssl.{store}.type` is {kind}",
            where=place,
            remedy=f'give it as PEM, which both clients read: "ssl.{store}.type": "PEM"',
        )
    return {names[name]: value for name, value in declared.items()}
