"""A broker that lets in who has a password or a certificate, beside the tests' own way in."""

from __future__ import annotations

from pathlib import Path

from demo.kafka.broker import Broker, Doors
from tests.kafka.certificates import Authority

USER = "alice"
PASSWORD = 'canary-"7c\\e1'
"""As odd as passwords are: with signs that Java's client takes for others unless they are escaped."""
PLAIN_PASSWORD = "canary-plain-3f9a"
KEY_PASSWORD = "canary-key-88d2"


class SecuredBroker(Broker):
    """One with a door for passwords (`SASL_SSL`), and one for certificates (`SSL`).

    Args:
        folder: A folder of its own.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority(folder, "authority")
        self.ca_file = authority.file
        self.other_ca_file = Authority(folder, "unknown").file
        self.client_file = authority.signed("client")
        self.locked_client_file = authority.signed("locked-client", password=KEY_PASSWORD)
        server = authority.signed("server", hosts=("localhost",))
        store = f"ssl.keystore.type=PEM\nssl.keystore.location={server}\n"
        store += f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
        login = "org.apache.kafka.common.security"
        plain = f'{login}.plain.PlainLoginModule required user_{USER}="{PLAIN_PASSWORD}";'
        passwords = store + "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n"
        passwords += f"listener.name.passwords.plain.sasl.jaas.config={plain}\n"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            passwords += (
                f"listener.name.passwords.{mechanism}.sasl.jaas.config={login}.scram.ScramLoginModule required;\n"
            )
        super().__init__(
            folder,
            Doors(
                {"PASSWORDS": "SASL_SSL", "CERTIFICATES": "SSL"},
                passwords + "listener.name.certificates.ssl.client.auth=required\n",
                tuple(
                    f"{mechanism}=[name={USER},iterations=4096,password={PASSWORD}]"
                    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                ),
            ),
        )
