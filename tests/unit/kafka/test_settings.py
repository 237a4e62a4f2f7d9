"""The settings of two clients, from one declaration."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice import sinks, sources
from sluice.errors import DeclarationError
from sluice.kafka.settings import for_planner, for_spark, secrets_of
from sluice.redaction import redacted
from sluice.surroundings import Surroundings

AROUND, PROJECT = Surroundings("/"), Surroundings("/p")

JAAS = 'org.apache.kafka.common.security.{}LoginModule required username="{}" password="{}";'


def told(**settings: str) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return {name: value for name, value in for_planner("h:1", named, "here").items() if name != "bootstrap.servers"}


def test_spark_gets_them_as_they_are() -> None:
    """With the prefix that Spark wants."""
    found = for_spark("h:1,i:2", {"security.protocol": "SSL", "fetch.max.bytes": "5"})

    assert found == {
        "kafka.bootstrap.servers": "h:1,i:2", "kafka.security.protocol": "SSL", "kafka.fetch.max.bytes": "5",
    }  # fmt: skip


def test_the_planner_gets_what_leads_to_the_cluster() -> None:
    """How to fetch is no concern of it, and its client would warn."""
    assert told(client__id="shop", fetch__max__bytes="5", isolation__level="read_committed") == {"client.id": "shop"}


MODULES = {"PLAIN": "plain.Plain", "SCRAM-SHA-512": "scram.Scram"}
USERS = [("me", "x y;=", "me", "x y;="), (r"a\"b", r"c\\d", 'a"b', r"c\d")]
"""As Java's client wants a user and a password, and what they are."""


@pytest.mark.parametrize("mechanism", MODULES)
@pytest.mark.parametrize(("user", "password", "user_is", "password_is"), USERS)
def test_a_user(mechanism: str, user: str, password: str, user_is: str, password_is: str) -> None:
    """Out of what Java's client logs in with; signs may be escaped in there."""
    jaas = JAAS.format(MODULES[mechanism], user, password)
    found = told(security__protocol="SASL_SSL", sasl__mechanism=mechanism, sasl__jaas__config=jaas)

    assert (found["sasl.mechanism"], found["sasl.username"], found["sasl.password"]) == (
        mechanism, user_is, password_is,
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", MODULES)
@pytest.mark.parametrize(("user", "password", "user_is", "password_is"), USERS)
def test_a_user_for_java(mechanism: str, user: str, password: str, user_is: str, password_is: str) -> None:
    """And the other way round; whoever declares a user need not know of a text with signs of its own."""
    settings = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "sasl.username": user_is, "sasl.password": password_is,
    }  # fmt: skip

    found = for_spark("h:1", settings)

    assert found == {
        "kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": JAAS.format(MODULES[mechanism], user, password),
    }  # fmt: skip
    assert for_planner("h:1", settings, "here")["sasl.password"] == password_is


def test_the_mechanism_is_the_same_for_both() -> None:
    """Java's own default is Kerberos."""
    settings = {"security.protocol": "SASL_SSL", "sasl.jaas.config": JAAS.format("plain.Plain", "me", "x")}

    assert for_planner("h:1", settings, "here")["sasl.mechanism"] == "PLAIN"
    assert for_spark("h:1", settings)["kafka.sasl.mechanism"] == "PLAIN"


def test_a_module_of_another_mechanism() -> None:
    """The planner would be let in, and Spark would not."""
    jaas = JAAS.format("plain.Plain", "me", "x")

    with pytest.raises(DeclarationError, match=r"PlainLoginModule, and `sasl\.mechanism` is SCRAM-SHA-256"):
        told(security__protocol="SASL_SSL", sasl__mechanism="SCRAM-SHA-256", sasl__jaas__config=jaas)


