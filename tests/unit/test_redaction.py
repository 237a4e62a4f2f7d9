"""Secrets are masked in texts, by value, by name and by place; other words stay."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from urllib.parse import quote

import pytest

from sluice.errors import DeclarationError, Problem, RefusedError
from sluice.redaction import MASK, is_harmless, is_secret_name, redacted, remember_secrets, secrets_of_url

CANARY = "c4nary-Value/with+signs=="


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "fs.azure.account.key.shop.dfs.core.windows.net",
        "aws_secret_access_key",
        "AWS_SESSION_TOKEN",
        "azure_storage_sas_key",
        "sasl.jaas.config",
        "spark.ssl.keyStorePassword",
        "google_service_account_key",
        "key",
        "sig",
    ],
)
def test_names_of_secrets(name: str) -> None:
    """What clouds, Hadoop, Kafka and Spark call their secrets is known."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["spark.driver.memory", "aws_region", "aws_endpoint", "spark.sql.shuffle.partitions", "allow_http", "keys"]
)
def test_names_of_other_settings(name: str) -> None:
    """Other settings are no secrets."""
    assert not is_secret_name(name)


@pytest.mark.parametrize("value", ["2", "2g", "true", "/data/in", "local[2]", "http://minio:9000", "spark://host:7077"])
def test_harmless_values(value: str) -> None:
    """What the environment says of paths, numbers and addresses may stand in a message."""
    assert is_harmless(value)


@pytest.mark.parametrize("value", ["hunter2!", "http://me:hunter2@minio", "sc://host/;token=abcdef", "us-east-1"])
def test_values_that_may_be_secret(value: str) -> None:
    """Whatever else it says may be a secret."""
    assert not is_harmless(value)


def test_values_that_are_known() -> None:
    """A value that a project holds is masked wherever it stands, also as a URL spells it."""
    remember_secrets([CANARY])

    assert redacted(f"refused: {CANARY}, indeed") == f"refused: {MASK}, indeed"
    assert redacted("at http://host/?x=c4nary-Value%2Fwith%2Bsigns%3D%3D") == f"at http://host/?x={MASK}"


PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    "MIIEvQIBADANcanaryBlineOne\nQkwggSkAgEAcanaryBlineTwo\ncanaryBlineThree==\n-----END PRIVATE KEY-----\n"
)
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required\n  username="canaryBuser"\n'
    '  password="canaryBpa55";\n'
)
SERVICE_ACCOUNT = json.dumps(
    {"type": "service_account", "private_key_id": "canaryBidentity", "private_key": PEM}, indent=2
)
SPELLINGS = {
    "as it is": str,
    "stripped": str.strip,
    "in one line": lambda text: " ".join(text.split()),
    "by repr": repr,
    "as JSON": json.dumps,
    "in a URL": lambda text: quote(text, safe=""),
    "line by line": lambda text: " | ".join(f"line: {line}" for line in text.split("\n")),
    "indented": lambda text: text.replace("\n", "\n    "),
    "with escaped line ends": lambda text: text.replace("\n", "\\n"),
    "without line ends": lambda text: text.replace("\n", ""),
}


@pytest.mark.parametrize("secret", [PEM, JAAS, SERVICE_ACCOUNT, PEM.replace("\n", "\\n")], ids=range(4))
@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_secret_of_several_lines(secret: str, spell: Callable[[str], str]) -> None:
    """However a library spells it, none of its lines is told."""
    remember_secrets([secret])

    found = redacted(f"refused: {spell(secret)} is no key")

    assert "canaryB" not in found
    assert found.startswith("refused: ")
    assert found.endswith(" is no key")


def test_what_a_library_makes_of_a_secret() -> None:
    """The key in a service account, with its line ends, and the password in a JAAS text, alone."""
    remember_secrets([SERVICE_ACCOUNT, JAAS])

    assert redacted(f"no key: {PEM}") == f"no key: {MASK}"
    assert redacted("wrong: canaryBpa55") == f"wrong: {MASK}"
    assert (
        redacted("PlainLoginModule is required of service_account") == "PlainLoginModule is required of service_account"
    )


