"""The execution API for a blocking process: its job, its project, and any call of the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from headrace.client.declaring import declaration_requests
from headrace.client.http.bodies import as_body
from headrace.client.http.responses import (
    TIMEOUT_SECONDS,
    bearer,
    options,
    raise_for_problem,
    translate_decode_errors,
    translate_transport_errors,
)
from headrace.errors import ApiRefused
from headrace.wire.base import WireModel
from headrace.wire.calls import execution as calls
from headrace.wire.calls.call import NO_QUERY, B, Call, Query, R
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.control.triggers import DeclareProject, ProjectDeclared, StageTriggers

JSON = {"Content-Type": "application/json"}


class JobClient:
    """The blocking client of a job; implements `WorkerApi`. A process registers with the key, and `on_token` gets each token of its job.

    Other processes use the job's token: `token`, or the one that `token_file` contains when it is needed.
    `transport` carries the requests instead of a socket.
    """

    on_token: Callable[[str], object] | None = None

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        token: str | None = None,
        token_file: Path | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._token = token
        self._token_file = token_file
        self._job: JobRegistered | None = None
        self._registration: RegisterJob | None = None
        self._http = httpx.Client(**options(self._url, timeout=timeout), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, call: Call[B, R], body: B, *, query: Query = NO_QUERY, **parameters: int | str) -> R:
        """Send a call as this job; return its response. `parameters`: those of the path."""
        return self._decoded(call, self._send(call, body, call.url(parameters), query=query))

    def register(self, job: RegisterJob) -> JobRegistered:
        """Register this process; the same registration id answers with the same job."""
        response = self._send(calls.REGISTER_JOB, job, calls.REGISTER_JOB.path, token=self._key)
        self._job = self._decoded(calls.REGISTER_JOB, response)
        self._registration = job
        self._take(self._job.token)
        return self._job

    def heartbeat(self, beat: Heartbeat | None = None, *, timeout: float | None = None) -> HeartbeatAnswer:
        """Report that the job is alive; return the state that the API wants of it. `timeout`: in seconds, None for the client's."""
        path = calls.HEARTBEAT.url({"job_id": self._job_id})
        answer = self._decoded(calls.HEARTBEAT, self._send(calls.HEARTBEAT, beat or Heartbeat(), path, timeout=timeout))
        if answer.token is not None:
            self._take(answer.token)
        return answer

    def complete(self, end: CompleteJob) -> None:
        """End the job; the first end counts."""
        self.request(calls.COMPLETE_JOB, end, job_id=self._job_id)

    def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        """Declare a whole project, in pages if it is large. Triggers and pipelines that it does not name are removed."""
        whole = declared
        for request in declaration_requests(declared):
            if isinstance(request, StageTriggers):
                self.request(calls.STAGE_TRIGGERS, request)
            else:
                whole = request
        while True:
            answer = self.request(calls.DECLARE_PROJECT, whole, name=project)
            if answer.done:
                return answer
            whole = whole.model_copy(update={"after": answer.after})

    @property
    def token(self) -> str:
        """The job's token, for readers in other processes."""
        if self._token is None and self._token_file is not None:
            self._token = self._token_file.read_text()
        if self._token is None:
            raise ApiRefused("This process has not registered a job yet.", problem="unauthorized")
        return self._token

    @property
    def _job_id(self) -> int:
        if self._job is None:
            raise ApiRefused("This process has not registered a job yet.", problem="unauthorized")
        return self._job.job_id

    def _decoded(self, call: Call[B, R], response: httpx.Response) -> R:
        with translate_decode_errors(self._url):
            return call.decode(response.content)

    def _send(
        self,
        call: Call[Any, Any],
        body: WireModel | None,
        path: str,
        *,
        query: Query = NO_QUERY,
        token: str | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        content = None if body is None else as_body(body)
        sent = self.token if token is None else token
        try:
            return self._transmit(call, content, path, query, sent, timeout)
        except ApiRefused as error:
            if token is not None or not self._renewed(sent, error):
                raise
        return self._transmit(call, content, path, query, self.token, timeout)

    def _transmit(
        self, call: Call[Any, Any], content: bytes | None, path: str, query: Query, token: str, timeout: float | None
    ) -> httpx.Response:
        headers = bearer(token) if content is None else bearer(token) | JSON
        limit = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        with translate_transport_errors(self._url):
            response = self._http.request(call.method, path, content=content, params=Call.query(query), headers=headers, timeout=limit)
        return raise_for_problem(response)

    def _take(self, token: str) -> None:
        self._token = token
        if self.on_token is not None:
            self.on_token(token)

    def _renewed(self, token: str, error: ApiRefused) -> bool:
        """Return whether there is now another token than the rejected one: of the job, registered again, or from the file."""
        if error.problem != "expired":
            return False
        if self._registration is not None and token == self._token:
            self.register(self._registration)
        elif self._token_file is not None:
            self._token = self._token_file.read_text()
        return token != self._token
