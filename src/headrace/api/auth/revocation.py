"""Revoked tokens: cached in memory and read again each second, because another API server may have revoked one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from headrace.api.auth.authentication import Tokens
from headrace.store import Store

POLL_INTERVAL_SECONDS: Final = 1.0

WORK: Final = "the list of revoked tokens"


@asynccontextmanager
async def poll_revoked_tokens(store: Store, tokens: Tokens) -> AsyncGenerator[None]:
    """Poll revoked tokens as long as the body runs. While the database is unavailable, the cached ones stay in force."""
    task = asyncio.create_task(_follow(store, tokens))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _follow(store: Store, tokens: Tokens) -> None:
    while True:
        await asyncio.sleep(POLL_INTERVAL_SECONDS)
        try:
            tokens.revoked = await asyncio.to_thread(store.api_tokens.revoked)
        except Exception as error:  # of any kind: without this task, a token revoked at another api would stay valid here
            await asyncio.sleep(store.background.record_failure(WORK, error))
        else:
            store.background.record_success(WORK)
