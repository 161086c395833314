"""Deliver one event to one webhook: a signed CloudEvent in structured JSON over HTTP. Addresses that are not public
need permission.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from errno import EACCES
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

import aiohttp

from headrace.core.identity import event_key
from headrace.core.signatures.standard_webhooks import signed_headers
from headrace.wire.cloud_event import cloud_event

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
MAX_RESPONSE_BYTES: Final = 4_096
MAX_RETRY_AFTER_SECONDS: Final = 3_600.0
_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""IANA's global unicast prefix. Other prefixes are local, or map to IPv4 addresses in ways that depend on the host."""
PRIVATE: Final = "its address is not public: HEADRACE_WEBHOOK_ALLOW_PRIVATE=true allows that"


@dataclass(frozen=True, slots=True)
class DeliveryResponse:
    """The response of a webhook: its status, or the reason why there is none, and the seconds of its Retry-After."""

    status: int | None
    error: str | None
    retry_after: float = 0.0

    @property
    def taken(self) -> bool:
        """Return whether the webhook accepted the event."""
        return self.error is None


def public_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket for a connection to a public address. It checks the resolved address, whatever the form of
    the URL.

    Raises:
        OSError: The address is not public.
    """
    family, kind, protocol, _, where = address
    if not is_public(str(where[0])):
        raise OSError(EACCES, PRIVATE)
    return socket.socket(family, kind, protocol)


def is_public(host: str) -> bool:
    """Return whether an address from `getaddrinfo` is public."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return is_public(str(inner))
        return address.is_global and address in _GLOBAL_UNICAST
    return address.is_global and not address.is_multicast


class Sender:
    """Sends events. `private` allows addresses that are not public. Use it as a context manager."""

    def __init__(self, *, private: bool) -> None:
        self._private = private

    async def __aenter__(self) -> Sender:
        connector = aiohttp.TCPConnector(limit=64, socket_factory=None if self._private else public_socket)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, url: str, secret: str, event: Any, mark: str | None, now: int, timeout: float) -> DeliveryResponse:  # noqa: ASYNC109  a value
        """Send one row of the log; return the response."""
        body = cloud_event(event, mark)
        # Two logs may send to one receiver, so a number of the log does not identify the event there.
        id = event_key(event.source, event.id).hex()
        headers = {"Content-Type": CONTENT_TYPE, "User-Agent": "headrace"} | signed_headers(secret, id, now // 1_000_000, body)
        if event.trace:
            headers["traceparent"] = event.trace
        limit = aiohttp.ClientTimeout(total=timeout)
        try:
            async with self._session.post(url, data=body, headers=headers, timeout=limit, allow_redirects=False) as response:
                await response.content.read(MAX_RESPONSE_BYTES)
                if 200 <= response.status < 300:
                    return DeliveryResponse(response.status, None)
                return DeliveryResponse(
                    response.status, f"it answered {response.status}", _retry_after(response.headers.get("Retry-After"), now)
                )
        except TimeoutError:
            return DeliveryResponse(None, f"it did not answer within {timeout:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return DeliveryResponse(None, f"{type(error).__name__}: {error}")


def _retry_after(header: str | None, now: int) -> float:
    """Return the seconds of a Retry-After, as a number or a date; 0 if it is invalid."""
    if header is None:
        return 0.0
    try:
        seconds = float(header) if header.isdigit() else parsedate_to_datetime(header).timestamp() - now / 1_000_000
    except (ValueError, OverflowError):
        return 0.0
    return min(MAX_RETRY_AFTER_SECONDS, max(0.0, seconds))
