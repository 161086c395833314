"""Requests to the admin API: partitions, subscriptions, and what the broker knows of a consumer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import quote, quote_plus, urljoin, urlsplit

from headrace.errors import StreamError, UpstreamError
from headrace.sources.connections.rest_client import Answer, new_session, send
from headrace.sources.connections.tls import client_context
from headrace.sources.pulsar.server_errors import ADMIN_AWAY, TOPIC, rejection
from headrace.sources.pulsar.settings import Settings
from headrace.sources.pulsar.topics import admin_path

ANSWER_SECONDS: Final = 10.0
MAX_REDIRECTS: Final = 5
"""A broker redirects a request to the one that serves the topic."""


class AdminApi:
    """A session with the admin API of one cluster."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._session: Any = None

    async def open(self) -> None:
        """Open the session. Raises `UpstreamError` if a certificate cannot be read."""
        context = client_context(self._settings.tls)
        self._session = await new_session(True if context is None else context, self._stack, answer_seconds=ANSWER_SECONDS)

    async def aclose(self) -> None:
        """Close the session."""
        await self._stack.aclose()

    async def version(self) -> str:
        """Return the version of the broker."""
        what = "The version of Pulsar cannot be read"
        answer = await self._request(what, "GET", "brokers/version")
        if answer.status != 200:
            raise rejection(what, answer.status, answer.body)
        return answer.body.decode(errors="replace").strip()

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, or 0 if it is not partitioned. Raises `UpstreamError` if it does not exist."""
        what = f"Topic {topic} cannot be read"
        answer = await self._request(what, "GET", f"{admin_path(topic)}/partitions")
        if answer.status != 200:
            raise rejection(what, answer.status, answer.body)
        count = int(_fields(what, answer.body).get("partitions", 0))
        if count == 0 and await self.find_stats(topic) is None:  # an older broker says so of a topic that does not exist
            raise UpstreamError(f"{what}: it does not exist.", hint=TOPIC)
        return count

    async def find_stats(self, topic: str) -> Mapping[str, Any] | None:
        """Return the statistics of a topic without partitions, or of a partition, or None if it does not exist."""
        path = f"{admin_path(topic)}/stats?getPreciseBacklog=false&subscriptionBacklogSize=false"
        return await self._find(f"The statistics of topic {topic} cannot be read", path)

    async def find_subscription(self, topic: str, name: str) -> Mapping[str, Any] | None:
        """Return the statistics of a subscription, or None if it does not exist."""
        stats = await self.find_stats(topic) or {}
        subscription = stats.get("subscriptions", {}).get(name)
        return subscription if isinstance(subscription, Mapping) else None

    async def create_subscription(self, topic: str, name: str, position: str) -> None:
        """Create a subscription at the earliest or latest message. One that exists stays as it is."""
        what = f"Subscription {name!r} of topic {topic} cannot be created"
        answer = await self._request(what, "PUT", _subscription_path(topic, name), position)
        if answer.status not in (200, 204, 409):
            raise rejection(what, answer.status, answer.body)

    async def reset_subscription(self, topic: str, name: str, time_ms: int) -> None:
        """Move a subscription without a consumer to the first message that was published at or after a time."""
        what = f"Subscription {name!r} of topic {topic} cannot be moved to its start"
        answer = await self._request(what, "POST", f"{_subscription_path(topic, name)}/resetcursor/{time_ms}")
        if answer.status not in (200, 204):
            raise rejection(what, answer.status, answer.body)

    async def acknowledged(self, topic: str, name: str) -> tuple[int, int] | None:
        """Return ledger and entry up to which a subscription is acknowledged, or None if it does not exist."""
        stats = await self._find(f"The subscriptions of topic {topic} cannot be read", f"{admin_path(topic)}/internalStats")
        cursors = (stats or {}).get("cursors", {})
        cursor = cursors.get(name, cursors.get(quote_plus(name)))
        if cursor is None:
            return None
        ledger, _, entry = str(cursor["markDeletePosition"]).partition(":")
        return int(ledger), int(entry)

    async def _find(self, what: str, path: str) -> dict[str, Any] | None:
        """Return the JSON object at a path, or None if there is none."""
        answer = await self._request(what, "GET", path)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise rejection(what, answer.status, answer.body)
        return _fields(what, answer.body)

    async def _request(self, what: str, method: str, path: str, body: Any = None) -> Answer:
        if self._session is None:
            raise StreamError(f"{what}: the connection is not open.")
        url = f"{self._settings.admin_url}/admin/v2/{path}"
        headers = {} if self._settings.token is None else {"Authorization": f"Bearer {self._settings.token}"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        for _ in range(MAX_REDIRECTS):
            answer = await send(self._session, what, method, url, headers=headers, data=data, hint=ADMIN_AWAY)
            target = answer.headers.get("Location")
            if answer.status not in (302, 307) or target is None:
                return answer
            url = self._redirected(what, urljoin(url, target))
        raise StreamError(f"{what}: the admin API redirects more than {MAX_REDIRECTS} times.", hint=ADMIN_AWAY)

    def _redirected(self, what: str, url: str) -> str:
        """Return the URL. Refuse to send the token of a connection with TLS without TLS."""
        if self._settings.admin_url.startswith("https:") and urlsplit(url).scheme != "https":
            raise UpstreamError(f"{what}: the admin API redirects to an address without TLS.", hint="Set webServicePortTls of the brokers.")
        return url


def _subscription_path(topic: str, name: str) -> str:
    return f"{admin_path(topic)}/subscription/{quote(name, safe='')}"


def _fields(what: str, body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise UpstreamError(f"{what}: the answer is not of the admin API of Pulsar.", hint=ADMIN_AWAY)
    return fields
