"""The calls of a worker to the execution API."""

from __future__ import annotations

from typing import Protocol

from headrace.wire.calls.call import NO_QUERY, B, Call, Query, R
from headrace.wire.control.jobs import CompleteJob, HeartbeatAnswer, JobRegistered, RegisterJob


class WorkerApi(Protocol):
    """The execution API as a worker sees it; thread-safe.

    Every call can be repeated. Raises `ApiUnavailable` if it may be tried again, `ApiRefused` (or `Fenced`) if it may not.
    """

    def request(self, call: Call[B, R], body: B, *, query: Query = NO_QUERY, **parameters: int | str) -> R:
        """Send a call as the registered job; return its response. `parameters`: those of the path."""
        ...

    def register(self, job: RegisterJob) -> JobRegistered:
        """Register this process; the same registration id answers with the same job."""
        ...

    def heartbeat(self) -> HeartbeatAnswer:
        """Report that the job is alive, and renew its token in time."""
        ...

    def complete(self, end: CompleteJob) -> None:
        """End the job; the first end counts."""
        ...
