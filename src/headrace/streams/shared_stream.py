"""One live shared stream: a poll that fans out, an advancer, and a timer that fails subscribers that do not answer.

The law: the stream ends once, in `end`, in one synchronous step: it is evicted and every subscriber is notified. It ends when its last
subscriber leaves, at `stop`, when the poll raises or returns, when an advance keeps failing, or when one of its own tasks fails. Then
only the advancer goes on, until every resolved event has been advanced; then the producer is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, NamedTuple

import structlog

from headrace.core.ledger.counters import StreamCounters
from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Subscriber
from headrace.core.ledger.receipts import ReceiptBuilder
from headrace.core.memory_budget import MemoryBudget
from headrace.core.values.text import describe_error
from headrace.errors import StreamEnded, StreamError
from headrace.streams.backlog import Backlog
from headrace.streams.fan_out import FanOut
from headrace.streams.limits.close_grace import POLL_SHARE, CloseDeadline, LeftBehind, ends_in, is_cancelled
from headrace.streams.limits.flow_control import FlowControl
from headrace.streams.limits.policy import StreamPolicy
from headrace.streams.receipt_recorder import ReceiptRecorder
from headrace.streams.sink import StreamSink, WatchSink
from headrace.streams.subscribers.answer_timeouts import AnswerTimeouts
from headrace.streams.subscribers.backlog_reader import BacklogReader
from headrace.streams.subscribers.backlog_settler import BacklogSettler
from headrace.streams.subscribers.failure_counter import FailureCounter, Retry
from headrace.streams.subscribers.registered import RegisteredSubscribers
from headrace.streams.subscribers.subscription import Subscription, SubscriptionContext
from headrace.streams.upstream.advancer import Advancer
from headrace.streams.upstream.closing import close
from headrace.streams.upstream.poll import Poll, presentable
from headrace.streams.upstream.producer_factory import Making, create_before
from headrace.streams.watches import WatchSet
from headrace.triggers.base import stream_name
from headrace.triggers.stream_log import StreamLog
from headrace.triggers.upstream import SharedStreamProducer, name_connection

log = structlog.get_logger(__name__)


class StreamContext(NamedTuple):
    """Parts that all streams of a manager share."""

    policy: StreamPolicy
    sink: WatchSink | None
    recorder: ReceiptRecorder | None
    left_behind: LeftBehind
    budget: MemoryBudget


class SharedStream:
    """The tasks of one shared stream, context its ledger. `on_end` evicts it."""

    def __init__(
        self,
        key: Hashable,
        make_producer: Callable[[], Making],
        context: StreamContext,
        *,
        acks: bool,
        counters: StreamCounters,
        first_seq: int,
        on_end: Callable[[SharedStream], None],
    ) -> None:
        policy, sink, recorder = context.policy, context.sink, context.recorder
        self.key, self.name, self.acks = key, stream_name(key), acks
        self.producer: SharedStreamProducer | None = None
        timeout = policy.ack_timeout if acks else float("inf")
        self._recorder = recorder if acks else None
        self.ledger = Ledger(policy.max_subscriber_queue, timeout, first_seq, counters=counters, keeps_custody=self._recorder is not None)
        self.subscriptions: dict[int, Subscription] = {}
        self._registered: RegisteredSubscribers | None = None
        if acks and isinstance(sink, StreamSink):
            self._registered = RegisteredSubscribers(self.name, self.ledger, sink, policy, self._wake)
        self._make_producer, self._policy = make_producer, policy
        self._sink, self._on_end = sink, on_end
        self.flow_control = FlowControl(self.ledger, policy, context.budget)
        self._grace, self._left_behind = CloseDeadline(policy.close_timeout), context.left_behind
        self._advancer = Advancer(
            self.name,
            self.ledger,
            policy,
            grace=self._grace,
            left_behind=self._left_behind,
            recorder=self._recorder,
            give_up=self._give_up,
            on_advanced=self.flow_control.notify,
        )
        self._fan_out = FanOut(
            self.name,
            self.ledger,
            sink,
            subscriptions=self.subscriptions,
            registered=self._registered,
            clock=policy.clock,
            ready=self._advancer.wake,
        )
        self._backlogs: dict[int, Backlog] = {}
        self._backlog_settler = BacklogSettler(self.ledger, policy, self._grace, lambda reader: self._backlogs.get(reader.trigger_id))
        self._subscription_context = SubscriptionContext(self.ledger, policy.clock, self._changed, self._reject, acks)
        self._deadlines = AnswerTimeouts(
            self.name,
            self.ledger,
            policy,
            sink,
            subscriptions=self.subscriptions,
            registered=self._registered,
            acks=acks,
            changed=self._changed,
        )
        self._poll = Poll(
            self._fan_out,
            self.ledger,
            self.flow_control,
            policy,
            grace=self._grace,
            registered=self._registered,
            fail=self._deadlines.fail,
            acks=acks,
        )
        self.next_lane = 0  # where the next statistics begin
        self._ended = self._is_left = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timing: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run(), name=f"headrace stream {self.name}")

    @property
    def watches(self) -> WatchSet:
        """The declared watches."""
        return self._fan_out.watches

    @property
    def state(self) -> str:
        """`starting`, `polling`, or `ending`."""
        if self._ended:
            return "ending"
        return "starting" if self.producer is None else "polling"

    @property
    def in_flight(self) -> int:
        """How many lanes are being advanced."""
        return self._advancer.in_flight

    @property
    def left_behind(self) -> int:
        """The number of tasks in the upstream's code that still run although they were cancelled."""
        return self._left_behind.count(self.name)

    def retries(self) -> list[tuple[int, Retry]]:
        """Return the raw events that wait for a retry, with the id of the trigger that failed on each."""
        return [] if self._registered is None else self._registered.retries()

    def is_empty(self) -> bool:
        """Whether no trigger is left: subscribed, registered or declared."""
        return not self.subscriptions and not self.watches and not self._registered

    def register(self, trigger_id: int, failures: FailureCounter) -> None:
        """Register a trigger. Raises `StreamError` if it is subscribed or declared already."""
        if self._registered is None or trigger_id in self._registered:
            return
        self._must_be_new(trigger_id)
        self._registered.add(trigger_id, failures)

    def subscribe(self, trigger_id: int, backlog: Backlog | None) -> Subscription:
        """Subscribe a trigger. Raises `StreamError` if it is subscribed or declared already, or lacks the backlog that it needs."""
        self._must_be_new(trigger_id)
        backlog_reader = None
        if self._registered is None or trigger_id not in self._registered:
            reader = self.ledger.join(trigger_id)
        elif backlog is None:
            raise StreamError(f"Trigger {trigger_id} is registered at the shared stream {self.name}: it subscribes with its backlog.")
        else:
            reader = self._registered.reader(trigger_id)
            self._backlogs[trigger_id] = backlog
            backlog_reader = BacklogReader(
                backlog, self.ledger, reader, retries=self._registered.failures_of(trigger_id).retries, clock=self._policy.clock
            )
        subscription = self.subscriptions[trigger_id] = Subscription(reader, self._subscription_context, backlog_reader)
        return subscription

    def watch(self, watches: WatchSet) -> None:
        """Replace the declared watches. A registered trigger that is one now is dropped with a spill. Raises `StreamError`."""
        if not self.acks:
            raise StreamError(f"The shared stream {self.name} has no acks, so that nothing can be declared on it.")
        for trigger_id in watches.trigger_ids:
            if trigger_id in self.subscriptions:
                raise StreamError(f"Trigger {trigger_id} is subscribed to the shared stream {self.name} already.")
        for trigger_id in [one for one in watches.trigger_ids if self._registered and one in self._registered]:
            self.drop(trigger_id, spill=True)
        self._fan_out.watches = watches
        self.ledger.subscribers.declare(watches.trigger_ids)

    def unwatch(self, trigger_ids: Iterable[int]) -> None:
        """Remove declared watches. An unknown one changes nothing."""
        self.watches.discard(trigger_ids)
        self.ledger.subscribers.declare(self.watches.trigger_ids)

    def leave(self, trigger_id: int) -> None:
        """Remove a trigger. An unknown one changes nothing. A registered one becomes offline, and all that it owes is spilled."""
        if trigger_id in self.watches:
            self.unwatch((trigger_id,))
        subscription = self._detached(trigger_id)
        if self._registered is not None and trigger_id in self._registered:
            # Also if its filter has failed, and will not subscribe again soon.
            self._registered.spill((self._registered.reader(trigger_id),), stop=True)
        elif subscription is None:
            return
        else:
            self.ledger.leave(subscription.reader)
        self._changed()

    def drop(self, trigger_id: int, *, spill: bool = False) -> None:
        """Remove a registered trigger permanently with all that it owes. With `spill`, that is spilled, and owed until it is stored."""
        if spill:
            self.leave(trigger_id)
        self._detached(trigger_id)
        if self._registered is not None and trigger_id in self._registered:
            reader = self._registered.reader(trigger_id)
            owed = reader.obligations, reader.unconfirmed
            if spill:
                reader.obligations, reader.unconfirmed = {}, {}  # the ledger drops what it finds here
            self._registered.drop(trigger_id)
            reader.obligations, reader.unconfirmed = owed
            self._backlogs.pop(trigger_id, None)
            self._changed()

    def record_failure(self, trigger_id: int, error: Exception) -> int:
        """Remove a subscriber whose filter raised. Return the number of failures on its open raw event, or 0 if it had none."""
        if self._registered is None or trigger_id not in self._registered:
            self.leave(trigger_id)
            return 0
        subscription = self._detached(trigger_id)
        attempts = 0 if subscription is None else self._registered.record_failure(subscription.reader, error)
        self._changed()
        return attempts

    def requeue(self, trigger_id: int) -> None:
        """Remove a registered subscriber, which gets its open raw event again."""
        if (subscription := self._detached(trigger_id)) is not None:
            self.ledger.requeue(subscription.reader)
            self._changed()

    def recheck_backlog(self, trigger_id: int) -> None:
        """Make a registered trigger read its backlog before it continues, also before it subscribes again."""
        if self._registered is not None and trigger_id in self._registered:
            self._registered.reader(trigger_id).recheck_backlog()
            self._wake(trigger_id)

    def confirmed(self) -> None:
        """Wake the tasks that waited for items that the ledger has confirmed."""
        ledger = self.ledger
        ledger.changed = False
        if ledger.ready:
            self._advancer.wake()
        if ledger.settling:
            self._backlog_settler.wake()
        while ledger.to_wake:
            self._wake(ledger.to_wake.pop().trigger_id)

    def end(self, error: Exception | None) -> None:
        """Evict the stream once and notify its subscribers. Without `error` it was stopped, and the sink gets none."""
        if self._ended:
            return
        self._ended = self._poll.is_over = True
        name_connection(error, self.producer)
        self._grace.begin()
        self._over.set_result(None)
        self.flow_control.notify()
        if self._registered is not None:
            self._registered.close()
        self._on_end(self)
        for subscription in self.subscriptions.values():
            why = StreamEnded(f"The shared stream {self.name} ended: {error or 'it was stopped'}")
            why.__cause__ = error
            subscription.close(why)
        if error is not None and self._sink is not None and self.watches:
            self._sink.ended(self.name, self.watches.trigger_ids, error)

    async def stop(self) -> None:
        """End the stream, and wait until resolved raw events are advanced and the producer is closed, or the close timeout is over."""
        self.end(None)
        await self.stopped()

    async def stopped(self) -> None:
        """Wait until the ended stream has stopped: for the rest of its close timeout, and a fifth more."""
        if not await ends_in(self.task, self._grace.left() + self._grace.seconds / 5) and not self._is_left:
            self._is_left = True
            self._left_behind.add(self.task, self.name, "the stream")

    def _wake(self, trigger_id: int) -> None:
        if (subscription := self.subscriptions.get(trigger_id)) is not None:
            subscription.wake()

    def _must_be_new(self, trigger_id: int) -> None:
        if trigger_id in self.subscriptions or trigger_id in self.watches:
            raise StreamError(f"Trigger {trigger_id} is subscribed to the shared stream {self.name} already.")

    def _detached(self, trigger_id: int) -> Subscription | None:
        if (subscription := self.subscriptions.pop(trigger_id, None)) is not None:
            subscription.close(StreamEnded(f"Trigger {trigger_id} has left the shared stream {self.name}."))
        return subscription

    async def _run(self) -> None:
        # All that subscribe in the same synchronous step get the first raw event, also with eager tasks.
        await asyncio.sleep(0)
        try:
            if not self._ended:
                await self._live()
        finally:
            self.end(StreamEnded(f"The shared stream {self.name} was cancelled."))
            self.flow_control.close()
            if self.producer is not None:
                await close(self.producer, self.name, self._grace, self._left_behind)

    async def _live(self) -> None:
        try:
            producer = self._make_producer()
            self.producer = producer if isinstance(producer, SharedStreamProducer) else await create_before(producer, self._over)
        except BaseException as error:  # a class of the user's may raise anything, also SystemExit
            if is_cancelled():
                raise
            log.error("Shared stream does not start", stream=self.name, error=describe_error(error), exc_info=presentable(error))
            self.end(presentable(error))
        if self.producer is None:
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                self._timing = tasks.create_task(self._end_on_error(self._deadlines.run()), name="headrace timer")
                tasks.create_task(self._end_on_error(self._advancer.run(self.producer)), name="headrace advancer")
                tasks.create_task(self._end_on_error(self._backlog_settler.run()), name="headrace backlog settler")
                tasks.create_task(self._end_on_error(self._read(self.producer)), name="headrace reader").add_done_callback(self._finish)
        except ExceptionGroup:
            log.exception("Shared stream died of a fault in its own tasks", stream=self.name)

    async def _read(self, producer: SharedStreamProducer) -> None:
        """Run one poll. If it does not end although it is cancelled, it is left behind."""
        poll = asyncio.create_task(self._open(producer), name="headrace poll")
        try:
            await asyncio.wait({poll, self._over}, return_when=asyncio.FIRST_COMPLETED)
            # The second time in case a cancellation is swallowed, as by `wait_for` when its result arrives at the same moment.
            for share in (POLL_SHARE / 2, POLL_SHARE):
                if not poll.done() and self._poll.is_reading:
                    poll.cancel()
                if await ends_in(poll, self._grace.left(share)):
                    break
        finally:
            self._polled(poll)

    async def _open(self, producer: SharedStreamProducer) -> None:
        """Look up the event log of the stream for the producer, then read the upstream."""
        if self._recorder is not None:
            self._advancer.receipts = ReceiptBuilder(self.name)
            count = self._recorder.count_receipts
            producer.log = self._advancer.log = StreamLog(self.name, await count(self.name), count)
        await self._poll.run(self.name, producer)

    def _polled(self, poll: asyncio.Task[None]) -> None:
        """End the stream with the error of a poll, or leave the poll behind."""
        if not poll.done():
            poll.cancel()
            self._left_behind.add(poll, self.name, "poll")
        elif not poll.cancelled() and isinstance(error := poll.exception(), Exception):
            if not self._ended:
                log.error("Shared stream ended", stream=self.name, error=describe_error(error), exc_info=error)
            self.end(error)

    def _finish(self, _reader: asyncio.Task[None]) -> None:
        """End the other tasks when reading has ended."""
        self._advancer.finish()
        self._backlog_settler.finish()
        if self._timing is not None:
            self._timing.cancel()

    async def _end_on_error(self, work: Coroutine[Any, Any, None]) -> None:
        """End the stream when one of its own tasks fails."""
        try:
            await work
        except Exception as error:
            self.end(error)
            raise

    def _reject(self, reader: Subscriber, reason: str | None) -> bool:
        if reader.registered and self._registered is not None:
            return self._registered.reject(reader, reason)
        return self.ledger.reject(reader)

    def _give_up(self, error: Exception) -> None:
        log.error("Shared stream ended", stream=self.name, reason=str(error))
        self.end(error)

    def _changed(self) -> None:
        self.confirmed()
        self.flow_control.notify()
