"""One live shared stream: a poll that fans out, a pump that advances, and a timer that fails those who do not answer.

The law: the stream ends once, in `end`, in one synchronous step: it is evicted and every subscriber is told. What ends it: its last
subscriber leaving, `stop`, the poll raising or returning, an advance that keeps failing, or a fault in one of its own tasks. After that
only the pump goes on, until what is resolved has been advanced; then the producer is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, NamedTuple

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import StreamCounters, Subscriber
from headrace.core.ledger.receipts import ReceiptBuilder
from headrace.core.memory_budget import MemoryBudget
from headrace.core.values.text import describe_error
from headrace.errors import StreamEnded, StreamError
from headrace.streams.backlog import Backlog
from headrace.streams.delivery_names import DeliveryIds
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
from headrace.streams.upstream.producer_factory import Making, made_before
from headrace.streams.watches import WatchSet
from headrace.triggers.base import stream_name
from headrace.triggers.stream_log import StreamLog
from headrace.triggers.upstream import SharedStreamProducer

log = structlog.get_logger(__name__)


class StreamContext(NamedTuple):
    """What a hub's streams have in common."""

    policy: StreamPolicy
    sink: WatchSink | None
    recorder: ReceiptRecorder | None
    left_behind: LeftBehind
    budget: MemoryBudget


