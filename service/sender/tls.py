"""The TLS policy: system trust store plus an optional CA file, names always checked, nothing older than TLS 1.2."""

from __future__ import annotations

import ssl
from pathlib import Path


def build_tls_context(ca_file: str = "", *, system_trust: bool = True) -> ssl.SSLContext:
    """The one context for all receivers; raises ValueError with a clear line when it would trust nobody.

    Environment variables for key logging are not honoured (``ssl.create_default_context`` would).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if system_trust:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if ca_file:
        _load_ca_file(context, ca_file)
    if not context.cert_store_stats()["x509_ca"] and not (system_trust and _has_hashed_certificates()):
        raise ValueError("no trusted certificate authorities: install ca-certificates or set WEBHOOKD_CA_FILE")
    return context


def _load_ca_file(context: ssl.SSLContext, ca_file: str) -> None:
    before = context.cert_store_stats()["x509_ca"]
    try:
        context.load_verify_locations(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"WEBHOOKD_CA_FILE {ca_file}: {error}") from None
    if context.cert_store_stats()["x509_ca"] == before == 0:
        raise ValueError(f"WEBHOOKD_CA_FILE {ca_file}: no certificate authority in it")


def _has_hashed_certificates() -> bool:
    """True when OpenSSL's directory holds certificates, which it reads only when one is wanted."""
    folder = ssl.get_default_verify_paths().capath
    return bool(folder) and any(Path(folder).glob("*.[0-9]"))
