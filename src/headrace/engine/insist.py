"""Make a call until the api answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from headrace.engine.backoff import Backoff
from headrace.errors import ApiUnavailable

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def insist(call: Callable[[], Awaitable[T]], what: str) -> T:
    """Return what `call` returns, trying again with backoff while the api is unavailable; a refusal is raised."""
    backoff = Backoff()
    while True:
        try:
            answer = await call()
        except ApiUnavailable as trouble:
            wait = backoff.next(trouble.retry_after)
            log.warning("api unavailable, trying again", what=what, error=str(trouble), hint=trouble.hint, retry_in=round(wait, 2))
            await asyncio.sleep(wait)
        else:
            if backoff.tries:
                log.info("api available again", what=what, tries=backoff.tries)
            return answer
