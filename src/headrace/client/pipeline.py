"""The machine API as a pipeline calls it: the log by pages, the scope's plans and state, the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx
import pyarrow as pa

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
from headrace.client.plan_pages import paged
from headrace.errors import ApiRefused
from headrace.triggers.masking import mask
from headrace.wire.base import WireModel
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.control.triggers import DeclareProject, ProjectDeclared, StageTriggers
from headrace.wire.custody.events import LogHead, LogNews
from headrace.wire.log import HEAD_HEADER, LOG_SCHEMA, PICKED_HEADER
from headrace.wire.pipelines.plans import (
    MAX_LEADERS,
    MAX_POSITIONS,
    FindLeaders,
    FindPositions,
    FoundLeader,
    FoundLeaders,
    OpenRun,
    OpenRuns,
    Plan,
    Positions,
    ScopeLetter,
    ScopeLetters,
    ScopeState,
    SplitRun,
)
from headrace.wire.pipelines.runs import BatchEnded, PickEvents, Redeliveries, Redelivery, RunReport, RunReports
from headrace.wire.pipelines.scope_leases import AcquireScope, ScopeLease
from headrace.wire.task_runs import StartRun, TaskRunIs

M = TypeVar("M", bound=WireModel)
JSON = {"Content-Type": "application/json"}
PAGE = 50_000


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some of the log as a table of `LOG_SCHEMA`, in order of `seq`, and the log's head when it was read."""

    table: pa.Table
    head: int