class SharedStream:
    """The tasks of one shared stream, around its ledger. `on_end` evicts it."""

    def __init__(
        self,
        key: Hashable,
        make_producer: Callable[[], Making],
        around: StreamContext,
        *,
        acks: bool,
        counts: StreamCounters,
        first_seq: int,
        on_end: Callable[[SharedStream], None],
    ) -> None:
        policy, sink, recorder = around.policy, around.sink, around.recorder
        self.key, self.name, self.acks = key, stream_name(key), acks
        self.producer: SharedStreamProducer | None = None
        timeout = policy.ack_timeout if acks else float("inf")
        self._recorder = recorder if acks else None
        self.ledger = Ledger(policy.max_subscriber_queue, timeout, first_seq, counts=counts, keeps_custody=self._recorder is not None)
        self._delivery_ids = DeliveryIds()
        self.mailboxes: dict[int, Subscription] = {}
        self._registered: RegisteredSubscribers | None = None
        if acks and isinstance(sink, StreamSink):
            self._registered = RegisteredSubscribers(self.name, self.ledger, sink, self._delivery_ids, policy, self._wake)
        self._make_producer, self._policy = make_producer, policy
        self._sink, self._on_end = sink, on_end
        self.room = FlowControl(self.ledger, policy, around.budget)
        self._grace, self._left_behind = CloseDeadline(policy.close_timeout), around.left_behind
        self._pump = Advancer(
            self.name,
            self.ledger,
            policy,
            grace=self._grace,
            left_behind=self._left_behind,
            recorder=self._recorder,
            give_up=self._give_up,
            made_room=self.room.notify,
        )
        self._fan_out = FanOut(
            self.name,
            self.ledger,
            sink,
            mailboxes=self.mailboxes,
            registered=self._registered,
            clock=policy.clock,
            ready=self._pump.wake,
            delivery_ids=self._delivery_ids,
        )
        self._backlogs: dict[int, Backlog] = {}
        self._settler = BacklogSettler(self.ledger, policy, self._grace, lambda reader: self._backlogs.get(reader.trigger_id))
        self._ties = SubscriptionContext(self.ledger, policy.clock, self._changed, self._refuse, acks, self._delivery_ids)
        self._deadlines = AnswerTimeouts(
            self.name,
            self.ledger,
            policy,
            sink,
            mailboxes=self.mailboxes,
            registered=self._registered,
            acks=acks,
            changed=self._changed,
        )
        self._poll = Poll(
            self._fan_out,
            self.ledger,
            self.room,
            policy,
            grace=self._grace,
            registered=self._registered,
            fail=self._deadlines.fail,
            acks=acks,
        )
        self.surveyed = 0  # where the next survey begins
        self._ended = self._is_left = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timing: asyncio.Task[None] | None = None
        self._running = asyncio.create_task(self._run(), name=f"headrace stream {self.name}")

    @property
    def task(self) -> asyncio.Task[None]:
        """The task that all others of the group are part of."""
        return self._running

    @property
    def watches(self) -> WatchSet:
        """The watches that are declared now."""
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
        return self._pump.in_flight

    @property
    def left_behind(self) -> int:
        """How many tasks in the upstream's code run on although they were cancelled."""
        return self._left_behind.count(self.name)

    def retries(self) -> list[tuple[int, Retry]]:
        """Return what waits to be tried again, with the id of the trigger that failed on it."""
        return [] if self._registered is None else self._registered.retries()

    def is_empty(self) -> bool:
        """Whether no trigger is left: subscribed, registered or declared."""
        return not self.mailboxes and not self.watches and not self._registered

    def register(self, trigger_id: int, trouble: FailureCounter) -> None:
        """Register a trigger. Raises `StreamError` where it is subscribed or declared already."""
        if self._registered is None or trigger_id in self._registered:
            return
        self._must_be_new(trigger_id)
        self._registered.add(trigger_id, trouble)

    def subscribe(self, trigger_id: int, backlog: Backlog | None) -> Subscription:
        """Return the stream of a new subscriber. Raises `StreamError` where the trigger is here already, or is to have a backlog."""
        self._must_be_new(trigger_id)
        drain = None
        if self._registered is None or trigger_id not in self._registered:
            reader = self.ledger.join(trigger_id)
        elif backlog is None:
            raise StreamError(f"Trigger {trigger_id} is registered at the shared stream {self.name}: it subscribes with its backlog.")
        else:
            reader = self._registered.reader(trigger_id)
            self._backlogs[trigger_id] = backlog
            drain = BacklogReader(
                backlog, self.ledger, reader, retries=self._registered.trouble(trigger_id).retries, clock=self._policy.clock
            )
        mailbox = self.mailboxes[trigger_id] = Subscription(reader, self._ties, drain)
        return mailbox

    def watch(self, watches: WatchSet) -> None:
        """Put `watches` in the place of those that were declared. Raises `StreamError`."""
        if not self.acks:
            raise StreamError(f"The shared stream {self.name} has no acks, so that nothing can be declared on it.")
        for trigger_id in watches.trigger_ids:
            if trigger_id in self.mailboxes or (self._registered is not None and trigger_id in self._registered):
                raise StreamError(f"Trigger {trigger_id} is subscribed to the shared stream {self.name} already.")
        self._fan_out.watches = watches
        self.ledger.declare(watches.trigger_ids)

    def unwatch(self, trigger_ids: Iterable[int]) -> None:
        """Remove declared watches. An unknown one changes nothing."""
        self.watches.discard(trigger_ids)
        self.ledger.declare(self.watches.trigger_ids)

    def leave(self, trigger_id: int) -> None:
        """Remove a trigger. An unknown one changes nothing; a registered one is away then, and all that it owes is spilled."""
        if trigger_id in self.watches:
            self.unwatch((trigger_id,))
        mailbox = self._detached(trigger_id)
        if self._registered is not None and trigger_id in self._registered:
            # Also one whose filter has failed, and is not to subscribe again soon.
            self._registered.spill((self._registered.reader(trigger_id),), stop=True)
        elif mailbox is None:
            return
        else:
            self.ledger.leave(mailbox.reader)
        self._changed()

    def drop(self, trigger_id: int) -> None:
        """Remove a registered trigger for good with all that it owes."""
        self._detached(trigger_id)
        if self._registered is not None and trigger_id in self._registered:
            self._registered.drop(trigger_id)
            self._backlogs.pop(trigger_id, None)
            self._changed()

    def fault(self, trigger_id: int, error: Exception) -> int:
        """Remove a subscriber whose filter raised; return how often it has failed on its raw event, or 0 if it had none."""
        if self._registered is None or trigger_id not in self._registered:
            self.leave(trigger_id)
            return 0
        mailbox = self._detached(trigger_id)
        attempts = 0 if mailbox is None else self._registered.fault(mailbox.reader, error)
        self._changed()
        return attempts

    def requeue(self, trigger_id: int) -> None:
        """Remove a registered subscriber, which will come back to its raw event."""
        mailbox = self._detached(trigger_id)
        if mailbox is not None:
            self.ledger.requeue(mailbox.reader)
            self._changed()

    def recheck_backlog(self, trigger_id: int) -> None:
        """Make a registered trigger read its backlog before it goes on, also before it subscribes again."""
        if self._registered is not None and trigger_id in self._registered:
            self._registered.reader(trigger_id).recheck_backlog()
            self._wake(trigger_id)

    def confirmed(self) -> None:
        """Wake the tasks that waited for items that the ledger has confirmed."""
        ledger = self.ledger
        ledger.changed = False
        if ledger.ready:
            self._pump.wake()
        if ledger.settling:
            self._settler.wake()
        while ledger.drainable:
            self._wake(ledger.drainable.pop().trigger_id)

    async def emptied(self) -> None:
        """Wait until nothing is outstanding, or the stream has ended."""
        await self.room.wait_empty(lambda: self._ended)

    def end(self, error: Exception | None) -> None:
        """Evict the stream once and notify its subscribers. Without `error` it was stopped, and the sink gets none."""
        if self._ended:
            return
        self._ended = self._poll.is_over = True
        self._grace.begin()
        self._over.set_result(None)
        self.room.notify()
        if self._registered is not None:
            self._registered.close()
        self._on_end(self)
        for mailbox in self.mailboxes.values():
            why = StreamEnded(f"The shared stream {self.name} ended: {error or 'it was stopped'}")
            why.__cause__ = error
            mailbox.close(why)
        if error is not None and self._sink is not None and self.watches:
            self._sink.ended(self.name, self.watches.trigger_ids, error)

    async def stop(self) -> None:
        """End the stream; return when what is resolved has been advanced and the producer is closed, or when its time is up."""
        self.end(None)
        await self.stopped()

    async def stopped(self) -> None:
        """Wait until the ended stream has stopped, as long as it may take, and a moment more."""
        if not await ends_in(self._running, self._grace.left() + self._grace.seconds / 5) and not self._is_left:
            self._is_left = True
            self._left_behind.add(self._running, self.name, "the stream")

    def _wake(self, trigger_id: int) -> None:
        mailbox = self.mailboxes.get(trigger_id)
        if mailbox is not None:
            mailbox.wake()

    def _must_be_new(self, trigger_id: int) -> None:
        if trigger_id in self.mailboxes or trigger_id in self.watches:
            raise StreamError(f"Trigger {trigger_id} is subscribed to the shared stream {self.name} already.")

    def _detached(self, trigger_id: int) -> Subscription | None:
        mailbox = self.mailboxes.pop(trigger_id, None)
        if mailbox is not None:
            mailbox.close(StreamEnded(f"Trigger {trigger_id} has left the shared stream {self.name}."))
        return mailbox

    async def _run(self) -> None:
        # Also where tasks start eagerly, those who subscribe in the same synchronous stretch get the first raw event.
        await asyncio.sleep(0)
        try:
            if not self._ended:
                await self._live()
        finally:
            self.end(StreamEnded(f"The shared stream {self.name} was cancelled."))
            self.room.close()
            if self.producer is not None:
                await close(self.producer, self.name, self._grace, self._left_behind)

    async def _live(self) -> None:
        try:
            made = self._make_producer()
            self.producer = made if isinstance(made, SharedStreamProducer) else await made_before(made, self._over)
        except BaseException as error:  # a class of the user's may raise anything, also SystemExit
            if is_cancelled():
                raise
            log.error("Shared stream does not start", stream=self.name, error=describe_error(error), exc_info=presentable(error))
            self.end(presentable(error))
        if self.producer is None:
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                self._timing = tasks.create_task(self._guarded(self._deadlines.run()), name="headrace timer")
                tasks.create_task(self._guarded(self._pump.run(self.producer)), name="headrace advancer")
                tasks.create_task(self._guarded(self._settler.run()), name="headrace backlog settler")
                tasks.create_task(self._guarded(self._read(self.producer)), name="headrace reader").add_done_callback(self._finish)
        except ExceptionGroup:
            log.exception("Shared stream died of a fault in its own tasks", stream=self.name)

    async def _read(self, producer: SharedStreamProducer) -> None:
        """See one poll through; one that does not end although it is cancelled is left behind."""
        poll = asyncio.create_task(self._open(producer), name="headrace poll")
        try:
            await asyncio.wait({poll, self._over}, return_when=asyncio.FIRST_COMPLETED)
            # The second time for those that swallow a cancellation, as `wait_for` does when what it waits for is there at the same moment.
            for share in (POLL_SHARE / 2, POLL_SHARE):
                if not poll.done() and self._poll.is_reading:
                    poll.cancel()
                if await ends_in(poll, self._grace.left(share)):
                    break
        finally:
            self._polled(poll)

    async def _open(self, producer: SharedStreamProducer) -> None:
        """Read the upstream, which first learns in which log it is recorded."""
        if self._recorder is not None:
            self._pump.custody = ReceiptBuilder(self.name)
            producer.log = self._pump.log = StreamLog(self.name, await self._recorder.books(self.name), self._recorder.books)
        await self._poll.run(self.name, producer)

    def _polled(self, poll: asyncio.Task[None]) -> None:
        """See how a poll ended, or leave it behind."""
        if not poll.done():
            poll.cancel()
            self._left_behind.add(poll, self.name, "poll")
        elif not poll.cancelled() and isinstance(error := poll.exception(), Exception):
            if not self._ended:
                log.error("Shared stream ended", stream=self.name, error=describe_error(error), exc_info=error)
            self.end(error)

    def _finish(self, reader: asyncio.Task[None]) -> None:
        """End the other tasks, once nothing more is read."""
        del reader
        self._pump.finish()
        self._settler.finish()
        if self._timing is not None:
            self._timing.cancel()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """End the stream at once when one of its own tasks fails."""
        try:
            await work
        except Exception as error:
            self.end(error)
            raise

    def _refuse(self, reader: Subscriber, reason: str | None) -> bool:
        if reader.registered and self._registered is not None:
            return self._registered.refuse(reader, reason)
        return self.ledger.reject(reader)

    def _give_up(self, error: Exception) -> None:
        log.error("Shared stream ended", stream=self.name, reason=str(error))
        self.end(error)

    def _changed(self) -> None:
        self.confirmed()
        self.room.notify()
