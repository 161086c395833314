"""What the management API says of queues: limits by which a server drops messages that were not read or not acknowledged."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import structlog

from headrace.errors import UpstreamError
from headrace.sources.connections.tls import client_context
from headrace.sources.rabbitmq.server_errors import STREAM_HINT
from headrace.sources.rabbitmq.settings import Address

REQUEST_SECONDS: Final = 5.0
DEFAULT_DELIVERY_LIMIT: Final = 20
"""Of quorum queues from RabbitMQ 4.0 on."""
RECOMMENDED_DELIVERY_LIMIT: Final = 1_000
UNLIMITED: Final = -1
OK: Final = 200

log = structlog.get_logger(__name__)


async def check_queues(address: Address, queues: Sequence[str], version: str) -> None:
    """Log a warning for each limit of a queue by which messages can be lost. Without a management API, do nothing.

    Raises:
        UpstreamError: A queue is a stream.
    """
    if address.management is None:
        return
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    credentials = b64encode(f"{address.login}:{address.password}".encode()).decode()
    verified: ssl.SSLContext | bool = client_context(address.tls) or True
    async with aiohttp.ClientSession(headers={"Authorization": f"Basic {credentials}"}, timeout=timeout) as session:
        for queue in queues:
            url = f"{address.management}/api/queues/{quote(address.vhost, safe='')}/{quote(queue, safe='')}"
            try:
                async with session.get(url, ssl=verified) as response:
                    details = await response.json() if response.status == OK else None
                    status = response.status
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.warning("limits of a queue not read", queue=queue, reason=str(error) or type(error).__name__)
                continue
            if not isinstance(details, dict):
                log.warning("limits of a queue not read", queue=queue, reason=f"status {status}")
                continue
            for warning in warnings_of(queue, details, version):
                log.warning(warning, queue=queue)


def warnings_of(queue: str, details: Mapping[str, Any], version: str) -> list[str]:
    """Return the limits of a queue, as the management API describes it, by which messages can be lost.

    Raises:
        UpstreamError: The queue is a stream.
    """
    if details.get("type") == "stream":
        raise UpstreamError(f"Queue {queue!r} is a stream.", hint=STREAM_HINT)
    warnings: list[str] = []
    limit = _delivery_limit(details, version)
    if limit is not None and limit < RECOMMENDED_DELIVERY_LIMIT:
        what = "dead-lettered" if _setting(details, "dead-letter-exchange") is not None else "dropped"
        warnings.append(f"messages {what} after {limit} deliveries: set x-delivery-limit to {UNLIMITED} or to {RECOMMENDED_DELIVERY_LIMIT}")
    if _setting(details, "message-ttl") is not None:
        warnings.append("messages dropped when they expire: the queue has a message TTL")
    overflow = _setting(details, "overflow") or "drop-head"
    if overflow == "drop-head" and (_setting(details, "max-length") or _setting(details, "max-length-bytes")) is not None:
        warnings.append("oldest messages dropped when the queue is full: set overflow to reject-publish")
    return warnings


def _delivery_limit(details: Mapping[str, Any], version: str) -> int | None:
    """Return the delivery limit of a quorum queue, or None without one."""
    if details.get("type") != "quorum":
        return None
    limit = _setting(details, "delivery-limit")
    if limit is None:
        major = version.partition(".")[0]
        limit = DEFAULT_DELIVERY_LIMIT if major.isdecimal() and int(major) >= 4 else UNLIMITED
    return None if not isinstance(limit, int) or limit < 0 else limit


def _setting(details: Mapping[str, Any], name: str) -> Any:
    """Return an argument of the queue, or else of its policies, or None."""
    for settings, key in ((details.get("arguments"), f"x-{name}"), (details.get("effective_policy_definition"), name)):
        if isinstance(settings, Mapping) and settings.get(key) is not None:
            return settings[key]
    return None
