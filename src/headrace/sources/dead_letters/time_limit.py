"""The time limit of the calls of a sender."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.errors import StreamError


@asynccontextmanager
async def time_limit(seconds: float, target: str, hint: str) -> AsyncIterator[None]:
    """Cancel the block after this time, and raise `StreamError`. `target` names where the copies go, `hint` says what to do."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise StreamError(f"Copies to {target} are not confirmed after {seconds:g} s.", hint=hint) from None
