"""Probe of a connection to an HTTP service."""

from __future__ import annotations

from typing import Final

import httpx

from headrace.core.connection import Connection
from headrace.errors import StreamError, UpstreamError

PROBE_SECONDS: Final = 10.0
UNAUTHORIZED: Final = (401, 403)


def probe(connection: Connection) -> str:
    """Send a HEAD request to the root of the service, and return its status.

    Raises:
        UpstreamError: The connection has no host, or the service refuses the credentials.
        StreamError: The service does not answer.
    """
    if not connection.host:
        raise UpstreamError(f"Connection '{connection.id}' has no host.", hint=f"Set it like this: {connection.kind}://api.example")
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    url = f"{connection.kind}://{host}" + ("" if connection.port is None else f":{connection.port}")
    auth = None if connection.login is None else httpx.BasicAuth(connection.login, connection.password or "")
    try:
        status = httpx.head(url, auth=auth, timeout=PROBE_SECONDS).status_code
    except httpx.HTTPError as error:
        raise StreamError(
            f"{url} does not answer: {str(error) or type(error).__name__}.", hint="Check the host, the port and the network."
        ) from None
    if status in UNAUTHORIZED:
        raise UpstreamError(f"{url} refuses the credentials: status {status}.", hint="Check the login and the password.")
    return f"{url}: status {status}"