@pytest.mark.parametrize(("name", "value"), [("KAFKA_PASSWORD", ""), ("KAFKA_MECHANISM", "GSSAPI")])
def test_what_only_the_environment_tells(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """It is looked at as soon as it is known, and is not told."""
    for known, of in {"KAFKA_PASSWORD": "canary-77", "KAFKA_MECHANISM": "PLAIN", name: value}.items():
        monkeypatch.setenv(known, of)
    source = sources.kafka(
        "h:1",
        topics=["t"],
        settings={
            "security.protocol": "SASL_SSL", "sasl.mechanism": "${KAFKA_MECHANISM}",
            "sasl.username": "me", "sasl.password": "${KAFKA_PASSWORD}",
        },
    )  # fmt: skip

    with pytest.raises(DeclarationError, match=r"missing or empty|`sasl\.mechanism` is another one"):
        source.resolved(AROUND)


def test_certificates() -> None:
    """As files, and as texts."""
    pem = {"ssl__truststore__type": "PEM", "ssl__keystore__type": "PEM"}
    files = told(**pem, ssl__truststore__location="/ca.pem", ssl__keystore__location="/me.pem", ssl__key__password="x")
    texts = told(
        **pem, ssl__truststore__certificates="CA", ssl__keystore__certificate__chain="ME", ssl__keystore__key="KEY"
    )

    assert files == {
        "ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem",
        "ssl.key.password": "x",
    }  # fmt: skip
    assert texts == {"ssl.ca.pem": "CA", "ssl.certificate.pem": "ME", "ssl.key.pem": "KEY"}
    assert told(ssl__endpoint__identification__algorithm="") == {"ssl.endpoint.identification.algorithm": "none"}


def test_stores_that_only_java_reads_are_refused() -> None:
    """The planner could not reach the cluster."""
    with pytest.raises(DeclarationError, match=r'"ssl\.truststore\.type": "PEM"'):
        told(ssl__truststore__location="/ca.jks")


@pytest.mark.parametrize("jaas", ["", "x", JAAS.format("oauthbearer.OAuthBearer", "a", "b"), JAAS[:60] + ";"])
def test_a_login_that_names_nobody(jaas: str) -> None:
    with pytest.raises(DeclarationError, match="names no user and password"):
        told(security__protocol="SASL_PLAINTEXT", sasl__jaas__config=jaas)


def test_nothing_tells_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the declaration, nor a message, wherever the password came from."""
    monkeypatch.setenv("KAFKA_PASSWORD", "canary-5f0c")
    jaas = JAAS.format("plain.Plain", "me", "${KAFKA_PASSWORD}")
    source = sources.kafka(
        "h:1", topics=["t"], settings={"security.protocol": "SASL_SSL", "sasl.jaas.config": jaas}
    ).resolved(AROUND)

    assert for_planner(source.servers, source.settings, "here")["sasl.password"] == "canary-5f0c"
    assert "canary" not in repr(source) + source.location + str(source.reading)
    assert "canary" not in redacted("login of me with canary-5f0c failed")


def test_nothing_tells_the_password_as_java_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With signs before others, of which the password itself has none."""
    monkeypatch.setenv("KAFKA_PASSWORD", 'canary"5f0c')
    settings = {"security.protocol": "SASL_SSL", "sasl.username": "me", "sasl.password": "${KAFKA_PASSWORD}"}
    source = sources.kafka("h:1", topics=["t"], settings=settings).resolved(AROUND)

    told = for_spark(source.servers, source.settings)["kafka.sasl.jaas.config"]

    assert 'password="canary\\"5f0c"' in told
    assert "canary" not in redacted(f"login with {told}") + redacted('x canary\\"5f0c y') + repr(source)


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(DeclarationError, match="KAFKA_NOWHERE is not set"):
        sources.kafka("${KAFKA_NOWHERE}:9092", topics=["t"]).resolved(AROUND)


@pytest.mark.parametrize(
    ("jaas", "said"),
    [
        (JAAS[:-1] + ' x-username="other";', "names no user and password"),
        (JAAS.replace("username", '/* username="old" */ username'), "names no user and password"),
        (JAAS[:-1] + ' username="other";', "names no user and password"),
        (JAAS.replace('"{}";', '"a\\nb";'), "names no user and password"),
    ],
)
def test_a_login_that_two_clients_read_otherwise(jaas: str, said: str) -> None:
    """What stands between the options, twice, or escaped in a way of its own, may be another user to one of them."""
    with pytest.raises(DeclarationError, match=said):
        told(security__protocol="SASL_SSL", sasl__jaas__config=jaas.format("plain.Plain", "me", "x"))


def test_a_login_of_many_signs() -> None:
    """It is looked at in no time, whatever it is."""
    for text in ('x="' + "\\" * 4000, "a" * 40_000, '="' * 9000):
        with pytest.raises(DeclarationError, match="names no user and password"):
            told(security__protocol="SASL_SSL", sasl__jaas__config=text)
        assert secrets_of({"sasl.jaas.config": text}) == [text]


PEM = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
KEY, CHAIN = "ssl.keystore.key", "ssl.keystore.certificate.chain"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({**PEM, "ssl.truststore.password": "x"}, r"`ssl\.truststore\.password` is given, and a PEM has none"),
        ({**PEM, KEY: "-----BEGIN EC PRIVATE KEY-----", CHAIN: "C"}, "is not written as PKCS 8"),
        ({**PEM, KEY: "-----BEGIN PRIVATE KEY-----", CHAIN: "C", "ssl.key.password": "x"}, "is not encrypted"),
        ({**PEM, KEY: "-----BEGIN PRIVATE KEY-----"}, "is given alone"),
        ({**PEM, "ssl.truststore.location": "/ca", "ssl.truststore.certificates": "C"}, "and .* are given"),
        ({"ssl.truststore.type": "pem", "ssl.truststore.location": "/ca"}, r"`ssl\.truststore\.type` is pem"),
        ({"ssl.endpoint.identification.algorithm": "none"}, "is another one"),
    ],
)
def test_what_java_does_not_take(settings: dict[str, str], said: str) -> None:
    """Of what the planner's client would: told before anything is planned."""
    with pytest.raises(DeclarationError, match=said):
        sources.kafka("h:1", topics=["t"], settings={"security.protocol": "SSL", **settings}).resolved(AROUND)


