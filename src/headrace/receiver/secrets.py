"""Fetch the secrets of the endpoints, and fetch them again while the receiver runs.

If the API does not answer, the last secrets stay valid: requests are accepted while it is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from headrace.errors import ApiError, HeadraceError, SecretError
from headrace.receiver.endpoint import Endpoint
from headrace.triggers.secrets import SecretMissing, aget_connection

REFRESH_SECONDS: Final = 30.0
MISSING_SECONDS: Final = 1.0
"""Interval of attempts while an endpoint has no secrets."""

log = structlog.get_logger(__name__)


class SecretRefresher:
    """Keeps the secrets of the endpoints current."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = [endpoint for endpoint in endpoints if endpoint.connection is not None]
        self._reasons: dict[str, str] = {}

    async def run(self) -> None:
        """Fetch the secrets again and again, until cancelled."""
        while self._endpoints:
            await self.refresh()
            complete = all(endpoint.secrets is not None for endpoint in self._endpoints)
            await asyncio.sleep(REFRESH_SECONDS if complete else MISSING_SECONDS)

    async def refresh(self) -> None:
        """Fetch the secrets of all endpoints once."""
        for endpoint in self._endpoints:
            reason = await self._refresh(endpoint)
            if reason is None:
                if self._reasons.pop(endpoint.name, None) is not None:
                    log.info("secret of an endpoint fetched", endpoint=endpoint.name)
            elif reason != self._reasons.get(endpoint.name):
                self._reasons[endpoint.name] = reason
                write = log.error if endpoint.secrets is None else log.warning
                write("secret of an endpoint not fetched", endpoint=endpoint.name, connection=endpoint.connection, reason=reason)

    async def _refresh(self, endpoint: Endpoint) -> str | None:
        """Return why the secrets cannot be fetched, or None."""
        try:
            endpoint.use(await aget_connection(endpoint.connection or ""))
        except (SecretMissing, ValueError) as error:
            endpoint.secrets = None  # the connection was removed, or changed to an invalid one
            return _in_words(error)
        except (SecretError, ApiError) as error:
            return _in_words(error)
        return None


def _in_words(error: Exception) -> str:
    hint = error.hint if isinstance(error, HeadraceError) else None
    return str(error) if hint is None else f"{error} {hint}"
