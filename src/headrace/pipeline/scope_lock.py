"""One process at a time runs a scope: by the API's lease everywhere, and by a lock on the checkpoint's folder."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiRefused, ApiUnavailable, ResourceError
from headrace.pipeline.options import PipelineOptions
from headrace.wire.scope_leases import ScopeLease

PATIENCE: Final = 30.0
"""Seconds to wait for a predecessor to end: one that was just told to stop still finishes its batch."""

_REPEAT_SECONDS: Final = 30.0


def acquire_scope(client: PipelineClient, scope: str, stop: threading.Event) -> ScopeLease | None:
    """Wait until the API grants the scope to this job; None: `stop` was set first.

    Raises:
        ApiError: The API refuses this process.
    """
    logged = -_REPEAT_SECONDS
    while not stop.is_set():
        try:
            return client.acquire(scope)
        except (ApiUnavailable, ApiRefused) as error:
            if isinstance(error, ApiRefused) and error.problem != "held":
                raise
            if time.monotonic() - logged >= _REPEAT_SECONDS:
                structlog.get_logger(__name__).info("waiting for the scope", scope=scope, reason=str(error))
                logged = time.monotonic()
        stop.wait(1.0)
    return None


@contextmanager
def scope_lock(options: PipelineOptions, stop: threading.Event) -> Iterator[None]:
    """Hold the scope, waiting a while for a process that is about to let it go; the kernel frees it when its holder dies.

    Raises:
        ResourceError: Another process runs the scope.
    """
    options.state.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + PATIENCE
    with (options.state / "lock").open("w") as lock:
        while not _taken(lock.fileno()):
            if stop.is_set() or time.monotonic() > deadline:
                raise ResourceError(
                    f"Another process runs the scope {options.scope!r} from {options.home}.", hint="Stop it, or choose another --home."
                )
            structlog.get_logger(__name__).info("waiting for another process of this scope to end", scope=options.scope)
            stop.wait(1.0)  # a wait for the lock itself could not be interrupted by `stop`
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
