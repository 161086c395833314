"""Retry requests to the API and to the service of the tables, with one backoff for all of them."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from headrace.errors import ApiError, ApiRefused, ApiUnavailable, TablesUnavailable

T = TypeVar("T")

log = structlog.get_logger(__name__)

_shared_random = random.Random()  # noqa: S311  for jitter; a generator for each request, with a seed of its own, costs more than the request
FAILED = 500
"""The status with which the api says that a request made it fail; all else that is transient says that it is not available."""


@dataclass
class Backoff:
    """Successive waits in seconds: exponential, capped, with jitter. Call `reset` after a success."""

    first: float = 0.1
    max_seconds: float = 5.0
    rng: random.Random = _shared_random
    _tries: int = 0

    def next(self, at_least: float | None = None) -> float:
        """Return the next wait, never shorter than `at_least` (a Retry-After)."""
        ceiling = min(self.max_seconds, self.first * 2.0 ** min(self._tries, 30))
        self._tries += 1
        # half fixed, half random: many clients spread out, and none comes back at once
        wait = ceiling * (0.5 + self.rng.random() / 2)
        return max(wait, at_least or 0.0)

    def reset(self) -> None:
        """Begin again with the first wait."""
        self._tries = 0

    @property
    def tries(self) -> int:
        """How many waits there were since the last success."""
        return self._tries


async def retry_until_available(call: Callable[[], Awaitable[T]], what: str, *, max_failures: int | None = None) -> T:
    """Return the result of `call`, retrying with backoff while the API is unavailable.

    A refusal is raised, and so is `ApiUnavailable` where the api has failed `max_failures` times in a row (None: never).
    """
    backoff = Backoff()
    failures = 0
    while True:
        try:
            answer = await call()
        except ApiRefused:
            raise
        except ApiError as error:  # also an answer that is not from an api, such as the page of a proxy
            failures = failures + 1 if error.status == FAILED else 0
            if failures == max_failures:
                raise
            wait = backoff.next(error.retry_after if isinstance(error, ApiUnavailable) else None)
            log.warning("api unavailable, trying again", what=what, error=str(error), hint=error.hint, retry_in=round(wait, 2))
            await asyncio.sleep(wait)
        else:
            if backoff.tries:
                log.info("api available again", what=what, tries=backoff.tries)
            return answer


def retry_until_stopped(
    call: Callable[[], T], stop: threading.Event, what: str, unavailable: type[ApiUnavailable | TablesUnavailable] = ApiUnavailable
) -> T:
    """Return the result of `call`, retrying with backoff while the API, or the service of the tables, is unavailable.

    Raises:
        ApiUnavailable, TablesUnavailable: `stop` is set and the service is unavailable.
        ApiRefused: The API refuses the request.
    """
    service = "api" if unavailable is ApiUnavailable else "tables"
    backoff = Backoff()
    while True:
        try:
            return call()
        except unavailable as error:
            wait = backoff.next(error.retry_after if isinstance(error, ApiUnavailable) else None)
            log.warning(f"{service} unavailable, trying again", what=what, error=str(error), retry_in=round(wait, 2))
            if stop.wait(wait):
                raise
