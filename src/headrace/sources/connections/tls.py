"""TLS of clients that take a context: the certificates that a connection names."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from headrace.core.connection import Connection
from headrace.errors import UpstreamError

TLS_FILES: Final = ("cafile", "certfile", "keyfile")
"""The settings in the extra of a connection: files in the PEM format."""


def tls_files(connection: Connection, tls_kind: str) -> Mapping[str, str] | None:
    """Return the files that a connection names, or None if it is not of the kind with TLS. Raises `UpstreamError` if it names some then."""
    files = {name: str(connection.extra[name]) for name in TLS_FILES if name in connection.extra}
    if connection.kind == tls_kind:
        return files
    if files:
        raise UpstreamError(f"Connection '{connection.id}' names certificates, but is without TLS.", hint=f"Use the kind {tls_kind}.")
    return None


def client_context(files: Mapping[str, str] | None) -> ssl.SSLContext | None:
    """Return a context with these files, or None for None: without TLS.

    It verifies the certificate and the host name of the server. Without `cafile`, it trusts the authorities of the machine.

    Raises:
        UpstreamError: A file cannot be read.
    """
    if files is None:
        return None
    try:
        context = ssl.create_default_context(cafile=files.get("cafile"))
        if "certfile" in files:
            context.load_cert_chain(files["certfile"], files.get("keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise UpstreamError(
            f"The certificates of the connection cannot be read: {error}.", hint="Check cafile, certfile, keyfile."
        ) from None
    return context


def authority_context(connection: Connection, ca_bundle: str) -> ssl.SSLContext:
    """Return a context that trusts only the certificate authorities of a file.

    Raises:
        UpstreamError: The file cannot be read, or has no certificate.
    """
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        reason = f"The connection '{connection.id}' cannot be used: ca_bundle {ca_bundle}: {error}."
        raise UpstreamError(reason, hint="Give a file with certificates in PEM.") from error
