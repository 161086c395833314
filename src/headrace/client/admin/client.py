"""The admin API for the command line, with its responses as decoded JSON. Changes need the deployment key."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx
import msgspec

from headrace.client.http.responses import (
    TIMEOUT_SECONDS,
    bearer,
    options,
    raise_for_problem,
    translate_decode_errors,
    translate_transport_errors,
)
from headrace.wire.base import WireModel
from headrace.wire.calls import admin as calls
from headrace.wire.calls.call import NO_QUERY, B, Call, Query, R
from headrace.wire.custody.dead_letters import DeadLetterActionKind, DeadLetterSelection
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterAction, PipelineDeadLetterSelection
from headrace.wire.custody.receipts import LogMark
from headrace.wire.pipelines.scopes import ResetScope
from headrace.wire.status.triggerers import SetDesiredState

PAGE: Final = 1_000
"""Entries of a list in one request."""


class AdminClient:
    """Call the admin API. Every method returns the decoded JSON. `token`: for an API that requires one to read."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = TIMEOUT_SECONDS) -> None:
        self._url = url.rstrip("/")
        self._http = httpx.Client(**options(self._url, timeout=timeout))
        if token is not None:
            self._http.headers.update(bearer(token))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def status(self) -> Any:
        """Return the whole status."""
        return self.get(calls.GET_STATUS)

    def events(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int | None = None,
        type: str | None = None,
        subject: str | None = None,
    ) -> Any:
        """Return events of the log, the newest first unless `after` is given."""
        return self.get(calls.LIST_EVENTS, {"after": after, "before": before, "limit": limit, "type": type, "subject": subject})

    def event(self, seq: int) -> Any:
        """Return one event, with its runs and leader, and its position, mark or wait in each scope."""
        return self.get(calls.GET_EVENT, seq=seq)

    def scopes(self) -> Any:
        """Return the position of each scope, and its waiting events."""
        return self.get(calls.LIST_SCOPES)

    def waiting(self, scope: str, *, after: int | None = None, limit: int | None = None) -> Any:
        """Return the waiting events of a scope with their leaders, in order of arrival."""
        return self.get(calls.LIST_WAITING_EVENTS, {"after": after, "limit": limit}, scope=scope)

    def triggers(self) -> Any:
        """Return all triggers, with their counts and failures."""
        return self._all(calls.LIST_TRIGGERS, "triggers")

    def streams(self) -> Any:
        """Return all shared streams and their lanes."""
        return self._all(calls.LIST_STREAMS, "streams")

    def runs(self, *, limit: int | None = None) -> Any:
        """Return the newest pipeline runs."""
        return self.get(calls.LIST_RUNS, {"limit": limit})

    def dead_letters(self, *, limit: int | None = None, before: str | None = None, state: str | None = None) -> Any:
        """Return dead letters with their errors, the newest first. `before` is the end of the previous page."""
        return self.get(calls.LIST_DEAD_LETTERS, {"limit": limit, "before": before, "state": state})

    def dead_letter(self, id: str) -> Any:
        """Return one dead letter with its raw text and its traceback."""
        return self.get(calls.GET_DEAD_LETTER, id=id)

    def dead_letter_actions(self, *, limit: int | None = None) -> Any:
        """Return redrives and discards of dead letters, the newest first."""
        return self.get(calls.LIST_DEAD_LETTER_ACTIONS, {"limit": limit})

    def triggerers(self) -> Any:
        """Return the running triggerers, then the last ended ones."""
        return self.get(calls.LIST_TRIGGERERS)

    def set_desired_state(self, job_id: int, request: SetDesiredState, *, key: str) -> None:
        """Set the desired state of a triggerer."""
        self.request(calls.SET_DESIRED_STATE, request, credential=key, job_id=job_id)

    def trigger(self, trigger_id: int) -> Any:
        """Return one trigger with its last failure."""
        return self.get(calls.GET_TRIGGER, trigger_id=trigger_id)

    def resume(self, trigger_id: int, *, key: str) -> None:
        """Start a trigger that is parked or waits after a failure."""
        self.request(calls.RESUME_TRIGGER, None, credential=key, trigger_id=trigger_id)

    def drop_backlog(self, trigger_id: int, *, key: str) -> Any:
        """Drop the backlog of a trigger; return the number of dropped raw events."""
        return self._json(calls.DROP_BACKLOG, None, key, trigger_id=trigger_id)

    def remove_scope(self, scope: str, *, key: str) -> None:
        """Delete a pipeline's scope."""
        self.request(calls.REMOVE_SCOPE, None, credential=key, scope=scope)

    def adopt_stream(self, mark: LogMark, *, key: str) -> Any:
        """Continue a stream whose upstream has this mark; return the number of missing receipts."""
        return self._json(calls.ADOPT_STREAM, mark, key)

    def reset_scope(self, scope: str, request: ResetScope, *, key: str) -> Any:
        """Reset a pipeline's scope; return its start and the dropped work."""
        return self._json(calls.RESET_SCOPE, request, key, scope=scope)

    def act(self, action: DeadLetterActionKind, request: DeadLetterSelection, *, key: str) -> Any:
        """Redrive or discard dead letters; return their number, and the dead letters left unchanged."""
        return self._json(calls.REDRIVE_DEAD_LETTERS if action == "redrive" else calls.DISCARD_DEAD_LETTERS, request, key)

    def pipeline_dead_letters(self, *, limit: int | None = None) -> Any:
        """Return the dead letters of pipelines, the newest first."""
        return self.get(calls.LIST_PIPELINE_DEAD_LETTERS, {"limit": limit})

    def pipeline_dead_letter(self, id: str) -> Any:
        """Return one dead letter of a pipeline with its whole error."""
        return self.get(calls.GET_PIPELINE_DEAD_LETTER, id=id)

    def act_on_pipeline_dead_letters(self, action: PipelineDeadLetterAction, request: PipelineDeadLetterSelection, *, key: str) -> Any:
        """Redrive or discard dead letters of pipelines; return their number."""
        return self._json(calls.ACT_ON_PIPELINE_DEAD_LETTERS, request, key, action=action)

    def audit(self, stream: str | None = None) -> Any:
        """Return the ledger of custody of every stream, or of one, and whether it balances."""
        return self.get(calls.GET_AUDIT, {"stream": stream})

    def get(self, call: Call[None, Any], query: Query = NO_QUERY, **parameters: int | str) -> Any:
        """Return the decoded JSON of a call that reads. `parameters`: those of the path."""
        return self._json(call, None, None, query, **parameters)

    def request(self, call: Call[B, R], body: B, *, credential: str | None = None, query: Query = NO_QUERY, **parameters: int | str) -> R:
        """Send a call; return its response. `credential`: the deployment key or a token, instead of the client's token."""
        content = self._send(call, body, credential, query, parameters)
        with translate_decode_errors(self._url):
            return call.decode(content)

    def _json(self, call: Call[B, Any], body: B, credential: str | None, query: Query = NO_QUERY, **parameters: int | str) -> Any:
        content = self._send(call, body, credential, query, parameters)
        with translate_decode_errors(self._url):
            return msgspec.json.decode(content)

    def _send(
        self, call: Call[Any, Any], body: WireModel | None, credential: str | None, query: Query, parameters: Mapping[str, int | str]
    ) -> bytes:
        headers = {"Content-Type": "application/json"} | ({} if credential is None else bearer(credential))
        content = None if body is None else body.model_dump_json()
        with translate_transport_errors(self._url):
            response = self._http.request(call.method, call.url(parameters), content=content, params=Call.query(query), headers=headers)
        return raise_for_problem(response).content

    def _all(self, call: Call[None, Any], name: str) -> dict[str, Any]:
        """Return all pages of a list in one."""
        entries: list[Any] = []
        after: int | str | None = None
        while True:
            page = self.get(call, {"after": after, "limit": PAGE})
            entries += page[name]
            after = page["after"]
            if after is None:
                return {name: entries}
