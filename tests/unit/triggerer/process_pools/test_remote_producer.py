"""A producer in another process behaves for its stream like a local one: its items, its advances and its errors."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, cast

import msgspec
import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.core.memory_budget import MemoryBudget
from headrace.errors import MalformedEvent, StreamEnded, StreamMoved, UpstreamFenced
from headrace.streams.subscribers.raw_text import to_text
from headrace.triggerer.ipc.packing import pack, unpack
from headrace.triggerer.process_pools.producer_pool import ProducerProcesses
from headrace.triggerer.process_pools.remote_producer import RemoteProducer
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.packed import PackedEvent, PackedSubclass
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer
from support.processes.trigger_process import LocalProcess, local_producers


class Note(RawEvent):
    """A user's subclass, with a field of its own."""

    __slots__ = ("note",)
    note: str


class Odd:
    """No JSON."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd)

    def __repr__(self) -> str:
        return "an odd one"


class Producer(SharedStreamProducer):
    """Yields what a test put into `feed`, and notes what it is advanced past."""

    feed: ClassVar[list[tuple[Any, Any]]] = []
    advanced: ClassVar[list[list[AdvanceItem]]] = []
    made: ClassVar[list[Producer]] = []
    stubborn: ClassVar[bool] = False
    unread: ClassVar[Any] = None

    def __init__(self) -> None:
        Producer.made.append(self)
        self.closed = 0

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        for item in Producer.feed:
            yield item
        await asyncio.Event().wait()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        Producer.advanced.append(list(batch))
        if batch[0].broker_payload[0] == "fails":
            raise OSError("the broker is gone")
        if batch[0].broker_payload[0] == "fenced":
            raise UpstreamFenced("another reader has the queue")
        if batch[0].broker_payload[0] == "hangs":
            await asyncio.Event().wait()

    def get_advance_lane(self, broker_payload: Any) -> Any:
        if broker_payload[0] == "nowhere":
            raise ValueError("no lane")
        return broker_payload[0]

    def get_position(self, broker_payload: Any) -> int | None:
        position: int | None = broker_payload[1]
        return position

    def get_unread(self) -> int | None:
        if isinstance(Producer.unread, BaseException):
            raise Producer.unread
        return cast("int | None", Producer.unread)

    async def aclose(self) -> None:
        self.closed += 1


class Reads(BaseEventTrigger):
    """Opens a `Producer`."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Reads", {}

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return Producer()


@pytest.fixture
def feed() -> list[tuple[Any, Any]]:
    for kept in (Producer.feed, Producer.advanced, Producer.made):
        kept.clear()
    return Producer.feed


def remote(pool: ProducerProcesses, stream: str = "s", budget: MemoryBudget | None = None) -> RemoteProducer:
    return RemoteProducer(stream, f"{__name__}.Reads", b"{}", pool, budget or MemoryBudget(), acks=True)


async def read(producer: RemoteProducer, count: int) -> tuple[AsyncIterator[Any], list[tuple[Any, Any]]]:
    stream = producer.open_stream()
    async with asyncio.timeout(120):
        return stream, [await anext(stream) for _ in range(count)]


async def test_lanes_positions_and_payloads_come_from_the_producer(feed: list[tuple[Any, Any]]) -> None:
    feed += [({"n": n}, ("ab"[n % 2], n)) for n in range(6)]
    pool = local_producers()
    producer = remote(pool)
    stream, items = await read(producer, 6)
    assert [raw for raw, _ in items] == [{"n": n} for n in range(6)]
    lanes = [producer.get_advance_lane(payload) for _, payload in items]
    assert [str(lane) for lane in lanes] == ["a", "b"] * 3
    assert len(set(lanes)) == 2
    assert [producer.get_position(payload) for _, payload in items] == [*range(6)]
    outcome = AdvanceOutcome(1, 0, 2, 3)
    for lane in (0, 1):
        await producer.advance([AdvanceItem(payload, outcome) for _, payload in items[lane::2]])
    assert Producer.advanced == [[AdvanceItem(feed[n][1], outcome) for n in range(lane, 6, 2)] for lane in (0, 1)]
    assert producer._lanes == {}, "nothing of them is owed"
    await stream.aclose()  # type: ignore[attr-defined]
    await producer.aclose()
    assert Producer.made[0].closed == 1
    await pool.close()


@pytest.mark.parametrize(
    ("answer", "expected"), [(7, 9), (None, None), (OSError("no count"), "no count"), (2**63, "get_unread returned")], ids=str
)
async def test_the_number_of_unread_messages_crosses_the_processes(
    feed: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch, answer: Any, expected: Any
) -> None:
    """Two raw events are in the runner, and the stream has not taken them: they are unread too."""
    monkeypatch.setattr(Producer, "unread", answer)
    feed += [({"n": n}, ("a", n)) for n in range(3)]
    pool = local_producers()
    producer = remote(pool)
    stream, _ = await read(producer, 1)

    def said() -> Any:
        producer.get_errors()
        try:
            return producer.get_unread()
        except Exception as error:
            return expected if str(expected) in str(error) else error

    async with asyncio.timeout(120):
        while said() != expected or producer._query_pending or len(producer._items) != 2:
            await asyncio.sleep(0)
    await stream.aclose()  # type: ignore[attr-defined]
    await producer.aclose()
    await pool.close()


