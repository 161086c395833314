"""Malformed messages of a backlog wait for an upstream that cannot decode, and a decoder that blocks its process is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from headrace import retry
from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError
from headrace.streams.backlog import BacklogEntry
from headrace.streams.subscribers.raw_text import raw_event_text
from headrace.triggerer.process_pools.turn import ProcessEnded
from headrace.triggerer.runner.backlog_decoder import BacklogDecoder
from headrace.triggers.raw_event import Message, RawEvent
from headrace.triggers.upstream import SharedStreamProducer


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.Backoff, "next", lambda self, at_least=None: 0.001)


class Decoding(SharedStreamProducer):
    def __init__(self, decode: Callable[[Message], Message]) -> None:
        self._decode = decode

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        yield None, None

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        del batch

    async def decode_again(self, message: Message) -> Message:
        return self._decode(message)


def entry(number: int, raw: RawEvent) -> BacklogEntry:
    return BacklogEntry(number, "stream", raw.lane, raw.position, raw_event_text(raw))


BROKEN = entry(1, Message(b"\xff", "one", 1, headers=(("a", b"1"),), malformed="no schema"))


async def test_only_malformed_messages_are_decoded_and_the_text_stays() -> None:
    seen: list[Message] = []

    def decode(message: Message) -> Message:
        seen.append(message)
        return Message(b'{"n": 1}', message.lane, message.position)

    others = [entry(2, RawEvent(b"still broken", "one", 2)), entry(3, Message(b"NaN", "one", 3, key="k"))]
    found = await BacklogDecoder(lambda _: Decoding(decode)).decode("stream", [BROKEN, *others])
    assert [(one.data, one.headers, one.lane, one.position) for one in seen] == [(b"\xff", {"a": "1"}, "one", 1)]
    assert found[0].decoded is not None
    assert found[0].decoded.value == {"n": 1}
    assert found[0].raw == BROKEN.raw
    assert list(found[1:]) == others


async def test_an_upstream_that_cannot_decode_is_tried_again() -> None:
    asked = 0

    def producer_of(key: object) -> SharedStreamProducer | None:
        nonlocal asked
        asked += 1
        if asked == 1:
            return None
        return Decoding(unavailable if asked < 6 else lambda message: Message(b"{}", "one", 1))

    def unavailable(message: Message) -> Message:
        raise StreamError("The schema registry does not answer.")

    (found,) = await BacklogDecoder(producer_of).decode("stream", [BROKEN])
    assert (asked, found.decoded and found.decoded.data) == (6, b"{}")


async def test_a_message_whose_decoder_ends_its_process_twice_is_malformed() -> None:
    ended = 0

    def decode(message: Message) -> Message:
        nonlocal ended
        ended += 1
        raise ProcessEnded("The producer of shop: blocked for 60 s")

    (found,) = await BacklogDecoder(lambda _: Decoding(decode)).decode("stream", [BROKEN])
    assert ended == 2
    assert found.decoded is not None
    assert found.decoded.data == b"\xff"
    assert "blocked or ended 2 processes" in str(found.decoded.malformed)
