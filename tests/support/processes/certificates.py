"""Authorities and certificates for servers and clients of tests, as PEM files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)


class Authority:
    """An authority with a key of its own. `certificate` is the file of its certificate."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _subject(f"test authority {name}")
        self.certificate = folder / f"{name}.pem"
        usage = {name: name in ("key_cert_sign", "crl_sign") for name in USAGES}
        built = (
            _builder(self._subject, self._subject, self._key.public_key(), DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, address: str | None = "127.0.0.1", expired: bool = False, password: str | None = None) -> Path:
        """Write a certificate NAME.pem for an IP address or host name, and its key NAME.key, and return the certificate's file.

        NAME.chain has both, with a key that has no password, as Kafka reads them.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name), self._subject, key.public_key(), -HOUR if expired else DAY).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        if address is not None:
            names = [x509.IPAddress(ip_address(address)) if address[0].isdigit() else x509.DNSName(address)]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        encryption = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password.encode())
        (self._folder / f"{name}.pem").write_bytes(certificate)
        (self._folder / f"{name}.key").write_bytes(_private_text(key, encryption))
        (self._folder / f"{name}.chain").write_bytes(_private_text(key, serialization.NoEncryption()) + certificate)
        return self._folder / f"{name}.pem"


USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, ends_in: timedelta) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + ends_in)
    )


def _private_text(key: ec.EllipticCurvePrivateKey, encryption: Any) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
