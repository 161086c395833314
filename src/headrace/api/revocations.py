"""Which people's tokens were taken back: kept in memory, and read again each second, since another api may have been told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from headrace.api.auth import Tokens
from headrace.errors import ResourceError
from headrace.store import Store

EVERY: Final = 1.0

log = structlog.get_logger(__name__)


@asynccontextmanager
async def following(store: Store, tokens: Tokens) -> AsyncGenerator[None]:
    """Follow what is taken back as long as the body runs; while the database is away, what is known stays."""
    task = asyncio.create_task(_follow(store, tokens))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _follow(store: Store, tokens: Tokens) -> None:
    while True:
        await asyncio.sleep(EVERY)
        try:
            tokens.revoked = await asyncio.to_thread(store.person_tokens.revoked)
        except ResourceError as error:
            log.warning("which tokens were taken back cannot be read", error=str(error), hint=error.hint)
