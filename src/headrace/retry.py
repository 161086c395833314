"""Make a call until the api answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from headrace.backoff import Backoff
from headrace.errors import ApiError, ApiRefused, ApiUnavailable

T = TypeVar("T")

log = structlog.get_logger(__name__)


FAILED = 500
"""The status with which the api says that a request made it fail; all else that is transient says that it is not available."""


async def retry_until_available(call: Callable[[], Awaitable[T]], what: str, *, most_failures: int | None = None) -> T:
    """Return what `call` returns, trying again with backoff while the api is unavailable.

    A refusal is raised, and so is `ApiUnavailable` where the api has failed `most_failures` times in a row (None: never).
    """
    backoff = Backoff()
    failures = 0
    while True:
        try:
            answer = await call()
        except ApiRefused:
            raise
        except ApiError as trouble:  # also what is no answer of an api: a proxy's page, say
            failures = failures + 1 if trouble.status == FAILED else 0
            if failures == most_failures:
                raise
            wait = backoff.next(trouble.retry_after if isinstance(trouble, ApiUnavailable) else None)
            log.warning("api unavailable, trying again", what=what, error=str(trouble), hint=trouble.hint, retry_in=round(wait, 2))
            await asyncio.sleep(wait)
        else:
            if backoff.tries:
                log.info("api available again", what=what, tries=backoff.tries)
            return answer
