"""What a triggerer asks of the api."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.control.triggers import (
    DeclareProject,
    FailureRecorded,
    ProjectDeclared,
    StreamFailure,
    StreamFailureRecorded,
    TriggerFailure,
    TriggerName,
    TriggersLoaded,
)
from headrace.wire.custody.backlog import BacklogPage, SettleBacklog
from headrace.wire.custody.events import BatchStored, EventBatch
from headrace.wire.custody.receipts import LaneMarks, StreamBooks, SubscriberSetDefined, SubscriberSetDefinition


class WorkloadPage(NamedTuple):
    """Workloads: the triggers that they are for, and the api's answer (`Workloads` as JSON), which the supervisor passes on unread."""

    triggers: list[TriggerName]
    content: bytes


class TriggererApi(Protocol):
    """The machine API as a triggerer sees it.

    Every call is idempotent. Raises `ApiUnavailable` when it may be tried again, `ApiRefused` (or `Fenced`) when it may not.
    """

    async def register(self, job: RegisterJob) -> JobRegistered:
        """Register this process; the same registration id answers with the same job."""
        ...

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Say that the job lives; learn what is wanted of it."""
        ...

    async def complete(self, end: CompleteJob) -> None:
        """End the job; the first end wins."""
        ...

    async def stage(self, page: bytes) -> None:
        """Send one page of the triggers of a declaration: `StageTriggers` as JSON. The `declare` that names the declaration follows."""
        ...

    async def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        """Declare the whole of a project; triggers no longer named are removed."""
        ...

    async def load(self, capacity: int, queues: list[str], since: str | None = None) -> TriggersLoaded:
        """Claim up to `capacity` triggers; answer with every lease now held, or with what changed since a revision."""
        ...

    async def workloads(self, trigger_ids: list[int]) -> WorkloadPage:
        """Return what is needed to run those of the triggers that this job holds."""
        ...

    async def store(self, batch: EventBatch) -> BatchStored:
        """Store events, dead letters, spills and receipts in one durable commit; a stretch that is recorded is left as it is."""
        ...

    async def backlog(self, trigger_id: int, after: int, limit: int) -> BacklogPage:
        """Return what is kept for a trigger with number > `after`, at most `limit`, the oldest first.

        An empty page is the end: numbers only rise, so whatever is kept later has a higher number than any page ever had.
        """
        ...

    async def settle(self, trigger_id: int, settled: SettleBacklog) -> None:
        """Record how kept raw events were answered; they go. What they led to must be durable before; an unknown number changes nothing."""
        ...

    async def define_subscriber_set(self, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
        """Define a set of triggers that receipts may name by its digest; not defined: its base is not known (any more)."""
        ...

    async def books(self, stream: str) -> StreamBooks:
        """Return which event log this is, and how many receipts of the stream it has."""
        ...

    async def marks(self, stream: str, lanes: list[str]) -> LaneMarks:
        """Return how far the custody of these lanes of a stream is recorded; a lane that is not named has none."""
        ...

    async def failure(self, trigger_id: int, failure: TriggerFailure) -> FailureRecorded:
        """Record why a trigger failed; return whether and when it starts again."""
        ...

    async def stream_failure(self, failed: StreamFailure) -> StreamFailureRecorded:
        """Record why the watches of a stream failed with it; learn when to open it again."""
        ...

    async def cleanup(self, trigger_ids: list[int], epochs: dict[int, int] | None = None) -> None:
        """Give up the leases on triggers that this job no longer runs, but none that is newer than its epoch here."""
        ...

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        """Send what the runner wrote, as this job; return the body of the answer."""
        ...
