"""The shared streams of one process, by key.

The law: a key is in the manager only while its poll runs and accepts subscribers. The code that ends a stream removes the key first, in
the same synchronous step that notifies the subscribers, and waits afterwards. So the next subscriber gets a new stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Set
from dataclasses import replace
from itertools import count
from typing import Final

from headrace.core.ledger.counters import StreamCounters
from headrace.core.memory_budget import MemoryBudget
from headrace.errors import StreamError, UsageError
from headrace.streams.backlog import Backlog
from headrace.streams.limits.close_grace import LeftBehind
from headrace.streams.limits.policy import Overflow, StreamPolicy
from headrace.streams.pattern_sampler import PatternSample
from headrace.streams.receipt_recorder import ReceiptRecorder
from headrace.streams.shared_stream import SharedStream, StreamContext
from headrace.streams.sink import StreamSink, WatchSink
from headrace.streams.statistics import StreamStatistics
from headrace.streams.statistics_snapshot import MAX_LANES, snapshot_statistics
from headrace.streams.subscribers.failure_counter import FailureCounter
from headrace.streams.subscribers.subscription import Subscription
from headrace.streams.upstream.producer_factory import MakeProducer, StreamOpener, make_producer
from headrace.streams.watches import WatchSet
from headrace.triggers.base import BaseEventTrigger, has_acks, stream_name
from headrace.triggers.upstream import SharedStreamProducer
from headrace.triggers.watch import WatchTrigger

SEQ_BITS: Final = 40
"""The low bits of a seq count within one stream; the high bits are the number of the stream."""


class SharedStreamManager:
    """Runs one poll for each shared stream key, for any number of triggers. Belongs to one event loop.

    `max_subscriber_queue`: limit of raw events queued for one subscriber. When it is reached, `overflow` decides: the queue is spilled (the
    default with a `StreamSink`; subscribers that are not registered block), the poll pauses, or the subscriber fails.
    `max_outstanding`: limit of raw events of one stream that are not advanced; when it is reached, the poll pauses. `ack_timeout`: seconds
    in which a subscriber must answer. `sink`: gets the matches of declared watches and, if it is a `StreamSink`, the raw events that
    registered triggers could not process. `recorder`: records receipts. `max_attempts`: failures of one trigger on one raw event before
    it becomes a dead letter. `retry_wait`: maximum seconds before the last attempt; earlier waits are shorter, and other lanes of the
    trigger continue meanwhile. `advance_timeout`: seconds in which an advance must return. An advance is tried up to `advance_attempts`
    times, after waits between the two seconds of `advance_backoff`, with jitter; then the stream ends. `max_advances`: lanes advanced
    concurrently. An advance that takes longer than 1 s releases its slot, so that up to four times as many run (unless it is 1).
    `close_timeout`: seconds in total for the code of a producer when its stream stops; code that still runs then is left behind.
    `overflow_wait`: seconds for which the poll waits for subscribers with full queues that still read quickly.
    `budget`: limit of the bytes that all streams hold, by default 256 MiB. `make_producer`: creates the producers.
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
            raise UsageError("Nothing can be spilled without a sink that takes it.", hint="Give the manager a StreamSink.")
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
        self._context = StreamContext(policy, sink, recorder, LeftBehind(), budget or MemoryBudget())
        self._clock = clock
        self._make_producer = make_producer
        self._streams: dict[Hashable, SharedStream] = {}
        self._watches: dict[Hashable, WatchSet] = {}
        self._running: dict[int, SharedStream] = {}
        self._counters: dict[Hashable, StreamCounters] = {}
        self._registered: dict[Hashable, dict[int, FailureCounter]] = {}
        self._paused: set[Hashable] = set()
        self._numbers = count(1)

    def register(self, *, trigger_ids: Iterable[int], key: Hashable) -> None:
        """Register triggers: each owes an answer to every later raw event of the stream, whether its filter runs or not.

        Call it for all triggers of a stream with their own filter, before the first `subscribe` or `watch` of the stream. Raw events that
        a registered trigger cannot process are spilled. The registration survives restarts of the stream, until `unregister`. A repeated
        registration, or one for a stream without acks, changes nothing. A declared watch becomes a registered trigger in one step: it owes
        each raw event as one of both. Raises `StreamError` without a `StreamSink`, or if a trigger subscribed before its registration.
        """
        if not isinstance(self._context.sink, StreamSink):
            raise StreamError("Registered triggers need a sink that takes what they cannot take.")
        registered = self._registered.setdefault(key, {})
        stream, trigger_ids = self._streams.get(key), list(trigger_ids)
        if stream is not None and any(one in stream.watches for one in trigger_ids):
            stream.unwatch(trigger_ids)
        if (watches := self._watches.get(key)) is not None and any(one in watches for one in trigger_ids):
            watches.discard(trigger_ids)  # the index of a stream that opens again
        for trigger_id in trigger_ids:
            failures = registered.setdefault(trigger_id, FailureCounter())
            if stream is not None:
                stream.register(trigger_id, failures)

    async def unregister(self, *, trigger_ids: Iterable[int], key: Hashable) -> None:
        """Remove triggers permanently with all that they owe. Other triggers are not affected.

        When no trigger is left, the stream is stopped, and unanswered raw events are left to redelivery. To hand a stream over, `stop` it
        first.
        """
        removed = set(trigger_ids)
        registered = self._drop_registrations(removed, key)
        stream = self._streams.get(key)
        if stream is None:
            return
        if registered or stream.watches or not removed.issuperset(stream.subscriptions):
            for trigger_id in removed:
                stream.drop(trigger_id)
        else:
            await stream.stop()

    async def stop(self, key: Hashable) -> None:
        """Stop one stream and remove its triggers. Resolved raw events are advanced, the rest is left to redelivery."""
        self._registered.pop(key, None)
        self._watches.pop(key, None)
        self._paused.discard(key)
        stream = self._streams.get(key)
        if stream is not None:
            await stream.stop()

    def hold(self, key: Hashable) -> None:
        """Pause reading of this stream, also of a future one, until `release`. Raw events that were read are processed."""
        self._paused.add(key)
        if (stream := self._streams.get(key)) is not None:
            stream.flow_control.pause()

    def release(self, key: Hashable) -> None:
        """Resume reading."""
        self._paused.discard(key)
        if (stream := self._streams.get(key)) is not None:
            stream.flow_control.resume()

    async def quiesce(self, key: Hashable) -> None:
        """Pause reading of this stream, and wait until all raw events that were read are advanced, or the stream has ended."""
        self.hold(key)
        if (stream := self._streams.get(key)) is not None:
            await stream.flow_control.wait_empty(lambda: stream.state == "ending")

    def record_failure(self, *, trigger_id: int, key: Hashable, error: Exception) -> int:
        """Remove a subscriber whose filter raised. It still owes its raw event, and gets it first when it subscribes again.

        Call it instead of `unsubscribe`. Returns the number of failures on this raw event, or 0 if no raw event was open. After
        `max_attempts` failures the sink gets it as `Poisoned`, and the trigger continues with the next one. A subscriber that is not
        registered just leaves.
        """
        stream = self._streams.get(key)
        if stream is None:
            return 0
        attempts = stream.record_failure(trigger_id, error)
        if stream.is_empty():
            stream.end(None)
        return attempts

    def recheck_backlog(self, *, trigger_id: int, key: Hashable) -> None:
        """Make a subscriber read its backlog before it continues: it has a new entry, such as a redriven dead letter."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.recheck_backlog(trigger_id)

    def requeue(self, *, trigger_id: int, key: Hashable) -> None:
        """Remove a registered subscriber that did not fail. It gets its open raw event first when it subscribes again."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.requeue(trigger_id)

    def subscribe(
        self, *, trigger_id: int, trigger: BaseEventTrigger | StreamOpener, key: Hashable, backlog: Backlog | None = None
    ) -> Subscription:
        """Return the raw events of the stream for `trigger.filter_shared_stream`. Raises `StreamError`.

        With a `backlog`, the trigger is or becomes registered, and reads first its backlog, then the stream, without gap or repetition;
        else it reads the stream from now on. The iterator raises `StreamEnded`, `AckTimeout` or `SubscriberOverflow`; then call
        `unsubscribe` or `record_failure`.
        """
        if backlog is not None:
            self.register(trigger_ids=(trigger_id,), key=key)
        return self._get_or_open(trigger, key).subscribe(trigger_id, backlog)

    def watch(self, *, triggers: Mapping[int, WatchTrigger], key: str) -> None:
        """Replace the declared watches of the stream by `triggers`, at least one. Raises `StreamError`.

        A registered trigger without a subscription becomes a watch in one step: it owes each raw event as one of both. What it owed before
        is spilled. Remove watches by `unwatch` or `unsubscribe`.
        """
        if not triggers:
            raise StreamError(f"There is no watch to declare on the shared stream {key}.")
        if self._context.sink is None:
            raise StreamError("Declared watches need a sink.")
        # A failed stream is opened again with the same watches, and an index of 20,000 takes a quarter of a second to build.
        watches = self._watches.get(key)
        if watches is None or not watches.has_triggers(triggers):
            watches = self._watches[key] = WatchSet(triggers)
        self._get_or_open(next(iter(triggers.values())), key).watch(watches)
        self._drop_registrations(triggers.keys(), key)

    def prepare(self, *, watches: WatchSet, key: str) -> None:
        """Store an index that was built in slices. The next `watch` with the same triggers uses it."""
        self._watches[key] = watches

    async def unwatch(self, *, trigger_ids: Collection[int], key: str) -> None:
        """Remove declared watches. The stream stops when its last trigger has left."""
        if (watches := self._watches.get(key)) is not None:
            watches.discard(trigger_ids)
        # A trigger whose declaration waits until its stream opens again is still registered.
        if registered := self._registered.get(key, {}).keys() & set(trigger_ids):
            await self.unregister(trigger_ids=registered, key=key)
        stream = self._streams.get(key)
        if stream is None:
            return
        stream.unwatch(trigger_ids)
        if stream.is_empty():
            self._watches.pop(key, None)
            await stream.stop()

    async def unsubscribe(self, trigger_id: int, key: Hashable) -> None:
        """Remove a trigger, subscribed or declared. The stream stops when its last trigger has left.

        A registered trigger stays registered: all that it owes is spilled, and so are later raw events until it subscribes again.
        """
        stream = self._streams.get(key)
        if stream is None:
            return
        stream.leave(trigger_id)
        if stream.is_empty():
            self._watches.pop(key, None)
            await stream.stop()

    def bind_pending_event(self, *, trigger_id: int, key: Hashable) -> int | None:
        """Bind a trigger event that was just yielded to the open raw event. Return its seq, or None if there is nothing to confirm."""
        stream = self._streams.get(key)
        subscription = None if stream is None else stream.subscriptions.get(trigger_id)
        return None if subscription is None else subscription.bind()

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        """Record that the items with these seqs are durable. Unknown, late and repeated seqs change nothing."""
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
        if touched is not None and (ledger.changed or ledger.to_wake):
            touched.confirmed()

    def mark_rejected(self, seq: int) -> None:
        """Count `seq` as rejected once it is confirmed: its durable item is a dead letter."""
        stream = self._running.get(seq >> SEQ_BITS)
        if stream is not None:
            stream.ledger.mark_rejected(seq)

    async def stop_all(self) -> None:
        """Stop every stream. Resolved raw events are advanced, the rest is left to redelivery.

        Subscribers that still read get `StreamEnded`. The sink is not notified.
        """
        for stream in tuple(self._streams.values()):
            stream.end(None)
        await asyncio.gather(*(stream.stopped() for stream in tuple(self._running.values())))

    def producer(self, key: Hashable) -> SharedStreamProducer | None:
        """Return the producer of a live stream, or None if it has none now."""
        stream = self._streams.get(key)
        return None if stream is None else stream.producer

    def keys(self) -> tuple[Hashable, ...]:
        """Return the keys of the live streams."""
        return tuple(self._streams)

    def statistics(self, key: Hashable, *, max_lanes: int = MAX_LANES) -> StreamStatistics:
        """Return the statistics of a stream with at most `max_lanes` lanes; all zero for an unknown key."""
        stream = self._streams.get(key)
        if stream is not None:
            return snapshot_statistics(stream, self._clock(), max_lanes)
        name = stream_name(key)
        left_behind = self._context.left_behind.count(name)
        return StreamStatistics(name, "ended", replace(self._counters.get(key) or StreamCounters()), left_behind=left_behind)

    def pattern_samples(self, limit: int) -> list[PatternSample]:
        """Return the new counts of watches whose patterns were sampled, at most `limit`, of all streams in equal parts."""
        share = max(1, limit // max(1, len(self._watches)))
        samples: list[PatternSample] = []
        for key, watches in list(self._watches.items()):
            if len(samples) >= limit:
                break
            if taken := watches.sampler.take(min(share, limit - len(samples))):
                samples += taken
                self._watches[key] = self._watches.pop(key)  # last, so that the others have their turn
        return samples

    def drop_counters(self, key: Hashable) -> None:
        """Drop the counters of a stream that has ended. A live one is not changed."""
        if key not in self._streams:
            self._counters.pop(key, None)

    def _drop_registrations(self, trigger_ids: Set[int], key: Hashable) -> Mapping[int, FailureCounter]:
        """Drop the registrations of these triggers, and return the others of the stream."""
        registered = self._registered.get(key, {})
        for trigger_id in registered.keys() & trigger_ids:
            del registered[trigger_id]
        if not registered:
            self._registered.pop(key, None)
        return registered

    def _get_or_open(self, trigger: BaseEventTrigger | StreamOpener, key: Hashable) -> SharedStream:
        """Return the live stream of the key, or a new one, which starts when the running code next awaits."""
        if key is None:
            raise StreamError("A shared stream needs a key that is not None.")
        stream = self._streams.get(key)
        if stream is None:
            opener = trigger if isinstance(trigger, StreamOpener) else StreamOpener(type(trigger), trigger.serialize()[1])
            number = next(self._numbers)
            stream = self._streams[key] = self._running[number] = SharedStream(
                key,
                lambda: self._make_producer(key, opener),
                self._context,
                acks=has_acks(opener.kind),
                counters=self._counters.setdefault(key, StreamCounters()),
                first_seq=number << SEQ_BITS,
                on_end=self._evict,
            )
            if key in self._paused:
                stream.flow_control.pause()
            for trigger_id, failures in self._registered.get(key, {}).items():
                stream.register(trigger_id, failures)
            stream.task.add_done_callback(lambda _: self._running.pop(number))
        return stream

    def _evict(self, stream: SharedStream) -> None:
        if self._streams.get(stream.key) is stream:
            del self._streams[stream.key]
