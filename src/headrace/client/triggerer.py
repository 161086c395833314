"""The machine API as a triggerer calls it, without blocking."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

from headrace.client.declaring import declaration_requests
from headrace.client.http.bodies import as_body, bounded
from headrace.client.http.responses import TIMEOUT_SECONDS, bearer, translate_decode_errors
from headrace.client.http.session import Requests, Session
from headrace.errors import ApiRefused
from headrace.ports.triggerer_api import WorkloadPage
from headrace.wire.base import WireModel
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.control.triggers import (
    CleanupTriggers,
    DeclareProject,
    FailureRecorded,
    FetchWorkloads,
    LoadTriggers,
    ProjectDeclared,
    StageTriggers,
    StreamFailure,
    StreamFailureRecorded,
    TriggerFailure,
    TriggersLoaded,
    WorkloadNames,
)
from headrace.wire.custody.backlog import BacklogPage, SettleBacklog
from headrace.wire.custody.events import BatchStored, EventBatch
from headrace.wire.custody.receipts import LaneMarks, LookUpBooks, LookUpMarks, StreamBooks, SubscriberSetDefined, SubscriberSetDefinition

M = TypeVar("M", bound=WireModel)
JSON = {"Content-Type": "application/json"}


class TriggererClient:
    """Implements `TriggererApi` over HTTP. Register first: the token of the job opens everything else.

    `session`: what carries the requests, if not connections of its own.
    """

    def __init__(self, url: str, *, key: str, timeout: float = TIMEOUT_SECONDS, session: Requests | None = None) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._session: Requests = session or Session(self._url, timeout=timeout)
        self._job: JobRegistered | None = None
        self._registration: RegisterJob | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.aclose()

    async def register(self, job: RegisterJob) -> JobRegistered:
        """Register this process; the same registration id answers with the same job."""
        self._job = await self._ask("POST", "/execution/jobs", job, JobRegistered, token=self._key)
        self._registration = job
        return self._job

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Say that the job lives; learn what is wanted of it."""
        answer = await self._ask("POST", f"/execution/jobs/{self._registered.job_id}/heartbeat", beat, HeartbeatAnswer)
        if answer.token is not None:
            self._job = self._registered.model_copy(update={"token": answer.token})
        return answer

    async def complete(self, end: CompleteJob) -> None:
        """End the job; the first end wins."""
        await self._send("POST", f"/execution/jobs/{self._registered.job_id}/complete", end)

    async def stage(self, page: bytes) -> None:
        """Send one page of the triggers of a declaration: `StageTriggers` as JSON."""
        await self._request("POST", "/execution/declarations", bounded(page))

    async def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        """Declare the whole of a project, in pages where it is large; triggers no longer named are removed."""
        whole = declared
        for request in declaration_requests(declared):
            if isinstance(request, StageTriggers):
                await self.stage(as_body(request))
            else:
                whole = request
        while True:
            answer = await self._ask("PUT", f"/execution/projects/{quote(project, safe='')}", whole, ProjectDeclared)
            if answer.done:
                return answer
            whole = whole.model_copy(update={"after": answer.after})

    async def load(self, capacity: int, queues: list[str], since: str | None = None) -> TriggersLoaded:
        """Claim up to `capacity` triggers; answer with every lease now held, or with what changed since a revision."""
        asked = LoadTriggers(capacity=capacity, queues=queues, since=since)
        return await self._ask("POST", "/execution/triggers/load", asked, TriggersLoaded)

    async def workloads(self, trigger_ids: list[int]) -> WorkloadPage:
        """Return what is needed to run those of the triggers that this job holds."""
        content = await self._send("POST", "/execution/triggers/workloads", FetchWorkloads(trigger_ids=trigger_ids))
        with translate_decode_errors(self._url):
            return WorkloadPage(WorkloadNames.model_validate_json(content).workloads, content)

    async def store(self, batch: EventBatch) -> BatchStored:
        """Store events, dead letters, spills and receipts in one durable commit."""
        return await self._ask("POST", "/execution/triggers/events", batch, BatchStored)

    async def backlog(self, trigger_id: int, after: int, limit: int) -> BacklogPage:
        """Return what is kept for a trigger with number > `after`, at most `limit`, the oldest first."""
        params = {"after": after, "limit": limit}
        return await self._ask("GET", f"/execution/triggers/{trigger_id}/backlog", None, BacklogPage, params=params)

    async def settle(self, trigger_id: int, settled: SettleBacklog) -> None:
        """Record how kept raw events were answered; they go, and an unknown number changes nothing."""
        await self._send("POST", f"/execution/triggers/{trigger_id}/backlog/settle", settled)

    async def define_subscriber_set(self, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
        """Define a set of triggers that receipts may name by its digest."""
        return await self._ask("POST", "/execution/streams/subscriber-sets", subscriber_set, SubscriberSetDefined)

    async def books(self, stream: str) -> StreamBooks:
        """Return which event log this is, and how many receipts of the stream it has."""
        return await self._ask("POST", "/execution/streams/books", LookUpBooks(stream=stream), StreamBooks)

    async def marks(self, stream: str, lanes: list[str]) -> LaneMarks:
        """Return how far the custody of these lanes of a stream is recorded; a lane that is not named has none."""
        return await self._ask("POST", "/execution/streams/marks", LookUpMarks(stream=stream, lanes=lanes), LaneMarks)

    async def failure(self, trigger_id: int, failure: TriggerFailure) -> FailureRecorded:
        """Record why a trigger failed; return whether and when it starts again."""
        return await self._ask("POST", f"/execution/triggers/{trigger_id}/failure", failure, FailureRecorded)

    async def stream_failure(self, failed: StreamFailure) -> StreamFailureRecorded:
        """Record why the watches of a stream failed with it; learn when to open it again."""
        return await self._ask("POST", "/execution/triggers/failures", failed, StreamFailureRecorded)

    async def cleanup(self, trigger_ids: list[int], epochs: dict[int, int] | None = None) -> None:
        """Give up the leases on triggers that this job no longer runs, but none that is newer than its epoch here."""
        await self._send("POST", "/execution/triggers/cleanup", CleanupTriggers(trigger_ids=trigger_ids, epochs=epochs or {}))

    def adopt(self, job: JobRegistered) -> None:
        """Use a job that another process has registered."""
        self._job = job

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        """Forward a request of another process as this job; return the body of the response."""
        return await self._request(method, path, content)

    @property
    def _registered(self) -> JobRegistered:
        if self._job is None:
            raise ApiRefused("This process has not registered a job yet.", problem="unauthorized")
        return self._job

    async def _ask(
        self,
        method: str,
        path: str,
        body: WireModel | None,
        answer: type[M],
        *,
        params: Mapping[str, int | str] | None = None,
        token: str | None = None,
    ) -> M:
        content = await self._send(method, path, body, params=params, token=token)
        with translate_decode_errors(self._url):
            return answer.model_validate_json(content)

    async def _send(
        self, method: str, path: str, body: WireModel | None, *, params: Mapping[str, int | str] | None = None, token: str | None = None
    ) -> bytes:
        content = None if body is None else as_body(body)
        if token is not None:
            return await self._session.request(method, path, content=content, params=params, headers=JSON | bearer(token))
        return await self._request(method, path, content, params)

    async def _request(self, method: str, path: str, content: bytes | None, params: Mapping[str, int | str] | None = None) -> bytes:
        """Ask as this job. Where its token has expired, because no heartbeat was heard for long, the job is registered again first."""
        token = self._registered.token
        try:
            return await self._session.request(method, path, content=content, params=params, headers=JSON | bearer(token))
        except ApiRefused as refused:
            if refused.problem != "expired" or self._registration is None:
                raise
        if token == self._registered.token:
            await self.register(self._registration)
        return await self._session.request(method, path, content=content, params=params, headers=JSON | bearer(self._registered.token))