class PipelineClient:
    """The sync client of a pipeline. The driver registers with the key, and tells `on_token` each token that its job gets.

    Its readers elsewhere get by with the token alone: with `token`, or with the one that is in `token_file` when it is needed.
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
    ) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._token = token
        self._token_file = token_file
        self._job: JobRegistered | None = None
        self._registration: RegisterJob | None = None
        self._http = httpx.Client(**options(self._url, timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def register(self, job: RegisterJob) -> JobRegistered:
        """Register this process; the same registration id answers with the same job."""
        self._job = self._ask("POST", "/execution/jobs", JobRegistered, job, token=self._key)
        self._registration = job
        self._take(self._job.token)
        return self._job

    def heartbeat(self, beat: Heartbeat | None = None, *, timeout: float | None = None) -> HeartbeatAnswer:
        """Say that the job lives, and wait `timeout` seconds for the answer (None: as long as for others); learn what is wanted of it."""
        path = f"/execution/jobs/{self._job_id}/heartbeat"
        answer = self._ask("POST", path, HeartbeatAnswer, beat or Heartbeat(), timeout=timeout)
        if answer.token is not None:
            self._take(answer.token)
        return answer

    def complete(self, end: CompleteJob) -> None:
        """End the job; the first end wins."""
        self._send("POST", f"/execution/jobs/{self._job_id}/complete", end)

    def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        """Declare the whole of a project, in pages where it is large; what is no longer named is removed."""
        whole = declared
        for request in declaration_requests(declared):
            if isinstance(request, StageTriggers):
                self._send("POST", "/execution/declarations", request)
            else:
                whole = request
        while True:
            answer = self._ask("PUT", f"/execution/projects/{quote(project, safe='')}", ProjectDeclared, whole)
            if answer.done:
                return answer
            whole = whole.model_copy(update={"after": answer.after})

    def head(self) -> LogHead:
        """Return the log's first and last `seq`, and the api's clock."""
        return self._ask("GET", "/execution/events/head", LogHead)

    def news(self, *, after: int = 0, again: int = 0, wait: float = 0.0) -> LogNews:
        """Return the last `seq` and the last redelivery: once there is more than `after` or `again`, or after `wait` seconds."""
        return self._ask("GET", "/execution/events/news", LogNews, params={"after": after, "again": again, "wait": wait})

    def pick(self, seqs: list[tuple[int, int]]) -> pa.Table:
        """Return the events with these seqs that the log has, at most 10,000."""
        parts = [LOG_SCHEMA.empty_table()]
        rest = seqs
        while rest:
            response = self._send("POST", "/execution/events/pick", PickEvents(seqs=rest))
            with translate_decode_errors(self._url), pa.ipc.open_stream(pa.py_buffer(response.content)) as reader:
                parts.append(reader.read_all())
            picked = int(response.headers.get(PICKED_HEADER, max(last for _, last in rest)))
            rest = [(max(first, picked + 1), last) for first, last in rest if last > picked]
        return pa.concat_tables(parts)

    def redeliveries(self, *, after: int, to: int) -> list[Redelivery]:
        """Return redeliveries with after < id <= to."""
        return self._ask("GET", "/execution/redeliveries", Redeliveries, params={"after": after, "to": to}).redeliveries

    def page(self, *, after: int, to: int | None = None, limit: int = PAGE, scope: str | None = None) -> LogPage:
        """Return events with after < seq <= to: at most `limit`, fewer where payloads are large, none only when none is left."""
        given = {"after": after, "to": to, "limit": limit, "scope": scope, "format": "arrow"}
        params = {name: value for name, value in given.items() if value is not None}
        response = self._send("GET", "/execution/events", params=params)
        with translate_decode_errors(self._url), pa.ipc.open_stream(pa.py_buffer(response.content)) as reader:
            return LogPage(reader.read_all(), int(response.headers[HEAD_HEADER]))

    def pages(self, *, after: int, to: int, limit: int = PAGE, scope: str | None = None) -> Iterator[pa.Table]:
        """Yield all events with after < seq <= to, page by page."""
        while after < to:
            table = self.page(after=after, to=to, limit=limit, scope=scope).table
            if not table.num_rows:
                return
            yield table
            after = table.column("seq")[-1].as_py()

    def acquire(self, scope: str, begin: int | None = 1) -> ScopeLease:
        """Hold the scope from now on; a new one begins with the event `begin`, or with what is stored from now on (None).

        Raises:
            ApiRefused: Another job holds the scope (`held`), or `begin` is beyond the next event of the log.
        """
        return self._ask("POST", f"{_scope(scope)}/lease", ScopeLease, AcquireScope(begin=begin))

    def plan(self, scope: str, plan: Plan) -> None:
        """Store the plan of the scope's next batch, in pages where it is large; the same plan may be sent again."""
        pages, last = paged(plan)
        for page in pages:
            self._send("POST", f"{_scope(scope)}/plans/pages", page)
        self._send("POST", f"{_scope(scope)}/plans", last)

    def split(self, scope: str, split: SplitRun) -> None:
        """Replace an open run by parts of it; the same request may be sent again."""
        self._send("POST", f"{_scope(scope)}/splits", split)

    def positions(self, scope: str, seqs: Sequence[int]) -> list[bytes]:
        """Return the blocks that may have the positions of these events, by ascending seqs; a block may come twice."""
        blocks: list[bytes] = []
        left = list(seqs)
        while left:
            found = self._ask("POST", f"{_scope(scope)}/positions", Positions, FindPositions(seqs=left[:MAX_POSITIONS]))
            blocks += found.blocks
            left = left[MAX_POSITIONS:] if found.to is None else [seq for seq in left if seq > found.to]
        return blocks

    def letters(self, scope: str, pipeline: str) -> list[ScopeLetter]:
        """Return the pipeline's dead letters that are neither settled nor discarded, by id."""
        letters: list[ScopeLetter] = []
        after: str | None = ""
        while after is not None:
            page = self._ask("GET", f"{_scope(scope)}/letters", ScopeLetters, params={"pipeline": pipeline, "after": after})
            letters += page.letters
            after = page.after
        return letters

    def leaders(self, keys: Sequence[bytes]) -> list[FoundLeader]:
        """Return those of the events with these keys that the log has, with their leaders and the triggers of the project."""
        found: list[FoundLeader] = []
        for start in range(0, len(keys), MAX_LEADERS):
            wanted = FindLeaders(keys=list(keys[start : start + MAX_LEADERS]))
            found += self._ask("POST", "/execution/events/leaders", FoundLeaders, wanted).events
        return found

    def state(self, scope: str) -> dict[str, bytes]:
        """Return the scope's state."""
        entries: dict[str, bytes] = {}
        after: str | None = ""
        while after is not None:
            page = self._ask("GET", f"{_scope(scope)}/state", ScopeState, params={"after": after})
            entries |= page.entries
            after = page.after
        return entries

    def open_runs(self, scope: str) -> list[OpenRun]:
        """Return the planned runs without an outcome, by batch and number."""
        runs: list[OpenRun] = []
        while True:
            last = runs[-1] if runs else None
            after = {} if last is None else {"batch": last.batch, "number": last.number}
            page = self._ask("GET", f"{_scope(scope)}/runs", OpenRuns, params=after).runs
            if not page:
                return runs
            runs += page

    def report(self, runs: Sequence[RunReport], ended: BatchEnded | None = None) -> None:
        """Report runs, and the end of a batch; the last report of a run counts. What is secret in their errors is masked."""
        if runs or ended:
            masked = [run if run.error is None else run.model_copy(update={"error": mask(run.error)}) for run in runs]
            self._send("POST", "/execution/runs", RunReports(runs=masked, ended=ended))

    def get(self, path: str) -> bytes:
        """Return what is at `path`, as this job may see it."""
        return self._send("GET", path).content

    def start_run(self, start: StartRun) -> TaskRunIs:
        """Start a run; the same id is the same run."""
        return self._ask("POST", "/execution/task-runs", TaskRunIs, start)

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

    def _ask(
        self,
        method: str,
        path: str,
        answer: type[M],
        body: WireModel | None = None,
        *,
        params: Mapping[str, int | float | str] | None = None,
        token: str | None = None,
        timeout: float | None = None,
    ) -> M:
        response = self._send(method, path, body, params=params, token=token, timeout=timeout)
        with translate_decode_errors(self._url):
            return answer.model_validate_json(response.content)

    def _send(
        self,
        method: str,
        path: str,
        body: WireModel | None = None,
        *,
        params: Mapping[str, int | float | str] | None = None,
        token: str | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        content = None if body is None else as_body(body)
        sent = self.token if token is None else token
        try:
            return self._request(method, path, content, params, sent, timeout)
        except ApiRefused as refused:
            if token is not None or not self._renewed(sent, refused):
                raise
        return self._request(method, path, content, params, self.token, timeout)

    def _request(
        self,
        method: str,
        path: str,
        content: bytes | None,
        params: Mapping[str, int | float | str] | None,
        token: str,
        timeout: float | None,
    ) -> httpx.Response:
        headers = bearer(token) if content is None else bearer(token) | JSON
        given = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        with translate_transport_errors(self._url):
            response = self._http.request(method, path, content=content, params=params, headers=headers, timeout=given)
        return raise_for_problem(response)

    def _take(self, token: str) -> None:
        self._token = token
        if self.on_token is not None:
            self.on_token(token)

    def _renewed(self, token: str, refused: ApiRefused) -> bool:
        """Whether there is now another token than the one that was refused: the job's, registered again, or that of the file."""
        if refused.problem != "expired":
            return False
        if self._registration is not None and token == self._token:
            self.register(self._registration)
        elif self._token_file is not None:
            self._token = self._token_file.read_text()
        return token != self._token


def _scope(name: str) -> str:
    return f"/execution/scopes/{quote(name, safe='')}"