def test_short_values_are_left() -> None:
    """Masking a value of three characters would garble every text."""
    remember_secrets(["the", ""])

    assert redacted("the end") == "the end"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET https://me:pa55@host/x failed", "GET https://***@host/x failed"),
        ("jdbc:postgresql://db/x?user=me&password=pa55word&ssl=true", None),
        ("abfss://raw@lake.dfs.core.windows.net/x", "abfss://raw@lake.dfs.core.windows.net/x"),
        ("abfss://raw:key@lake.dfs.core.windows.net/x", "abfss://***@lake.dfs.core.windows.net/x"),
        ("see https://ghp_16C7e42F@example.org/x", "see https://***@example.org/x"),
        ("https://a.blob/x?sv=1&sig=Ab%2Fc%3D&se=2", "https://a.blob/x?sv=1&sig=***&se=2"),
        ("https://s3/x?X-Amz-Credential=AKIA%2Fx&X-Amz-Signature=0f0f", None),
        ("sc://host:15002/;token=abcdef;use_ssl=true", "sc://host:15002/;token=***;use_ssl=true"),
        ("spark.hadoop.fs.s3a.secret.key = 'a b c'", "spark.hadoop.fs.s3a.secret.key = ***"),
        ('{"password": "pa55 word", "host": "x"}', '{"password": "***", "host": "x"}'),
        ("{'client_secret': 'pa55word'}", "{'client_secret': '***'}"),
        ("Authorization: Bearer eyJhbGciOi.x.y", "Authorization: Bearer ***"),
        ('LoginModule required username="u" password="pa55";', 'LoginModule required username="u" password=***;'),
        ("password: pa55", "password: ***"),
        ("pwd:pa55, host: x", "pwd:***, host: x"),
        ("spark.ssl.keyStorePassword: pa55", "spark.ssl.keyStorePassword: ***"),
        ("curl --password pa55 --verbose", "curl --password *** --verbose"),
        ("curl --api-key=pa55 -v", "curl --api-key=*** -v"),
        ("X-Api-Key: pa55", "X-Api-Key: ***"),
        ("Authorization: Basic dTpwYTU1", "Authorization: ***"),
        ("{'Authorization': 'Token pa55', 'a': 1}", "{'Authorization': '***', 'a': 1}"),
        ("Cookie: session=pa55; other=pa55", "Cookie: ***"),
        ('client_secret": pa55}', 'client_secret": ***}'),
        ("[('password', 'pa55'), ('host', 'x')]", "[('password', '***'), ('host', 'x')]"),
        ('{"key": "pa55", "host": "x"}', '{"key": "***", "host": "x"}'),
        ("https://me:p@pa55@host/x@y", "https://***@host/x@y"),
        ("jdbc:oracle:thin:u/pa55@h:1521/x", "jdbc:oracle:thin:***@h:1521/x"),
        ("-----BEGIN RSA PRIVATE KEY-----\npa55\n-----END RSA PRIVATE KEY----- is bad", "*** is bad"),
        ("cut: -----BEGIN PRIVATE KEY-----\\npa55", "cut: ***"),
        ("https://hooks.slack.com/services/T0/B0/pa55 said 404", "https://hooks.slack.com/services/*** said 404"),
    ],
)
def test_names_and_places(text: str, expected: str | None) -> None:
    """A value behind the name of a secret, or in front of a URL's host, is masked though nobody has told of it."""
    found = redacted(text)

    if expected is not None:
        assert found == expected
    for secret in ("pa55", "Ab%2Fc", "0f0f", "AKIA", "dTpw", "abcdef", "a b c", "eyJ"):
        assert secret not in found


@pytest.mark.parametrize(
    "text",
    [
        "lease token 4 is held by host:17",
        "write it as sc://HOST:PORT/;token=...",
        "the column `password` is not there",
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `idd` cannot be resolved. Did you mean [`id`, `key`]?",
        "NoCredentialsError: Unable to locate credentials",
        "the primary key: id, and the key `id` of the table",
        '"keys": "id", "monkey": "x"',
        "-----BEGIN CERTIFICATE----- is public",
        "https://host/services/x@y",
        "visits@2026-01-01 came from s3://bucket/in@home/x",
    ],
)
def test_words_that_stay(text: str) -> None:
    """A message keeps what is no secret, or nobody could mend anything."""
    assert redacted(text) == text


@pytest.mark.parametrize("piece", ["a-b.c", "--a", "'a':", "('a',", "://a", "x: ", "key-"])
def test_a_long_text(piece: str) -> None:
    """However long, it takes no longer than its length: a library may quote a file."""
    text = piece * 20_000

    assert redacted(text) == text


def test_secrets_of_urls() -> None:
    """A URL's password and its secret parameters, as they are without the URL's escapes."""
    assert list(secrets_of_url("sc://h/;token=a%2Fbcd;use_ssl=true")) == ["a/bcd"]
    assert list(secrets_of_url("http://me:pa%20ss@host/x?y=1")) == ["pa ss"]
    assert list(secrets_of_url("s3://bucket/key=1/x")) == []
    assert list(secrets_of_url("s3://bucket/day=?/token=1/x")) == []


def test_errors_tell_no_secrets() -> None:
    """Every error of ours is masked when it is made: in its parts, in its text, and behind a pickle."""
    remember_secrets([CANARY])
    error = DeclarationError(f"no {CANARY}", where=f"s3://u:{CANARY}@b", remedy=f"not {CANARY}")
    finding = Problem(code="X", file="/f", cause=f"a {CANARY}", consequence=f"b {CANARY}", remedy=f"c {CANARY}")
    refused = RefusedError(finding)

    for found in (error, pickle.loads(pickle.dumps(error)), refused):
        assert CANARY not in f"{found} {found!r} {found.args} {vars(found)}"
