"""The calls of a triggerer to the execution API."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.wire.calls.call import NO_QUERY, B, Call, Query, R
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.control.triggers import DeclareProject, ProjectDeclared, TriggerName
from headrace.wire.custody.events import BatchStored, EventBatch


class WorkloadPage(NamedTuple):
    """The triggers of a page of workloads, and the response (`Workloads` as JSON), which the supervisor forwards unparsed."""

    triggers: list[TriggerName]
    content: bytes


class TriggererApi(Protocol):
    """The execution API as a triggerer sees it.

    Every call is idempotent. Raises `ApiUnavailable` if a retry may succeed, `ApiRefused` (or `Fenced`) if not.
    """

    async def request(self, call: Call[B, R], body: B, *, query: Query = NO_QUERY, **parameters: int | str) -> R:
        """Send a call as the registered job; return its response. `parameters`: those of the path."""
        ...

    async def register(self, job: RegisterJob) -> JobRegistered:
        """Register this process; the same registration id returns the same job."""
        ...

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Report that the job is alive; return its desired state."""
        ...

    async def complete(self, end: CompleteJob) -> None:
        """End the job; the first end counts."""
        ...

    async def stage(self, page: bytes) -> None:
        """Send one page of the triggers of a declaration: `StageTriggers` as JSON. The `declare` that names the declaration follows."""
        ...

    async def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        """Declare a whole project. Triggers that it does not name are removed."""
        ...

    async def workloads(self, trigger_ids: list[int]) -> WorkloadPage:
        """Return the workloads of the triggers that this job holds."""
        ...

    async def store(self, batch: EventBatch) -> BatchStored:
        """Store events, dead letters, spills and receipts in one durable commit. A recorded range is left unchanged."""
        ...

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        """Forward a request of the runner as this job; return the body of the response."""
        ...
