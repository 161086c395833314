"""Acquire a scope. Invariant: one driver at a time has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiRefused, ApiUnavailable
from headrace.wire.calls.execution import ACQUIRE_SCOPE
from headrace.wire.pipelines.scope_leases import AcquireScope, ScopeLease

_REPEAT_SECONDS: Final = 30.0


def acquire_scope(
    client: PipelineClient, scope: str, begin: int | None, stop: threading.Event, prepare: Callable[[], None]
) -> ScopeLease | None:
    """Wait until the API grants the scope to this job. Return None if `stop` is set first.

    A new scope begins with `begin`. If the first request is not granted, `prepare` is called once.

    Raises:
        ApiError: The API refuses this process.
    """
    logged = -_REPEAT_SECONDS
    prepared = False
    while not stop.is_set():
        try:
            return client.request(ACQUIRE_SCOPE, AcquireScope(begin=begin), scope=scope)
        except (ApiUnavailable, ApiRefused) as error:
            if isinstance(error, ApiRefused) and error.problem != "held":
                raise
            if time.monotonic() - logged >= _REPEAT_SECONDS:
                structlog.get_logger(__name__).info("waiting for the scope", scope=scope, reason=str(error))
                logged = time.monotonic()
            if not prepared:
                prepare()
                prepared = True
        stop.wait(1.0)
    return None
