"""Cancellations that a client library has dropped."""

from __future__ import annotations

import asyncio


def check_cancelled() -> None:
    """Raise `CancelledError` if the running task was cancelled. Call it before a wait without an end.

    `asyncio.wait_for` of Python 3.11 returns the result of a request that arrives in the same step as the cancellation, and drops the
    cancellation. Client libraries send their requests with it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
