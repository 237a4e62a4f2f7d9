"""Certificates for tests: an authority that nobody else trusts, and what it has signed, as PEM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


class Authority:
    """What signs certificates; its own lies in a file.

    Args:
        folder: Where its files are written.
        name: What it is called.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        may_sign = x509.BasicConstraints(ca=True, path_length=None)
        made = self._about(name, self._key.public_key()).add_extension(may_sign, critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def signed(self, name: str, *, hosts: tuple[str, ...] = (), password: str | None = None) -> Path:
        """A file with a key and its certificate.

        Args:
            name: Whose it is.
            hosts: What a server of it may be called.
            password: What the key is encrypted with.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts or (name,)
        ]
        made = self._about(name, key.public_key()).add_extension(x509.SubjectAlternativeName(names), critical=False)
        how = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        file = self._folder / f"{name}.pem"
        file.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
            + made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        )
        return file

    def _about(self, name: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
