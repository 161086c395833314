"""The shared streams of one process: which keys are polled now, and by which group.

The law: a key is here only while its poll is alive and takes subscribers. The code that ends a stream removes the key first, in the same
synchronous step in which the subscribers are told, and waits afterwards; so one that comes a moment later gets a fresh stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from itertools import count
from typing import Final

from headrace.core.ledger.obligations import StreamCounters
from headrace.core.memory_budget import MemoryBudget
from headrace.errors import StreamError, UsageError
from headrace.streams.backlog import Backlog
from headrace.streams.limits.close_grace import LeftBehind
from headrace.streams.limits.policy import Overflow, StreamPolicy
from headrace.streams.receipt_recorder import ReceiptRecorder
from headrace.streams.shared_stream import SharedStream, StreamContext
from headrace.streams.sink import StreamSink, WatchSink
from headrace.streams.statistics import StreamStatistics
from headrace.streams.statistics_snapshot import MOST_LANES, survey
from headrace.streams.subscribers.failure_counter import FailureCounter
from headrace.streams.subscribers.subscription import Subscription
from headrace.streams.upstream.producer_factory import MakeProducer, StreamOpener, make_producer
from headrace.streams.watches import WatchSet
from headrace.triggers.base import BaseEventTrigger, has_acks, stream_name
from headrace.triggers.watch import WatchTrigger

SEQ_BITS: Final = 40
"""A seq is the number of its stream and, in so many bits, a count within it."""


class SharedStreamManager:
    """Gives every shared stream key one poll, however many triggers read it. Belongs to one event loop.

    `max_subscriber_queue`: raw events that may wait for one subscriber; when it is full, `overflow` says whether what waits is spilled (the
    default with a `StreamSink`; those who are not registered block), the poll pauses, or the subscriber fails.
    `max_outstanding`: raw events of one stream that are not advanced; at the bound the poll pauses. `ack_timeout`: seconds in which a
    subscriber must answer. `sink`: takes what declared watches make, and, being a `StreamSink`, what registered triggers cannot take.
    `recorder`: keeps custody. `max_attempts`: failures of one trigger on one raw event before that is a dead letter.
    `retry_wait`: the longest seconds before the last attempt; the waits before are shorter. The trigger's other lanes go on meanwhile.
    `advance_timeout`: seconds in which an advance must return; one that fails is tried `advance_attempts` times, with pauses between the
    two seconds of `advance_backoff`, with jitter, then the stream ends. `max_advances`: lanes advanced at once; one that takes longer than
    a second gives its place to another, so that there are up to four times as many with the slow ones (not where it is 1).
    `close_timeout`: seconds that all of a producer's code together may still take when a stream stops; what goes on then is left behind.
    `overflow_wait`: seconds for which the poll waits for subscribers with full queues that still read quickly.
    `budget`: the bytes that all streams may hold, 256 MiB where it is not given. `make_producer`: makes the producers.
    """

    def __init__(
        self,
        *,
        max_subscriber_queue: int = 1024,
        max_outstanding: int = 8192,
        ack_timeout: float = 300.0,
        overflow: Overflow | None = None,
        clock: Callable[[], float] = time.monotonic,
        sink: WatchSink | None = None,
        recorder: ReceiptRecorder | None = None,
        max_attempts: int = 5,
        retry_wait: float = 250.0,
        advance_backoff: tuple[float, float] = (0.1, 5.0),
        advance_attempts: int = 8,
        advance_timeout: float = 60.0,
        close_timeout: float = 30.0,
        max_advances: int = 16,
        overflow_wait: float = 0.0,
        budget: MemoryBudget | None = None,
        make_producer: MakeProducer = make_producer,
    ) -> None:
        can_spill = isinstance(sink, StreamSink)
        if overflow == "spill" and not can_spill:
            raise UsageError("Nothing can be spilled without a sink that takes it.", hint="Give the hub a StreamSink.")
        policy = StreamPolicy(
            max_subscriber_queue=max_subscriber_queue,
            max_outstanding=max_outstanding,
            ack_timeout=ack_timeout,
            overflow=overflow or ("spill" if can_spill else "block"),
            clock=clock,
            max_attempts=max_attempts,
            retry_wait=retry_wait,
            advance_backoff=advance_backoff,
            advance_attempts=advance_attempts,
            advance_timeout=advance_timeout,
            close_timeout=close_timeout,
            max_advances=max_advances,
            overflow_wait=overflow_wait,
        )
        self._around = StreamContext(policy, sink, recorder, LeftBehind(), budget or MemoryBudget())
        self._clock = clock
        self._make_producer = make_producer
        self._groups: dict[Hashable, SharedStream] = {}
        self._watches: dict[Hashable, WatchSet] = {}
        self._running: dict[int, SharedStream] = {}
        self._counts: dict[Hashable, StreamCounters] = {}
        self._registered: dict[Hashable, dict[int, FailureCounter]] = {}
        self._held: set[Hashable] = set()
        self._numbers = count(1)

    def register(self, *, trigger_ids: Iterable[int], key: Hashable) -> None:
        """Register these triggers: each owes an answer to every raw event of the stream from now on, whether its filter runs or not.

        Call it for all triggers of a stream that are written in Python, before the first `subscribe` or `watch` of it. What one of them
        cannot take is spilled. It holds across streams of the key that end and begin again, until `unregister`. Doubled changes nothing;
        so does a stream without acks. Raises `StreamError` without a `StreamSink`, or where a trigger subscribed without it.
        """
        if not isinstance(self._around.sink, StreamSink):
            raise StreamError("Registered triggers need a sink that takes what they cannot take.")
        registered = self._registered.setdefault(key, {})
        group = self._groups.get(key)
        for trigger_id in trigger_ids:
            trouble = registered.setdefault(trigger_id, FailureCounter())
            if group is not None:
                group.register(trigger_id, trouble)

    async def unregister(self, *, trigger_ids: Iterable[int], key: Hashable) -> None:
        """Remove triggers for good with all that they owe. Others go on.

        When no trigger is left, the stream is stopped, and what was owed is left to redelivery. To hand a stream over, `stop` it first.
        """
        gone = set(trigger_ids)
        registered = self._registered.get(key, {})
        for trigger_id in gone & registered.keys():
            del registered[trigger_id]
        if not registered:
            self._registered.pop(key, None)
        group = self._groups.get(key)
        if group is None:
            return
        if registered or group.watches or not gone.issuperset(group.mailboxes):
            for trigger_id in gone:
                group.drop(trigger_id)
        else:
            await group.stop()

    async def stop(self, key: Hashable) -> None:
        """Stop one stream and forget who is registered and declared: what is resolved is advanced, the rest is left to redelivery."""
        self._registered.pop(key, None)
        self._watches.pop(key, None)
        self._held.discard(key)
        group = self._groups.get(key)
        if group is not None:
            await group.stop()

    def hold(self, key: Hashable) -> None:
        """Read nothing on this stream, live or yet to come, until `release`; what was read goes on."""
        self._held.add(key)
        if (group := self._groups.get(key)) is not None:
            group.room.pause()

    def release(self, key: Hashable) -> None:
        """Read again."""
        self._held.discard(key)
        if (group := self._groups.get(key)) is not None:
            group.room.resume()

    async def quiesce(self, key: Hashable) -> None:
        """Read no more on this stream, and return when all that was read is advanced, or the stream has ended."""
        self.hold(key)
        if (group := self._groups.get(key)) is not None:
            await group.emptied()

    def fault(self, *, trigger_id: int, key: Hashable, error: Exception) -> int:
        """Remove a subscriber whose filter raised. It still owes its raw event, and gets it again first when it subscribes again.

        Instead of `unsubscribe`. Returns how often it has failed on this raw event now; 0: it was at none. After `max_attempts` times the
        sink gets it as `Poisoned`, and the trigger goes on with the next. One that is not registered just leaves.
        """
        group = self._groups.get(key)
        if group is None:
            return 0
        attempts = group.fault(trigger_id, error)
        if group.is_empty():
            group.end(None)
        return attempts

    def drain(self, *, trigger_id: int, key: Hashable) -> None:
        """Make a subscriber read its backlog before it goes on: it has a new entry, such as a redriven dead letter."""
        group = self._groups.get(key)
        if group is not None:
            group.recheck_backlog(trigger_id)

    def requeue(self, *, trigger_id: int, key: Hashable) -> None:
        """Remove a registered subscriber that did not fail. It gets its raw event again first when it subscribes again."""
        group = self._groups.get(key)
        if group is not None:
            group.requeue(trigger_id)

    def subscribe(
        self, *, trigger_id: int, trigger: BaseEventTrigger | StreamOpener, key: Hashable, backlog: Backlog | None = None
    ) -> Subscription:
        """Return the raw events of the stream for `trigger.filter_shared_stream`. Raises `StreamError`.

        With a `backlog` (the trigger is registered, or is so from now on): first what is kept there, then live, without gap or repeat; else
        from now on. The iterator raises `StreamEnded`, `AckTimeout` or `SubscriberOverflow`; `unsubscribe` or `fault` must follow.
        """
        if backlog is not None:
            self.register(trigger_ids=(trigger_id,), key=key)
        return self._group(trigger, key).subscribe(trigger_id, backlog)

    def watch(self, *, triggers: Mapping[int, WatchTrigger], key: str) -> None:
        """Make `triggers` the declared watches of the stream, in the place of those it had. Raises `StreamError`.

        There must be one at least; they leave by `unwatch` or `unsubscribe`.
        """
        if not triggers:
            raise StreamError(f"There is no watch to declare on the shared stream {key}.")
        if self._around.sink is None:
            raise StreamError("Declared watches need a sink.")
        # A stream that failed is opened again with the same watches: an index of 20,000 takes a quarter of a second to make.
        watches = self._watches.get(key)
        if watches is None or not watches.is_made_of(triggers):
            watches = self._watches[key] = WatchSet(triggers)
        self._group(next(iter(triggers.values())), key).watch(watches)

    def prepare(self, *, watches: WatchSet, key: str) -> None:
        """Keep an index that was made in slices for the `watch` with the same triggers, which makes none of its own then."""
        self._watches[key] = watches

    async def unwatch(self, *, trigger_ids: Collection[int], key: str) -> None:
        """Remove declared watches together. The stream stops when the last one has left."""
        if (watches := self._watches.get(key)) is not None:
            watches.discard(trigger_ids)
        group = self._groups.get(key)
        if group is None:
            return
        group.unwatch(trigger_ids)
        if group.is_empty():
            self._watches.pop(key, None)
            await group.stop()

    async def unsubscribe(self, trigger_id: int, key: Hashable) -> None:
        """Remove a trigger, subscribed or declared. The stream stops when the last one has left.

        One that is registered stays so: all it owes is spilled, and so is all that comes until it subscribes again.
        """
        group = self._groups.get(key)
        if group is None:
            return
        group.leave(trigger_id)
        if group.is_empty():
            self._watches.pop(key, None)
            await group.stop()

    def bind_pending_event(self, *, trigger_id: int, key: Hashable) -> int | None:
        """Tie a trigger event that was just yielded to the raw event the filter is at. Return None if there is nothing to confirm."""
        group = self._groups.get(key)
        mailbox = None if group is None else group.mailboxes.get(trigger_id)
        return None if mailbox is None else mailbox.bind()

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        """Record that these are durable; those that are unknown, late or doubled change nothing."""
        touched: SharedStream | None = None
        number = -1
        for seq in seqs:
            if seq >> SEQ_BITS != number:
                if touched is not None:
                    touched.confirmed()
                number = seq >> SEQ_BITS
                touched = self._running.get(number)
                if touched is not None:
                    ledger = touched.ledger
                    ledger.now = self._clock()
            if touched is not None:
                ledger.confirm(seq)
        if touched is not None and (ledger.changed or ledger.drainable):
            touched.confirmed()

    def mark_rejected(self, seq: int) -> None:
        """Count `seq` as rejected once it is confirmed: its durable item is a dead letter."""
        group = self._running.get(seq >> SEQ_BITS)
        if group is not None:
            group.ledger.mark_rejected(seq)

    async def stop_all(self) -> None:
        """Stop every stream: what is resolved is advanced, the rest is left to redelivery.

        Subscribers that still read get `StreamEnded`; the sink is not told.
        """
        for group in tuple(self._groups.values()):
            group.end(None)
        await asyncio.gather(*(group.stopped() for group in tuple(self._running.values())))

    def keys(self) -> tuple[Hashable, ...]:
        """Return the keys of the live streams."""
        return tuple(self._groups)

    def statistics(self, key: Hashable, *, most_lanes: int = MOST_LANES) -> StreamStatistics:
        """Return what the stream has done, and so many of its lanes; all zero for a key never seen."""
        group = self._groups.get(key)
        if group is not None:
            return survey(group, self._clock(), most_lanes)
        name = stream_name(key)
        left_behind = self._around.left_behind.count(name)
        return StreamStatistics.of(name, "ended", self._counts.get(key, StreamCounters()), left_behind=left_behind)

    def forget(self, key: Hashable) -> None:
        """Forget what a stream did that has ended; one that lives is not forgotten."""
        if key not in self._groups:
            self._counts.pop(key, None)

    def _group(self, trigger: BaseEventTrigger | StreamOpener, key: Hashable) -> SharedStream:
        """The live stream of the key, or a new one, which starts when the running code next waits."""
        if key is None:
            raise StreamError("A shared stream needs a key that is not None.")
        group = self._groups.get(key)
        if group is None:
            opener = trigger if isinstance(trigger, StreamOpener) else StreamOpener(type(trigger), trigger.serialize()[1])
            number = next(self._numbers)
            group = self._groups[key] = self._running[number] = SharedStream(
                key,
                lambda: self._make_producer(key, opener),
                self._around,
                acks=has_acks(opener.kind),
                counts=self._counts.setdefault(key, StreamCounters()),
                first_seq=number << SEQ_BITS,
                on_end=self._evict,
            )
            if key in self._held:
                group.room.pause()
            for trigger_id, trouble in self._registered.get(key, {}).items():
                group.register(trigger_id, trouble)
            group.task.add_done_callback(lambda _: self._running.pop(number))
        return group

    def _evict(self, group: SharedStream) -> None:
        if self._groups.get(group.key) is group:
            del self._groups[group.key]
