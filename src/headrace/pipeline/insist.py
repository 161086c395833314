"""Repeat a request of the driver until the API answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import structlog

from headrace.backoff import Backoff
from headrace.errors import ApiUnavailable

T = TypeVar("T")


def insist(call: Callable[[], T], stop: threading.Event, what: str) -> T:
    """Return what `call` returns, repeating it while the API is away.

    Raises:
        ApiUnavailable: `stop` is set and the API is away.
        ApiRefused: The API refuses the request.
    """
    backoff = Backoff()
    while True:
        try:
            return call()
        except ApiUnavailable as error:
            wait = backoff.next(error.retry_after)
            structlog.get_logger(__name__).warning("api unavailable", what=what, error=str(error), retry_in=round(wait, 2))
            if stop.wait(wait):
                raise
