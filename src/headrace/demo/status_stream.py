"""The api's status as it changes, told by the api itself (server-sent events), through restarts of the api."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import structlog
from pydantic import ValidationError

from headrace.wire.status.status import Status

_AGAIN = 0.25  # seconds between attempts to reach an api that is down
_SILENCE = 15.0  # seconds without a word after which the connection is made again

log = structlog.get_logger(__name__)


async def statuses(url: str) -> AsyncIterator[Status]:
    """Yield a status whenever something changed, without end; while the api is down nothing comes."""
    timeout = httpx.Timeout(_SILENCE, connect=5.0)
    async with httpx.AsyncClient(base_url=url, timeout=timeout) as client:
        while True:
            try:
                async with client.stream("GET", "/api/v1/stream") as response:
                    async for line in response.aiter_lines():
                        if line.startswith("data:"):
                            yield Status.model_validate_json(line.removeprefix("data:"))
            except (httpx.TransportError, ValidationError) as error:
                log.debug("status unavailable", error=str(error))
            await asyncio.sleep(_AGAIN)