def test_a_protocol_that_only_the_environment_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without users, the declared one would be left out in silence."""
    monkeypatch.setenv("P", "PLAINTEXT")
    user = {"sasl.username": "me", "sasl.password": "x"}
    with pytest.raises(DeclarationError, match="which has no users"):
        sources.kafka("h:1", topics=["t"], settings={"security.protocol": "${P}", **user}).resolved(AROUND)


@pytest.mark.parametrize("password", ["secret\n", "a\rb", "a\tb", "a\0b"])
@pytest.mark.parametrize("is_written", [False, True], ids=["by its own name", "as Java wants it"])
def test_a_password_with_control_characters(
    monkeypatch: pytest.MonkeyPatch, password: str, *, is_written: bool
) -> None:
    """Java's client ends at the line's, in a batch, and the planner's at a NUL: it is told before, and not shown."""
    if "\0" in password:
        given = password
    else:
        given = "${PASSWORD}"
        monkeypatch.setenv("PASSWORD", password)
    jaas = {"sasl.jaas.config": JAAS.format("plain.Plain", "me", given)}
    login = jaas if is_written else {"sasl.username": "me", "sasl.password": given}
    with pytest.raises(DeclarationError, match="has a line break or another control character") as told:
        sources.kafka("h:1", topics=["t"], settings={"security.protocol": "SASL_SSL", **login}).resolved(AROUND)
    assert password not in str(told.value)


def test_files_are_below_the_project(tmp_path: Path) -> None:
    """For both clients, whatever folder their process was started in; a relative one may not leave the project."""
    settings = {"security.protocol": "SSL", **PEM, "ssl.truststore.location": "keys/ca.pem"}
    own = {"ssl.keystore.location": "/etc/me.pem"}
    for declared in (
        sources.kafka("h:1", topics=["t"], settings=settings | own),
        sinks.kafka("h:1", topic="t", settings=settings | own),
    ):
        found = declared.resolved(Surroundings(str(tmp_path))).settings
        expected = (f"{tmp_path}/keys/ca.pem", "/etc/me.pem")
        assert (found["ssl.truststore.location"], found["ssl.keystore.location"]) == expected
        of_planner = for_planner("h:1", found, "here")
        assert (of_planner["ssl.ca.location"], of_planner["ssl.certificate.location"]) == expected
    with pytest.raises(DeclarationError, match="leaves the project"):
        sources.kafka("h:1", topics=["t"], settings=settings | {"ssl.truststore.location": "../ca"}).resolved(PROJECT)
