"""Advances the broker: the batches of one lane sequentially, several lanes concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from itertools import islice
from typing import Final

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Batch
from headrace.core.ledger.receipts import ReceiptBuilder
from headrace.core.values.text import describe_error, describe_text
from headrace.errors import StreamEnded, StreamError, StreamMoved
from headrace.streams.limits.close_grace import CANCEL_SHARE, CloseDeadline, LeftBehind, is_cancelled
from headrace.streams.limits.policy import StreamPolicy
from headrace.streams.limits.shutdown_deadline import ShutdownDeadline
from headrace.streams.receipt_recorder import ReceiptRecorder
from headrace.triggers.stream_log import StreamLog
from headrace.triggers.upstream import SharedStreamProducer

log = structlog.get_logger(__name__)

MAX_LANES: Final = 500
"""Lanes whose marks one call fetches."""
SLOW_SECONDS: Final = 1.0
"""An advance that takes longer releases its slot to another lane."""
SLOW_TIMES: Final = 4
"""Slow advances included, up to `max_advances` times this number run, half of them for lanes that failed before."""


class _Advance:
    """One batch of a lane, until the broker is advanced. `deadline` is that of the current call, or None if there is none."""

    __slots__ = ("batch", "begun", "deadline", "has_slot", "is_left", "recorded", "task")

    def __init__(self, batch: Batch, begun: float) -> None:
        self.batch = batch
        self.begun = begun
        self.deadline: float | None = None
        self.has_slot = True
        self.is_left = False
        self.recorded = False
        self.task: asyncio.Task[None]


class Advancer:
    """Records the receipts of ready batches, then advances the producer. A batch stays in the ledger until its advance succeeds.

    If the advance of a batch keeps failing, or fails with `StreamEnded` or `StreamMoved`, its lane stops, and `give_up` is called with the
    error. The same happens if an advance does not end although it is cancelled: it is left behind. `on_advanced` is called after each
    successful advance.
    """

    def __init__(
        self,
        stream: str,
        ledger: Ledger,
        policy: StreamPolicy,
        *,
        grace: CloseDeadline,
        left_behind: LeftBehind,
        recorder: ReceiptRecorder | None,
        give_up: Callable[[Exception], None],
        on_advanced: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._ledger = ledger
        self._policy = policy
        self._grace = grace
        self._left_behind = left_behind
        self._recorder = recorder
        self._give_up = give_up
        self._on_advanced = on_advanced
        self._deadline = ShutdownDeadline(grace)
        self._wake = asyncio.Event()
        self._advances: dict[_Advance, None] = {}
        self._free_slots = policy.max_advances
        self._calls = 0
        self._max_calls = policy.max_advances * (SLOW_TIMES if policy.max_advances > 1 else 1)
        self._retries = asyncio.Semaphore(max(1, self._max_calls // 2))
        self._watch: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._unknown: dict[str, None] = {}
        self._learning = asyncio.Lock()
        self.receipts: ReceiptBuilder | None = None
        self.log: StreamLog | None = None

    @property
    def in_flight(self) -> int:
        """The number of lanes that are being advanced."""
        return len(self._advances)

    def wake(self) -> None:
        """Wake the advancer to look for batches that are ready."""
        self._wake.set()

    def finish(self) -> None:
        """Make `run` return when no batch is ready or in flight. Failures are not retried."""
        self._deadline.end()
        self._wake.set()

    async def run(self, producer: SharedStreamProducer) -> None:
        """Advance until `finish`."""
        try:
            while not (self._deadline.ended and not self._advances and not self._ledger.ready):
                await self._wake.wait()
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
                while self._free_slots > 0 and self._calls < self._max_calls and (batch := self._ledger.take_ready()) is not None:
                    self._begin(producer, batch)
        finally:
            if self._watch is not None:
                self._watch.cancel()
            for advance in self._advances:
                advance.task.cancel()
            if self._advances:
                await asyncio.wait({advance.task for advance in self._advances}, timeout=self._grace.left(CANCEL_SHARE))
            for advance in tuple(self._advances):
                self._leave_behind(advance)

    def _begin(self, producer: SharedStreamProducer, batch: Batch) -> None:
        advance = _Advance(batch, self._now())
        self._free_slots -= 1
        self._advances[advance] = None
        advance.task = asyncio.create_task(self._advance(producer, advance), name="headrace advance")
        advance.task.add_done_callback(partial(self._ended, advance))
        self._watch_later()

    def _ended(self, advance: _Advance, task: asyncio.Task[None]) -> None:
        if not advance.is_left:
            self._remove(advance)
            if not task.cancelled():
                self._failure = task.exception()

    def _remove(self, advance: _Advance) -> None:
        self._release_slot(advance)
        self._advances.pop(advance, None)
        self._wake.set()

    def _release_slot(self, advance: _Advance) -> None:
        if advance.has_slot:
            advance.has_slot = False
            self._free_slots += 1
            self._wake.set()

    def _watch_later(self) -> None:
        if self._watch is None:
            pause = min(SLOW_SECONDS, self._policy.advance_timeout, self._grace.seconds) / 4
            self._watch = asyncio.get_running_loop().call_later(pause, self._look)

    def _look(self) -> None:
        """Release the slots of slow advances, and leave behind cancelled advances that do not end."""
        self._watch = None
        now = self._now()
        cancelling = self._grace.seconds * (1 - CANCEL_SHARE)
        over = self._deadline.ended and not self._grace.left(CANCEL_SHARE)
        for advance in tuple(self._advances):
            if over or (advance.deadline is not None and advance.deadline + cancelling <= now):
                self._leave_behind(advance)
            elif advance.has_slot and self._policy.max_advances > 1 and advance.begun + SLOW_SECONDS <= now:
                self._release_slot(advance)
        if self._advances:
            self._watch_later()

    def _leave_behind(self, advance: _Advance) -> None:
        advance.is_left = True
        self._remove(advance)
        lane = advance.batch.lane
        lane.error = "The advance does not end although it was cancelled; it is left behind."
        advance.task.cancel()
        self._left_behind.add(advance.task, self._stream, f"advance of lane {lane.name}")
        self._give_up(StreamError(f"Lane {lane.name!r} could not be advanced: {lane.error}"))

    async def _advance(self, producer: SharedStreamProducer, advance: _Advance) -> None:
        policy, lane = self._policy, advance.batch.lane
        error: Exception | None = None
        for attempt in range(policy.advance_attempts):
            if attempt and not await self._deadline.pause(*policy.advance_backoff, attempt):
                break
            error = await self._try_once(producer, advance, first=not attempt)
            if advance.is_left:
                return
            if error is None:
                lane.error = None
                self._ledger.advanced(advance.batch)
                self._remove(advance)
                self._on_advanced()
                return
            if isinstance(error, StreamMoved):
                self._give_up(error)
                return
            self._ledger.counters.advance_errors += 1
            lane.error = describe_error(error)
            log.warning("Advance failed", lane=lane.name, batch=len(advance.batch.items), attempt=attempt + 1, error=lane.error)
            if isinstance(error, StreamEnded):
                break  # a repetition cannot succeed
        failed = StreamError(f"Lane {lane.name!r} could not be advanced, {attempt + 1} times in a row: {lane.error}")
        failed.__cause__ = error
        self._give_up(failed)

    async def _try_once(self, producer: SharedStreamProducer, advance: _Advance, *, first: bool) -> Exception | None:
        """Record and advance once. Return the error, or None."""
        if not first:
            await self._retries.acquire()
        self._calls += 1
        try:
            if not advance.recorded:
                await self._record(producer, advance.batch)
                advance.recorded = True
            await self._call(producer, advance)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return StreamError("the producer raised CancelledError")
        except Exception as failure:
            return _with_text(failure, self._policy.advance_timeout)
        except BaseException as failure:  # a producer may raise anything, also SystemExit
            return StreamError(f"the producer raised {describe_error(failure)}")
        finally:
            self._calls -= 1
            advance.deadline = None
            if not first:
                self._retries.release()
            if self._policy.max_advances > 1 and not advance.is_left:
                self._release_slot(advance)
        return None

    async def _record(self, producer: SharedStreamProducer, batch: Batch) -> None:
        if self._recorder is None or self.receipts is None:
            return
        name = batch.lane.name
        if not self.receipts.knows(name):
            await self._learn(self.receipts, self._recorder, name)
            self.receipts.skipped(name, _committed(producer, batch.lane.key), batch.entries)
        for receipt in self.receipts.receipts(name, batch.entries):
            async with self._deadline.timeout(None):
                new = await self._recorder.record(receipt)
            if new and self.log is not None:
                self.log.stored()
            self.receipts.recorded(receipt)

    async def _learn(self, custody: ReceiptBuilder, recorder: ReceiptRecorder, lane: str) -> None:
        """Fetch the mark of a lane, in one call with those of other lanes that will be advanced next."""
        self._unknown[lane] = None
        async with self._learning, self._deadline.timeout(None):
            if custody.knows(lane):
                return
            ready = (one.name for one in islice(self._ledger.ready, MAX_LANES))
            lanes = [*self._unknown, *(name for name in ready if name not in self._unknown and not custody.knows(name))][:MAX_LANES]
            if lane not in lanes:
                lanes[-1] = lane
            custody.learn(lanes, await recorder.recorded_offsets(custody.stream, lanes))
            for name in lanes:
                self._unknown.pop(name, None)

    async def _call(self, producer: SharedStreamProducer, advance: _Advance) -> None:
        counters, clock, timeout = self._ledger.counters, self._policy.clock, self._policy.advance_timeout
        begun = clock()
        advance.deadline = self._now() + timeout
        async with self._deadline.timeout(timeout):
            await producer.advance(advance.batch.items)
        counters.advances += 1
        counters.advance_seconds += clock() - begun

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _committed(producer: SharedStreamProducer, lane: Hashable) -> int | None:
    """Return the committed position of the lane, or None if it is unknown. Errors of `get_committed` are reported in the statistics."""
    try:
        position = producer.get_committed(lane)
    except Exception as error:
        log.debug("committed position unknown", lane=describe_text(lane), error=describe_error(error))
        return None
    return position if type(position) is int else None


def _with_text(error: Exception, timeout: float) -> Exception:
    return TimeoutError(f"it did not return within {timeout:g} seconds") if isinstance(error, TimeoutError) and not str(error) else error
