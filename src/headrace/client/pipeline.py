"""The execution API as a pipeline calls it: pages of the log and of a scope's state, and plans in pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.client.http.responses import translate_decode_errors
from headrace.client.job import JobClient
from headrace.client.plan_pages import paged
from headrace.triggers.masking import mask
from headrace.wire.calls import execution as calls
from headrace.wire.calls.call import Query
from headrace.wire.log import HEAD_HEADER, LAST_SEQ_HEADER, LOG_SCHEMA
from headrace.wire.pipelines.plans import (
    MAX_LEADERS,
    MAX_POSITIONS,
    FindLeaders,
    FindPositions,
    FoundLeader,
    OpenRun,
    Plan,
    ScopeDeadLetter,
)
from headrace.wire.pipelines.runs import BatchEnded, GetEventsBySeq, RunReport, RunReports

PAGE = 50_000


@dataclass(frozen=True, slots=True)
class LogPage:
    """A part of the log as a table of `LOG_SCHEMA`, in order of `seq`, and the log's head when it was read."""

    table: pa.Table
    head: int


class PipelineClient(JobClient):
    """The client of a pipeline's driver and of its readers: calls whose response is Arrow, or has pages, or whose request has."""

    def get_by_seq(self, seqs: list[tuple[int, int]]) -> pa.Table:
        """Return the events of the log with these seqs, given as closed ranges; at most 10,000."""
        parts = [LOG_SCHEMA.empty_table()]
        rest = seqs
        while rest:
            response = self._send(calls.GET_EVENTS_BY_SEQ, GetEventsBySeq(seqs=rest), calls.GET_EVENTS_BY_SEQ.path)
            with translate_decode_errors(self._url), pa.ipc.open_stream(pa.py_buffer(response.content)) as reader:
                parts.append(reader.read_all())
            picked = int(response.headers.get(LAST_SEQ_HEADER, max(last for _, last in rest)))
            rest = [(max(first, picked + 1), last) for first, last in rest if last > picked]
        return pa.concat_tables(parts)

    def page(self, *, after: int, to: int | None = None, limit: int = PAGE, scope: str | None = None) -> LogPage:
        """Return events with after < seq <= to: at most `limit`, fewer if payloads are large, none if there are no more."""
        query: Query = {"after": after, "to": to, "limit": limit, "scope": scope, "format": "arrow"}
        response = self._send(calls.GET_EVENTS, None, calls.GET_EVENTS.path, query=query)
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

    def plan(self, scope: str, plan: Plan) -> None:
        """Store the plan of the scope's next batch, in pages if it is large; the same plan can be sent again."""
        pages, last = paged(plan)
        for page in pages:
            self.request(calls.STORE_PLAN_PAGE, page, scope=scope)
        self.request(calls.STORE_PLAN, last, scope=scope)

    def positions(self, scope: str, seqs: Sequence[int]) -> list[bytes]:
        """Return the blocks that may have the positions of these events, by ascending seqs; a block may be returned twice."""
        blocks: list[bytes] = []
        left = list(seqs)
        while left:
            page = self.request(calls.GET_POSITIONS, FindPositions(seqs=left[:MAX_POSITIONS]), scope=scope)
            blocks += page.blocks
            left = left[MAX_POSITIONS:] if page.to is None else [seq for seq in left if seq > page.to]
        return blocks

    def get_dead_letters(self, scope: str, pipeline: str) -> list[ScopeDeadLetter]:
        """Return the pipeline's dead letters that are neither settled nor discarded, by id."""
        dead_letters: list[ScopeDeadLetter] = []
        after: str | None = ""
        while after is not None:
            query: Query = {"pipeline": pipeline, "after": after}
            page = self.request(calls.GET_SCOPE_DEAD_LETTERS, None, query=query, scope=scope)
            dead_letters += page.dead_letters
            after = page.after
        return dead_letters

    def leaders(self, keys: Sequence[bytes]) -> list[FoundLeader]:
        """Return the events of the log with these keys, with their leaders and the triggers of the project."""
        leaders: list[FoundLeader] = []
        for start in range(0, len(keys), MAX_LEADERS):
            request = FindLeaders(keys=list(keys[start : start + MAX_LEADERS]))
            leaders += self.request(calls.FIND_LEADERS, request).events
        return leaders

    def state(self, scope: str) -> dict[str, bytes]:
        """Return the scope's state."""
        entries: dict[str, bytes] = {}
        after: str | None = ""
        while after is not None:
            page = self.request(calls.GET_SCOPE_STATE, None, query={"after": after}, scope=scope)
            entries |= page.entries
            after = page.after
        return entries

    def open_runs(self, scope: str) -> list[OpenRun]:
        """Return the planned runs without an outcome, by batch and number."""
        runs: list[OpenRun] = []
        while True:
            last = runs[-1] if runs else None
            after: Query = {} if last is None else {"batch": last.batch, "number": last.number}
            page = self.request(calls.GET_OPEN_RUNS, None, query=after, scope=scope).runs
            if not page:
                return runs
            runs += page

    def report(self, runs: Sequence[RunReport], ended: BatchEnded | None = None) -> None:
        """Report runs, and the end of a batch; the last report of a run counts. Secrets in errors are masked."""
        if runs or ended:
            masked = [run if run.error is None else run.model_copy(update={"error": mask(run.error)}) for run in runs]
            self.request(calls.REPORT_RUNS, RunReports(runs=masked, ended=ended))
