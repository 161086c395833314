"""An endpoint decodes large bodies beside the event loop, and counts the memory of their messages."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.receiver import endpoint as module
from headrace.receiver.body import BodyReader
from headrace.receiver.endpoint import Endpoint
from headrace.sources.http.decoding import DecodedRequest, RequestDecoding, decode_request
from headrace.sources.http.rejection import RequestRejected
from headrace.sources.http.upstream import Http

LINES = {"content-type": "application/x-ndjson"}


async def test_a_large_body_is_decoded_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def recorded(decoding: RequestDecoding, headers: Mapping[str, str], body: bytes, now_ms: int) -> DecodedRequest:
        threads.append(threading.current_thread())
        return decode_request(decoding, headers, body, now_ms)

    monkeypatch.setattr(module, "decode_request", recorded)
    endpoint = Endpoint(Http("orders", verify="none", folder=tmp_path))
    assert (await endpoint.accept(LINES, b"1\n")).status == 202
    assert (await endpoint.accept(LINES, b'"' + b"x" * 100_000 + b'"\n')).status == 202
    assert (await endpoint.accept(LINES, b"{" * 100_000)).status == 400
    await endpoint.inbox.close()
    assert [thread is threading.main_thread() for thread in threads] == [True, False, False]


async def test_messages_that_need_more_memory_than_is_left_are_refused(tmp_path: Path) -> None:
    endpoint = Endpoint(Http("orders", verify="none", folder=tmp_path))
    small = BodyReader(max_bodies_bytes=10_000)
    assert (await endpoint.accept(LINES, b"1\n" * 10, small.holding)).status == 202
    with pytest.raises(RequestRejected) as rejected:
        await endpoint.accept(LINES | {"user-agent": "a" * 1_000}, b"1\n" * 10, small.holding)
    assert rejected.value.status == 503
    await endpoint.inbox.close()
