"""The execution API as a triggerer calls it, without blocking."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from headrace.client.declaring import declaration_requests
from headrace.client.http.bodies import as_body, bounded
from headrace.client.http.responses import TIMEOUT_SECONDS, bearer, translate_decode_errors
from headrace.client.http.session import Requests, Session
from headrace.errors import ApiRefused
from headrace.ports.triggerer_api import WorkloadPage
from headrace.wire.calls import execution as calls
from headrace.wire.calls.call import NO_QUERY, B, Call, Query, R
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.control.triggers import DeclareProject, FetchWorkloads, ProjectDeclared, StageTriggers, WorkloadNames
from headrace.wire.custody.events import BatchStored, EventBatch

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

    async def request(self, call: Call[B, R], body: B, *, query: Query = NO_QUERY, **parameters: int | str) -> R:
        """Send a call as this job; return its response. `parameters`: those of the path."""
        content = None if body is None else as_body(body)
        return self._decoded(call, await self._send_as_job(call.method, call.url(parameters), content, query))

    async def register(self, job: RegisterJob) -> JobRegistered:
        """Register this process; the same registration id returns the same job."""
        content = await self._send(calls.REGISTER_JOB, as_body(job), token=self._key)
        self._job = self._decoded(calls.REGISTER_JOB, content)
        self._registration = job
        return self._job

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Report that the job is alive; return its desired state."""
        answer = await self.request(calls.HEARTBEAT, beat, job_id=self._registered.job_id)
        if answer.token is not None:
            self._job = self._registered.model_copy(update={"token": answer.token})
        return answer

    async def complete(self, end: CompleteJob) -> None:
        """End the job; the first end counts."""
        await self.request(calls.COMPLETE_JOB, end, job_id=self._registered.job_id)

    async def stage(self, page: bytes) -> None:
        """Send one page of the triggers of a declaration: `StageTriggers` as JSON."""
        await self._send(calls.STAGE_TRIGGERS, bounded(page))

    async def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        """Declare a whole project, in pages if it is large. Triggers that it does not name are removed."""
        whole = declared
        for request in declaration_requests(declared):
            if isinstance(request, StageTriggers):
                await self.stage(as_body(request))
            else:
                whole = request
        while True:
            answer = await self.request(calls.DECLARE_PROJECT, whole, name=project)
            if answer.done:
                return answer
            whole = whole.model_copy(update={"after": answer.after})

    async def workloads(self, trigger_ids: list[int]) -> WorkloadPage:
        """Return the workloads of the triggers that this job holds."""
        content = await self._send(calls.GET_WORKLOADS, as_body(FetchWorkloads(trigger_ids=trigger_ids)))
        with translate_decode_errors(self._url):
            return WorkloadPage(WorkloadNames.model_validate_json(content).workloads, content)

    async def store(self, batch: EventBatch) -> BatchStored:
        """Store events, dead letters, spills and receipts in one durable commit."""
        return await self.request(calls.STORE_EVENTS, batch)

    def adopt(self, job: JobRegistered) -> None:
        """Use a job that another process has registered."""
        self._job = job

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        """Forward a request of another process as this job; return the body of the response."""
        return await self._send_as_job(method, path, content)

    @property
    def _registered(self) -> JobRegistered:
        if self._job is None:
            raise ApiRefused("This process has not registered a job yet.", problem="unauthorized")
        return self._job

    def _decoded(self, call: Call[B, R], content: bytes) -> R:
        with translate_decode_errors(self._url):
            return call.decode(content)

    async def _send(self, call: Call[Any, Any], content: bytes | None, path: str | None = None, token: str | None = None) -> bytes:
        """Send an encoded body as this job, or with another `token`."""
        if token is None:
            return await self._send_as_job(call.method, path or call.path, content)
        return await self._session.request(call.method, call.path, content=content, params=None, headers=JSON | bearer(token))

    async def _send_as_job(self, method: str, path: str, content: bytes | None, query: Query = NO_QUERY) -> bytes:
        """Send a request as this job. If its token has expired, because no heartbeat arrived for long, register the job again first."""
        token = self._registered.token
        params = Call.query(query) if query else None
        try:
            return await self._session.request(method, path, content=content, params=params, headers=JSON | bearer(token))
        except ApiRefused as error:
            if error.problem != "expired" or self._registration is None:
                raise
        if token == self._registered.token:
            await self.register(self._registration)
        return await self._session.request(method, path, content=content, params=params, headers=JSON | bearer(self._registered.token))
