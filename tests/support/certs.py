"""Certificates made at test time: a CA, servers signed by it, and every way to get one wrong."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def issue(
    subject: str,
    issuer: Issued | None = None,
    *,
    names: tuple[str, ...] = (),
    authority: bool = False,
    ends: dt.timedelta = DAY,
) -> Issued:
    """A certificate for ``subject``, signed by ``issuer`` or by itself, that ends ``ends`` from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer.certificate.subject if issuer else _name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * DAY)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer:
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False
        )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False)
    if not authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return Issued(builder.sign((issuer or Issued(None, key)).key, hashes.SHA256()), key)


class Authority:
    """A CA in a folder of its own: ``ca_file`` is what a client is told to trust."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = issue("test root", authority=True)
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(self.root.pem())

    def server(
        self,
        *names: str,
        ends: dt.timedelta = DAY,
        self_signed: bool = False,
        through: Issued | None = None,
    ) -> ssl.SSLContext:
        """A server's context; ``through`` is an intermediate that signs, and is not sent."""
        leaf = issue(names[0], None if self_signed else through or self.root, names=names, ends=ends)
        chain = self.folder / f"{leaf.certificate.serial_number}.pem"
        chain.write_bytes(leaf.key_pem() + leaf.pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return context
