"""Each raw event of a watch's backlog becomes an event or a dead letter before it is settled, with the stream from which it came."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from headrace import retry
from headrace.errors import ApiUnavailable
from headrace.ports.triggerer_api import TriggererApi
from headrace.sources.memory.upstream import Memory
from headrace.streams.subscribers.raw_text import to_text
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.uploader import Uploader
from headrace.triggerer.runner.backlog_decoder import BacklogDecoder
from headrace.triggerer.runner.redrive import Redrive
from headrace.triggers.raw_event import Message, RawEvent
from headrace.triggers.watch import WatchTrigger
from headrace.wire.custody.backlog import BacklogItem, BacklogPage, SettleBacklog
from headrace.wire.custody.events import BatchStored, DeadLetterItem, EventBatch, EventItem
from support.processes.api_twin import ApiTwin


@dataclass
class Api(ApiTwin):
    """The backlog of one trigger in memory. `is_failing`: it fails on each event alone, and stores all else."""

    entries: list[BacklogItem]
    is_failing: bool = False
    events: list[EventItem] = field(default_factory=list)
    letters: dict[str, DeadLetterItem] = field(default_factory=dict)
    answers: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    letters_at_settlement: int = 0

    async def store(self, batch: EventBatch) -> BatchStored:
        if self.is_failing and batch.events:
            raise ApiUnavailable("status 500", status=500)
        self.events += batch.events
        letters = ["duplicate" if one.id in self.letters else "stored" for one in batch.dead_letters]
        self.letters |= {one.id: one for one in batch.dead_letters}
        return BatchStored.model_validate({"events": ["stored"] * len(batch.events), "dead_letters": letters})

    async def backlog(self, trigger_id: int, after: int, limit: int) -> BacklogPage:
        items = [item for item in self.entries if item.number > after]
        return BacklogPage(items=items[:limit], depth=len(items))

    async def settle(self, settled: SettleBacklog, trigger_id: int) -> None:
        self.answers |= {one.number: (one.answer, one.reason) for one in settled.settled}
        self.letters_at_settlement = len(self.letters)


class Listener:
    def confirm_persisted(self, seqs: Any) -> None:
        del seqs

    def mark_rejected(self, seq: int) -> None:
        raise AssertionError(seq)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.Backoff, "next", lambda *_: 0.0)


@pytest.fixture
def watch(tmp_path: Path) -> WatchTrigger:
    return WatchTrigger(upstream=Memory(str(tmp_path)), id="$.key")


def entry(number: int, raw: Any, stream: str = "memory:former", **other: Any) -> BacklogItem:
    return BacklogItem(number=number, stream=stream, lane="one", position=number, raw=to_text(raw), **other)


async def drain(api: Api, trigger: WatchTrigger) -> list[str]:
    """Process the backlog to its end. Return the streams whose dead letters may be open again."""
    outbox, reopened = Outbox(), list[str]()
    uploading = asyncio.create_task(Uploader(api, outbox, Listener(), lambda ids: dict.fromkeys(ids, 1)).run())
    decoder = BacklogDecoder(lambda _: None)
    redrive = Redrive(cast(TriggererApi, api), outbox, lambda _: 1, decoder, reopened.append)
    redrive.start(7, trigger)
    async with asyncio.timeout(20):
        while "redrive 7" in {task.get_name() for task in asyncio.all_tasks()}:
            await asyncio.sleep(0)
    uploading.cancel()
    await asyncio.wait({uploading})
    return reopened


async def test_an_unusable_spilled_raw_event_becomes_a_dead_letter_before_it_is_settled(watch: WatchTrigger) -> None:
    texts = [RawEvent(b"not JSON", "one", 1), RawEvent(b'{"n": 2}', "one", 2), ["no mapping"], RawEvent(b'{"key": "k"}', "one", 4)]
    api = Api([entry(number, raw) for number, raw in enumerate(texts, 1)])
    assert await drain(api, watch) == [watch.shared_stream_key()]
    assert {number: answer for number, (answer, _) in api.answers.items()} == dict.fromkeys((1, 2, 3), "dead_lettered") | {4: "fired"}
    assert [(one.kind, one.stream, one.lane, one.position, one.triggers, one.raw) for one in api.letters.values()] == [
        ("malformed", "memory:former", "one", 1, [7], "not JSON"),
        ("missing_field", "memory:former", "one", 2, [7], '{"n": 2}'),
        ("malformed", "memory:former", "one", 3, [7], to_text(["no mapping"])),
    ]
    assert sorted(api.letters) == [f"memory:former/one/{end}" for end in ("1/malformed/7", "2/missing_field/7", "3/malformed/7")]
    assert api.letters_at_settlement == 3


async def test_an_unusable_redriven_raw_event_has_its_dead_letter_already(watch: WatchTrigger) -> None:
    api = Api([entry(1, RawEvent(b"not JSON", "one", 1), redriven=True)])
    await drain(api, watch)
    assert api.letters == {}
    (answer,) = api.answers.values()
    assert answer[0] == "dead_lettered"
    assert answer[1]


async def test_a_spilled_mapping_of_a_producer_is_matched(watch: WatchTrigger) -> None:
    api = Api([entry(1, {"n": 1, "key": "k1"}), entry(2, {"n": 2, "key": "k2"}, redriven=True)])
    await drain(api, watch)
    assert [(one.id, one.payload) for one in api.events] == [("k1", '{"n":1,"key":"k1"}'), ("k2", '{"n":2,"key":"k2"}')]
    assert {answer for answer, _ in api.answers.values()} == {"fired"}
    assert api.letters == {}


async def test_an_event_of_a_former_stream_keeps_its_stream(tmp_path: Path) -> None:
    watch = WatchTrigger(upstream=Memory(str(tmp_path)))
    here = watch.shared_stream_key()
    api = Api([entry(1, RawEvent(b"{}", "one", 1)), entry(2, RawEvent(b"{}", "one", 2), stream=here)])
    await drain(api, watch)
    assert [(one.stream, one.position) for one in api.events] == [("memory:former", 1), (here, 2)]
    former, present = api.events
    assert former.id.startswith("memory:former/")
    assert present.id.startswith(f"{here}/")


async def test_a_malformed_message_of_a_former_stream_is_not_decoded_by_the_present_one(watch: WatchTrigger) -> None:
    """No stream is open here, so a message of the present stream would wait."""
    api = Api([entry(1, Message(b"\xff", "one", 1, malformed="no schema"))])
    await drain(api, watch)
    assert [(one.kind, one.reason) for one in api.letters.values()] == [("malformed", "no schema")]


async def test_an_event_that_the_api_refuses_again_is_answered_as_a_dead_letter(watch: WatchTrigger) -> None:
    api = Api([entry(1, RawEvent(b'{"key": "k"}', "one", 1), redriven=True)], is_failing=True)
    await drain(api, watch)
    assert {number: answer for number, (answer, _) in api.answers.items()} == {1: "dead_lettered"}
    assert [(one.kind, one.position) for one in api.letters.values()] == [("failed", 1)]
