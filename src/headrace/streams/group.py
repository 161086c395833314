"""One live shared stream: a poll that fans out, a pump that advances, and a timer that fails those who do not answer.

The law: the stream ends once, in `end`, in one synchronous step: it is evicted and every subscriber is told. What ends it: its last
subscriber leaving, `stop`, the poll raising or returning, an advance that keeps failing, or a fault in one of its own tasks. After that
only the pump goes on, until what is resolved has been advanced; then the producer is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any

import structlog

from headrace.core.ledger import Ledger
from headrace.core.obligation import Counts, Reader
from headrace.errors import AckTimeout, StreamEnded, StreamError, SubscriberOverflow
from headrace.streams.mailbox import Mailbox
from headrace.streams.matched import Malformed, Matched, WatchSink
from headrace.streams.policy import StreamPolicy
from headrace.streams.pump import Pump
from headrace.streams.watches import Wanted, WatchSet
from headrace.triggers.base import stream_name
from headrace.triggers.producer import SharedStreamProducer
from headrace.triggers.raw import RawEvent

log = structlog.get_logger(__name__)

POLL_STRETCH = 128
"""After so many raw events without a pause the poll lets others run."""

LONGEST_SLEEP = 86_400.0
"""Seconds; where there is no ack timeout there is nothing to wake up for."""


class Group:
    """The tasks of one shared stream, around its ledger. `on_end` evicts it."""

    def __init__(
        self,
        key: Hashable,
        make_producer: Callable[[], SharedStreamProducer],
        *,
        acks: bool,
        policy: StreamPolicy,
        counts: Counts,
        first_seq: int,
        sink: WatchSink | None,
        on_end: Callable[[Group], None],
    ) -> None:
        self.key = key
        self.name = stream_name(key)
        self.acks = acks
        self.producer: SharedStreamProducer | None = None
        timeout = policy.ack_timeout if acks else float("inf")
        self.ledger = Ledger(policy.max_subscriber_queue, timeout, first_seq, counts)
        self.mailboxes: dict[int, Mailbox] = {}
        self.watches = WatchSet({})
        self._make_producer = make_producer
        self._policy = policy
        self._sink = sink
        self._on_end = on_end
        self._pump = Pump(self.ledger, policy, give_up=self._give_up, made_room=self._made_room)
        self._room = asyncio.Event()
        self._ended = False
        self._polling: asyncio.Task[None] | None = None
        self._timing: asyncio.Task[None] | None = None
        self._polled = False
        self._running = asyncio.create_task(self._run(), name=f"headrace stream {self.name}")

    @property
    def task(self) -> asyncio.Task[None]:
        """The task that all others of the group are part of."""
        return self._running

    @property
    def state(self) -> str:
        """`starting`, `polling`, or `ending`."""
        if self._ended:
            return "ending"
        return "starting" if self.producer is None else "polling"

    def is_empty(self) -> bool:
        """Whether nobody is left, subscribed or declared."""
        return not self.mailboxes and not self.watches

    def subscribe(self, trigger_id: int) -> Mailbox:
        """Return the stream of a new subscriber. Raises `StreamError` where the trigger is here already."""
        if trigger_id in self.mailboxes or trigger_id in self.watches:
            raise StreamError(f"Trigger {trigger_id} is subscribed to the shared stream {self.name} already.")
        mailbox = self.mailboxes[trigger_id] = Mailbox(self.ledger, trigger_id, acks=self.acks, changed=self._changed)
        return mailbox

    def watch(self, watches: WatchSet) -> None:
        """Put `watches` in the place of those that were declared. Raises `StreamError`."""
        if not self.acks:
            raise StreamError(f"The shared stream {self.name} has no acks, so that nothing can be declared on it.")
        for trigger_id in watches.trigger_ids:
            if trigger_id in self.mailboxes:
                raise StreamError(f"Trigger {trigger_id} is subscribed to the shared stream {self.name} already.")
        self.watches = watches

    def leave(self, trigger_id: int) -> None:
        """Let a trigger leave; one that is not here changes nothing."""
        self.watches.discard(trigger_id)
        mailbox = self.mailboxes.pop(trigger_id, None)
        if mailbox is not None:
            self.ledger.leave(mailbox.reader)
            mailbox.close(StreamEnded(f"Trigger {trigger_id} has left the shared stream {self.name}."))
            self._changed()

    def confirm(self, seq: int) -> None:
        """Record that this is durable."""
        self.ledger.confirm((seq,))
        if self.ledger.ready:
            self._pump.wake()

    def end(self, error: Exception | None) -> None:
        """Evict the stream and tell its subscribers, at once; None: it was stopped, and the sink is not told. Once only."""
        if self._ended:
            return
        self._ended = True
        self._on_end(self)
        for mailbox in self.mailboxes.values():
            why = StreamEnded(f"The shared stream {self.name} ended: {error or 'it was stopped'}")
            why.__cause__ = error
            mailbox.close(why)
        if error is not None and self._sink is not None and self.watches:
            self._sink.ended(self.name, self.watches.trigger_ids, error)
        if self._polling is not None and not self._polled:
            self._polling.cancel()

    async def stop(self) -> None:
        """End the stream; return when what is resolved has been advanced and the producer is closed."""
        self.end(None)
        await asyncio.wait({self._running})

    async def _run(self) -> None:
        # Also where tasks start eagerly, those who subscribe in the same synchronous stretch get the first raw event.
        await asyncio.sleep(0)
        try:
            if not self._ended:
                await self._live()
        finally:
            self.end(StreamEnded(f"The shared stream {self.name} was cancelled."))
            await self._closed("producer", self.producer.aclose if self.producer is not None else None)

    async def _live(self) -> None:
        try:
            self.producer = self._make_producer()
        except Exception as error:
            log.exception("Shared stream does not start", stream=self.name)
            self.end(error)
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                self._timing = tasks.create_task(self._guarded(self._time()), name="headrace timer")
                tasks.create_task(self._guarded(self._pump.run(self.producer)), name="headrace pump")
                self._polling = tasks.create_task(self._poll(self.producer), name="headrace poll")
                self._polling.add_done_callback(self._finish)
        except ExceptionGroup:
            log.exception("Shared stream died of a fault in its own tasks", stream=self.name)

    def _finish(self, polling: asyncio.Task[None]) -> None:
        """Let the other tasks return, now that `polling` is done."""
        del polling
        self._pump.finish()
        if self._timing is not None:
            self._timing.cancel()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Let a fault in one of the group's own tasks end the stream in the moment it happens."""
        try:
            await work
        except Exception as error:
            self.end(error)
            raise

    async def _closed(self, what: str, close: Callable[[], Awaitable[None]] | None) -> None:
        if close is None:
            return
        try:
            await close()
        except Exception:
            log.exception("Does not close", what=what, stream=self.name)

    async def _poll(self, producer: SharedStreamProducer) -> None:
        stream = None
        try:
            stream = producer.open_stream()
            stretch = 0
            async for raw, payload in stream:
                if self._ended:
                    break
                if self.ledger.full:
                    await self._overflow()
                self._fan_out(producer, raw, payload)
                stretch += 1
                if not self._has_room():
                    await self._wait_for_room()
                elif stretch % POLL_STRETCH == 0:
                    await asyncio.sleep(0)
            else:
                raise StreamEnded
        except Exception as error:
            self._polled = True
            log.exception("Shared stream ended", stream=self.name)
            self.end(error)
        finally:
            self._polled = True
            await self._closed("upstream", getattr(stream, "aclose", None))

    async def _overflow(self) -> None:
        """Fail those whose queue is full although they had a chance to read."""
        await asyncio.sleep(0)
        for reader in tuple(self.ledger.full):
            limit = self._policy.max_subscriber_queue
            self._fail(reader, SubscriberOverflow(f"Trigger {reader.trigger_id} fell {limit} raw events behind {self.name}."))

    def _has_room(self) -> bool:
        if self.ledger.full and self._policy.overflow == "block":
            return False
        return self.ledger.outstanding < self._policy.max_outstanding

    async def _wait_for_room(self) -> None:
        while not self._has_room():
            self._room.clear()
            await self._room.wait()

    def _fan_out(self, producer: SharedStreamProducer, raw: Any, payload: Any) -> None:
        ledger = self.ledger
        lane = producer.get_advance_lane(payload)
        position = producer.get_position(payload)
        if position is None and isinstance(raw, RawEvent):
            position = raw.position
        if self.watches:
            lane_text = lane_name(lane)
            wanted = self.watches.wants(raw, lane_text, position)
            weights = [len(self.watches)] if wanted.malformed is not None else [len(ids) for _, ids in wanted.groups]
            bystanders = len(self.watches) - sum(weights)
        else:
            lane_text, wanted, weights, bystanders = "", None, [], 0
        first_seq, woken = ledger.publish(
            raw, payload, lane=lane, now=self._policy.clock(), position=position, bystanders=bystanders, claims=weights
        )
        for reader in woken:
            self.mailboxes[reader.trigger_id].wake()
        if wanted is not None:
            self._hand_over(wanted, first_seq, lane_text, position)
        if ledger.ready:
            self._pump.wake()

    def _hand_over(self, wanted: Wanted, first_seq: int, lane: str, position: int | None) -> None:
        sink = self._sink
        if sink is None:
            raise StreamError("There are declared watches, but no sink.")
        if wanted.malformed is not None:
            sink.malformed(Malformed(first_seq, self.name, lane, position, wanted.raw, wanted.malformed, self.watches.trigger_ids))
            return
        for seq, (envelope, trigger_ids) in enumerate(wanted.groups, first_seq):
            sink.matched(Matched(seq, self.name, lane, position, wanted.raw, wanted.value, envelope, trigger_ids))

    async def _time(self) -> None:
        """Fail those who do not answer in time; sleeps to the oldest deadline, or to the first that can come when nobody owes anything."""
        timeout, clock = self.ledger.ack_timeout, self._policy.clock
        while True:
            deadline = self.ledger.deadline()
            delay = timeout if deadline is None else deadline - clock()
            await asyncio.sleep(max(0.0, min(delay, LONGEST_SLEEP)))
            for reader in self.ledger.overdue(clock()):
                self._fail(reader, AckTimeout(f"Trigger {reader.trigger_id} did not answer {self.name} within {timeout:g} seconds."))

    def _fail(self, reader: Reader, error: StreamError) -> None:
        log.warning("Subscriber failed", stream=self.name, trigger_id=reader.trigger_id, reason=str(error))
        self.ledger.fail(reader)
        mailbox = self.mailboxes.get(reader.trigger_id)
        if mailbox is not None and mailbox.reader is reader:
            mailbox.close(error)
        self._changed()

    def _give_up(self, error: Exception) -> None:
        log.error("Shared stream ended", stream=self.name, reason=str(error))
        self.end(error)

    def _changed(self) -> None:
        if self.ledger.ready:
            self._pump.wake()
        self._room.set()

    def _made_room(self) -> None:
        self._room.set()


def lane_name(lane: Hashable) -> str:
    """Return the text of a lane; the one lane of a producer that has no lanes is `default`."""
    if isinstance(lane, str):
        return lane
    return "default" if lane is None else str(lane)
