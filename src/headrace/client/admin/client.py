"""The admin API for the command line. Changes need the deployment key."""

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
from headrace.wire.status.status import StreamList, TriggerList
from headrace.wire.status.upstreams import UpstreamList

PAGE: Final = 1_000
"""Entries of a list in one request."""


class AdminClient:
    """Sends calls of `headrace.wire.calls.admin`. `token`: for an API that requires one to read."""

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

    def get(self, call: Call[None, Any], query: Query = NO_QUERY, **parameters: int | str) -> Any:
        """Return the decoded JSON of a call that reads. `parameters`: those of the path."""
        content = self._send(call, None, None, query, parameters)
        with translate_decode_errors(self._url):
            return msgspec.json.decode(content)

    def request(self, call: Call[B, R], body: B, *, credential: str | None = None, query: Query = NO_QUERY, **parameters: int | str) -> R:
        """Send a call; return its response. `credential`: the deployment key or a token, instead of the client's token."""
        content = self._send(call, body, credential, query, parameters)
        with translate_decode_errors(self._url):
            return call.decode(content)

    def read(self, call: Call[None, R], query: Query = NO_QUERY, **parameters: int | str) -> R:
        """Return the response of a call that reads."""
        return self.request(call, None, credential=None, query=query, **parameters)

    def triggers(self) -> TriggerList:
        """Return all triggers, with their counts and failures."""
        return TriggerList.model_validate(self._all(calls.LIST_TRIGGERS, "triggers"))

    def streams(self) -> StreamList:
        """Return all shared streams and their lanes."""
        return StreamList.model_validate(self._all(calls.LIST_STREAMS, "streams"))

    def upstreams(self) -> UpstreamList:
        """Return all upstreams that projects declare, with their readers and their lag."""
        return UpstreamList.model_validate(self._all(calls.LIST_UPSTREAMS, "upstreams"))

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