async def test_errors_and_cancellations_of_advance_cross_the_processes(feed: list[tuple[Any, Any]]) -> None:
    feed += [({"n": 0}, ("fails", 0)), ({"n": 1}, ("hangs", 1))]
    pool = local_producers()
    producer = remote(pool)
    _, items = await read(producer, 2)
    with pytest.raises(Exception, match="the broker is gone") as raised:
        await producer.advance([AdvanceItem(items[0][1], AdvanceOutcome(1, 0))])
    assert type(raised.value).__name__ == "OSError"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await producer.advance([AdvanceItem(items[1][1], AdvanceOutcome(1, 0))])
    assert [str(lane) for lane in producer._lanes.values()] == ["fails", "hangs"], "both are still owed"
    await pool.close()


async def test_a_fenced_reader_in_the_process_ends_its_stream(feed: list[tuple[Any, Any]]) -> None:
    feed += [({"n": 0}, ("fenced", 0))]
    pool = local_producers()
    producer = remote(pool)
    _, items = await read(producer, 1)
    with pytest.raises(StreamEnded, match="another reader has the queue"):
        await producer.advance([AdvanceItem(items[0][1], AdvanceOutcome(1, 0))])
    await pool.close()


async def test_an_error_in_get_advance_lane_fails_only_its_raw_event(feed: list[tuple[Any, Any]]) -> None:
    feed += [({"n": 0}, ("nowhere", 0)), ({"n": 1}, ("a", 1.5)), ({"n": 2}, ("a", 2))]
    pool = local_producers()
    producer = remote(pool)
    _, items = await read(producer, 3)
    with pytest.raises(Exception, match="no lane"):
        producer.get_advance_lane(items[0][1])
    with pytest.raises(Exception, match="float"):
        producer.get_position(items[1][1])
    assert producer.get_position(items[2][1]) == 2
    await pool.close()


async def test_read_ahead_is_limited(feed: list[tuple[Any, Any]]) -> None:
    feed += [({"n": n}, ("a", n)) for n in range(5000)]
    pool = local_producers()
    producer = remote(pool)
    stream, _ = await read(producer, 1)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(producer._items) <= 512
    async with asyncio.timeout(120):
        rest = [(await anext(stream))[0]["n"] for _ in range(4999)]
    assert rest == [*range(1, 5000)]
    await pool.close()


async def test_other_producers_of_a_blocked_process_restart_in_another_process(feed: list[tuple[Any, Any]]) -> None:
    pool = local_producers()
    good, bad = remote(pool, "good"), remote(pool, "bad")
    feed += [({"n": 0}, ("a", 0))]
    streams = [(await read(one, 1))[0] for one in (good, bad)]
    (process,) = {pool._assigned[one.trigger_id] for one in (good, bad)}
    local = cast(LocalProcess, process._process)
    local.heartbeat = type(local.heartbeat)()
    local.heartbeat.numbers[1] = bad.trigger_id
    pool.on_stalled(process, 0.6)
    with pytest.raises(StreamMoved):  # also while the stream takes no raw events
        await good.advance([])
    for stream in streams:
        with pytest.raises(StreamMoved):
            await anext(stream)
    again = [remote(pool, "good"), remote(pool, "bad")]
    for one in again:
        await read(one, 1)
    homes = [pool._assigned[one.trigger_id] for one in again]
    assert process not in homes
    assert homes[0] is not homes[1], "who blocked is alone"
    await pool.close()


async def test_a_moved_producer_opens_after_its_old_process_has_ended(feed: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    pool = local_producers()
    good, bad = remote(pool, "good"), remote(pool, "bad")
    feed += [({"n": 0}, ("a", 0))]
    stream, _ = await read(good, 1)
    await read(bad, 1)
    process = pool._assigned[good.trigger_id]
    may_end, close = asyncio.Event(), process.close

    async def close_slowly() -> None:
        await may_end.wait()
        await close()

    monkeypatch.setattr(process, "close", close_slowly)
    pool.end_process(bad)
    with pytest.raises(StreamMoved):
        await anext(stream)
    opened = len(Producer.made)
    reading = asyncio.create_task(read(remote(pool, "good"), 1))
    await read(remote(pool, "new"), 1)  # a producer that was not there does not wait
    opened_early = len(Producer.made) - opened - 1
    may_end.set()
    await reading
    await pool.close()
    assert not opened_early, "the old process may still have the broker's lock"


def note() -> Note:
    found = Note(b'{"n":1}', "a", 1)
    found.note = "kept"
    return found


def test_a_raw_event_arrives_without_users_classes() -> None:
    plain = {"n": 1, "list": [1.5, None, "x"]}
    assert unpack(pack(plain, "a", 1)) == plain
    text = unpack(pack(RawEvent(b"{}", "a", 7), "a", 7))
    assert (type(text), text.data, text.position) == (RawEvent, b"{}", 7)
    subclass = unpack(pack(note(), "a", 1))
    assert isinstance(subclass, PackedSubclass)
    assert subclass.value == {"n": 1}
    assert pickle.loads(subclass.packed).note == "kept"
    odd = unpack(pack(Odd(), "a", 1))
    assert isinstance(odd, PackedEvent)
    assert pickle.loads(odd.pickled()) == Odd()
    assert repr(odd) == "an odd one"
    with pytest.raises(MalformedEvent, match="not Odd"):
        odd.event("a", 1)
    with pytest.raises(MalformedEvent, match="cannot be kept in a backlog"):
        to_text(odd)


NO_BYTES: Any = "no bytes"
STRANGE = [lambda: 0, {"n": object()}, RawEvent(NO_BYTES, "a", 1), RawEvent(b"{}", "\ud800", 1), {1: (2,)}, {"x": {3}}]


@pytest.mark.parametrize("raw", STRANGE)
def test_any_raw_event_arrives_unchanged(raw: Any) -> None:
    packed = pack(raw, "a", 1)
    arrived = unpack(msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=type(packed)))
    assert isinstance(arrived, PackedEvent | dict | RawEvent)
