"""The admin API as the command line calls it, as the JSON that it is; what changes something needs the deployment key."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

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
from headrace.wire.custody.dead_letters import ActOnDeadLetters, DeadLetterActionKind
from headrace.wire.custody.pipeline_dead_letters import ActOnPipelineLetters, PipelineLetterAction
from headrace.wire.custody.receipts import LogMark
from headrace.wire.pipelines.scopes import ResetScope
from headrace.wire.status.triggerers import WantJob

PAGE: Final = 1_000
"""Entries of a list that one call asks for."""


class AdminClient:
    """Asks the admin API; every method returns the decoded JSON. `token`: for an api that shows nothing without one."""

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
        """Return the whole state at a glance."""
        return self._get("/api/v1/status")

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
        return self._get("/api/v1/events", after=after, before=before, limit=limit, type=type, subject=subject)

    def scopes(self) -> Any:
        """Return how far each scope is, and what waits there."""
        return self._get("/api/v1/scopes")

    def waiting(self, scope: str, *, after: int | None = None, limit: int | None = None) -> Any:
        """Return which events wait in a scope and for whom, in the order in which they came."""
        return self._get(f"/api/v1/scopes/{quote(scope, safe='')}/waiting", after=after, limit=limit)

    def triggers(self) -> Any:
        """Return all triggers, with their counts and failures."""
        return self._all("triggers")

    def streams(self) -> Any:
        """Return all shared streams and their lanes."""
        return self._all("streams")

    def runs(self, *, limit: int | None = None) -> Any:
        """Return the newest pipeline runs."""
        return self._get("/api/v1/runs", limit=limit)

    def dead_letters(self, *, limit: int | None = None, before: str | None = None, state: str | None = None) -> Any:
        """Return dead letters, the newest first, and why each was given up on; `before` is where the last page ended."""
        return self._get("/api/v1/dead-letters", limit=limit, before=before, state=state)

    def dead_letter(self, id: str) -> Any:
        """Return one dead letter with the text that came and its traceback."""
        return self._get(f"/api/v1/dead-letters/{quote(id, safe='')}")

    def dead_letter_actions(self, *, limit: int | None = None) -> Any:
        """Return who redrove or discarded what, the newest first."""
        return self._get("/api/v1/dead-letter-actions", limit=limit)

    def triggerers(self) -> Any:
        """Return the running triggerers, then the last ended ones."""
        return self._get("/api/v1/triggerers")

    def want(self, job_id: int, asked: WantJob, *, key: str) -> None:
        """Say what is wanted of a triggerer."""
        self._post(f"/api/v1/triggerers/{job_id}/wanted", asked.model_dump_json(), key)

    def trigger(self, trigger_id: int) -> Any:
        """Return one trigger with why it failed."""
        return self._get(f"/api/v1/triggers/{trigger_id}")

    def resume(self, trigger_id: int, *, key: str) -> None:
        """Start a trigger that is parked or waits after a failure."""
        self._post(f"/api/v1/triggers/{trigger_id}/resume", None, key)

    def drop_backlog(self, trigger_id: int, *, key: str) -> Any:
        """Drop all that is kept for a trigger; return how much that was."""
        response = self._post(f"/api/v1/triggers/{trigger_id}/backlog/drop", None, key)
        with translate_decode_errors(self._url):
            return msgspec.json.decode(response.content)

    def remove_scope(self, scope: str, *, key: str) -> None:
        """Forget a pipeline's scope."""
        with translate_transport_errors(self._url):
            raise_for_problem(self._http.delete(f"/api/v1/scopes/{quote(scope, safe='')}", headers=bearer(key)))

    def adopt_stream(self, mark: LogMark, *, key: str) -> Any:
        """Go on with a stream whose upstream keeps this mark; return how many receipts are missing."""
        response = self._post("/api/v1/streams/adopt", mark.model_dump_json(), key)
        with translate_decode_errors(self._url):
            return msgspec.json.decode(response.content)

    def reset_scope(self, scope: str, asked: ResetScope, *, key: str) -> Any:
        """Reset a pipeline's scope; return where it begins, and what was given up."""
        response = self._post(f"/api/v1/scopes/{quote(scope, safe='')}/reset", asked.model_dump_json(), key)
        with translate_decode_errors(self._url):
            return msgspec.json.decode(response.content)

    def act(self, action: DeadLetterActionKind, asked: ActOnDeadLetters, *, key: str) -> Any:
        """Redrive or discard dead letters; return how many, and which were left."""
        response = self._post(f"/api/v1/dead-letters/{action}", asked.model_dump_json(), key)
        with translate_decode_errors(self._url):
            return msgspec.json.decode(response.content)

    def pipeline_dead_letters(self, *, limit: int | None = None) -> Any:
        """Return the dead letters of pipelines, the newest first."""
        return self._get("/api/v1/pipeline-letters", limit=limit)

    def pipeline_letter(self, id: str) -> Any:
        """Return one dead letter of a pipeline with its whole error."""
        return self._get(f"/api/v1/pipeline-letters/{quote(id, safe='')}")

    def act_on_pipeline_dead_letters(self, action: PipelineLetterAction, asked: ActOnPipelineLetters, *, key: str) -> Any:
        """Redrive or discard dead letters of pipelines; return how many."""
        response = self._post(f"/api/v1/pipeline-letters/{action}", asked.model_dump_json(), key)
        with translate_decode_errors(self._url):
            return msgspec.json.decode(response.content)

    def audit(self, stream: str | None = None) -> Any:
        """Return the ledger of custody of every stream, or of one, and whether it balances."""
        return self._get("/api/v1/audit", stream=stream)

    def scope_ledger(self, scope: str, part: str | None = None, **params: int | str | None) -> Any:
        """Return how far a scope is; or a page of a `part` of what is known of it: its runs, letters or firings."""
        path = f"/api/v1/scopes/{quote(scope, safe='')}/ledger"
        return self._get(path if part is None else f"{path}/{part}", **params)

    def _get(self, path: str, **params: int | str | None) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        with translate_transport_errors(self._url):
            response = self._http.get(path, params=given)
        with translate_decode_errors(self._url):
            return msgspec.json.decode(raise_for_problem(response).content)

    def _all(self, name: str) -> dict[str, Any]:
        """Return all pages of a list in one."""
        found: list[Any] = []
        after: int | str | None = None
        while True:
            page = self._get(f"/api/v1/{name}", after=after, limit=PAGE)
            found += page[name]
            after = page["after"]
            if after is None:
                return {name: found}

    def _post(self, path: str, content: str | None, key: str) -> httpx.Response:
        headers = {"Content-Type": "application/json"} | bearer(key)
        with translate_transport_errors(self._url):
            return raise_for_problem(self._http.post(path, content=content, headers=headers))
