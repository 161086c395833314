"""Follow the status of the API server by server-sent events, also through restarts of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import structlog
from pydantic import ValidationError

from headrace.wire.calls.admin import FOLLOW_STATUS
from headrace.wire.status.status import Status

_RECONNECT_SECONDS = 0.25
_READ_TIMEOUT_SECONDS = 15.0  # after which the connection is opened again

log = structlog.get_logger(__name__)


async def statuses(url: str) -> AsyncIterator[Status]:
    """Yield a status after each change, without end. Yield nothing while the API server is down."""
    timeout = httpx.Timeout(_READ_TIMEOUT_SECONDS, connect=5.0)
    async with httpx.AsyncClient(base_url=url, timeout=timeout) as client:
        while True:
            try:
                async with client.stream(FOLLOW_STATUS.method, FOLLOW_STATUS.path) as response:
                    async for line in response.aiter_lines():
                        if line.startswith("data:"):
                            yield Status.model_validate_json(line.removeprefix("data:"))
            except (httpx.TransportError, ValidationError) as error:
                log.debug("status unavailable", error=str(error))
            await asyncio.sleep(_RECONNECT_SECONDS)
