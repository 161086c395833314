"""Refusing the raw event that a filter is at."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

import structlog

log = structlog.get_logger(__name__)


class Refusable(Protocol):
    """The stream that a filter reads."""

    def refuse(self, reason: str | None) -> bool:
        """Reject the raw event that the filter is at, and say whether it is at one."""
        ...


current_stream: Final[ContextVar[Refusable | None]] = ContextVar("headrace_current_stream", default=None)
"""The stream that the running filter reads. Tasks and threads that the filter starts inherit it."""


def reject_shared_stream_event(reason: str | None = None) -> None:
    """Refuse for good the raw event that the calling filter is at: the broker dead-letters it and does not redeliver.

    Outside a filter, between raw events, or on a stream without acks it logs one warning and changes nothing.
    """
    stream = current_stream.get()
    if stream is None or not stream.refuse(reason):
        log.warning("Nothing to reject: no raw event of a stream with acks is being filtered here", reason=reason)
