"""Requests that another process sends: the runner has no key, no token and no connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import urlencode

Relay: TypeAlias = Callable[[str, str, bytes | None], Awaitable[bytes]]
"""Send a method, a path and a body; return the body of the response, or raise as `Session.request` does."""


class ProxiedSession:
    """A session whose requests go through `relay`, which adds the caller's credentials."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def aclose(self) -> None:
        """Do nothing: no resource is open here."""

    async def request(
        self, method: str, path: str, *, content: bytes | None, params: Mapping[str, int | float | str] | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return the body of a successful response. Raises as `body_of` does."""
        del headers
        return await self._relay(method, f"{path}?{urlencode(params)}" if params else path, content)
