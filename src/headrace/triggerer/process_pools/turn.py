"""One turn of a trigger in a trigger process, with its accounting in the runner."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import structlog

from headrace.core.ledger.obligations import PendingEvent
from headrace.streams.subscribers.backlog_reader import Ahead
from headrace.streams.subscribers.subscription import Subscription
from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.trigger_messages import Begin, Cancel, Close, Command, Ended, Fired, Next, Raw, Rejected, Reset, Step
from headrace.triggerer.user_process.remote_stream import pack
from headrace.triggers.masking import mask

WINDOW: Final = 64
"""Raw events of one turn that are sent to a trigger process before it requests them."""

WINDOW_BYTES: Final = 256 * 1024
"""Limit of the bytes that are sent ahead in one batch."""

log = structlog.get_logger(__name__)


class TurnEnd(NamedTuple):
    """How a turn ended.

    `error`: its error, or None if it returned. `moved`: its process ended, and this trigger was not the cause.
    `charge`: count the failure for its current raw event. `loaded`: the trigger itself was created. `caused_by_trigger`:
    the trigger caused the failure.
    """

    error: Exception | None = None
    moved: bool = False
    charge: bool = True
    loaded: bool = True
    caused_by_trigger: bool = True


class TriggerError(Exception):
    """An error that a trigger raised in its process. Each subclass has the name of the original class."""

    blocked: float = 0.0


class ProcessEnded(TriggerError):
    """A trigger blocked its process for too long, or ended it."""


def error_of(failure: Failure, base: type[TriggerError] = TriggerError, blocked: float = 0.0) -> TriggerError:
    """Return an exception that prints like the one in the trigger process. `blocked`: how many seconds it blocked the process."""
    kind = type(failure.type, (base,), {"__module__": "builtins", "blocked": blocked})
    error: TriggerError = kind(failure.message)
    if failure.traceback:
        error.add_note("\n".join(failure.traceback))
    return error


class Carrier(Protocol):
    """The process that runs a turn."""

    def send(self, command: Command) -> None:
        """Queue a command; commands are sent in order."""
        ...

    def wake(self, turn: ProcessTurn) -> None:
        """Request that the turn fills the next batch."""
        ...

    @property
    def is_blocked(self) -> bool:
        """Whether the process does not respond."""
        ...


class ProcessTurn(Protocol):
    """One execution of a trigger or a producer in a trigger process."""

    @property
    def number(self) -> int:
        """The number of the turn."""
        ...

    @property
    def trigger_id(self) -> int:
        """The id that the shared heartbeat shows while the turn's code runs."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the raw event that the code processes is known."""
        ...

    def take(self, step: Step) -> None:
        """Handle a step of the turn."""
        ...

    def fill(self, batch: Batch) -> None:
        """Add the turn's raw events to a batch."""
        ...

    def finish(self, end: TurnEnd) -> None:
        """End the turn. Later calls do nothing."""
        ...


class Batch:
    """Raw events for the turns of one process. Each is sent once, even if several turns receive it."""

    def __init__(self) -> None:
        self.raws: list[Raw] = []
        self.delivered: list[tuple[int, int]] = []
        self.size = 0
        """Bytes of the raw events."""
        self._indexes: dict[int, int] = {}
        self._raw_references: list[Any] = []

    def add(self, turn: int, raw: Any, lane: str, position: int | None) -> int:
        """Deliver one raw event to a turn; return its size in bytes. Raises errors of pickle."""
        index = self._indexes.get(id(raw))
        if index is None or self.raws[index].position != position or self.raws[index].lane != lane:
            packed = pack(raw, lane, position)
            index = self._indexes[id(raw)] = len(self.raws)
            self._raw_references.append(raw)  # keeps the object's id unique
            self.raws.append(packed)
            self.size += len(packed.data)
        self.delivered.append((turn, index))
        return len(self.raws[index].data)


class Turn:
    """One turn of a trigger.

    Invariant: the ledger is authoritative. A step counts only if the process and the ledger agree on the turn's current
    raw event.
    """

    __slots__ = (
        "_begun",
        "_ended",
        "_fetching",
        "_fire",
        "_generation",
        "_is_requested",
        "_on_end",
        "_over",
        "_sent",
        "_window",
        "carrier",
        "number",
        "subscription",
        "trigger_id",
    )

    def __init__(
        self,
        number: int,
        trigger_id: int,
        subscription: Subscription | None,
        *,
        carrier: Carrier,
        fire: Callable[[Fired], None],
        on_end: Callable[[TurnEnd], None],
        exact: bool,
    ) -> None:
        self.number = number
        self.trigger_id = trigger_id
        self.subscription = subscription
        self.carrier = carrier
        self._fire = fire
        self._on_end = on_end
        # A trigger that has ended its process before reads nothing ahead, so its current raw event is known.
        self._window = 0 if exact else WINDOW
        self._generation = 0
        self._sent: deque[Ahead] = deque()
        self._begun: PendingEvent | None = None
        self._is_requested = False
        self._fetching: asyncio.Task[None] | None = None
        self._over = False
        self._ended: asyncio.Event | None = None
        if subscription is not None:
            subscription.listen(self._changed)

    def begin(self, workload: bytes, *, acks: bool | None) -> None:
        """Start the turn in the process."""
        self.carrier.send(Begin(self.number, workload, acks))

    def take(self, step: Step) -> None:
        """Handle a step of the turn."""
        if isinstance(step, Next):
            self.requested(step)
        elif isinstance(step, Fired):
            self.fired(step)
        elif isinstance(step, Rejected):
            self.rejected(step)
        elif isinstance(step, Ended):
            self.ended(step)

    def requested(self, step: Next) -> None:
        """Handle that the filter has finished its raw event and requests the next."""
        subscription = self.subscription
        if subscription is None or not self._is_current(step.generation):
            return
        if subscription.is_closed:
            if self._sent:
                # The filter continues with raw events that it has read ahead, and that the ledger does not assign to
                # it.
                self._generation += 1
            return
        entry = subscription.take()
        if entry is not None and self._sent and self._sent[0].is_now(entry):
            self._sent.popleft()
            if 2 * len(self._sent) < self._window:
                self.carrier.wake(self)
            return
        if self._sent:
            self._generation += 1
            self._sent.clear()
            self.carrier.send(Reset(self.number, self._generation))
        self._begun = entry
        self._is_requested = entry is None
        self.carrier.wake(self)

    def fired(self, step: Fired) -> None:
        """Handle an event that the trigger yielded."""
        if self._is_current(step.generation):
            self._fire(step)

    def rejected(self, step: Rejected) -> None:
        """Handle that the filter rejected its current raw event."""
        if self._is_current(step.generation) and self.subscription is not None:
            self.subscription.reject(step.reason)

    def ended(self, step: Ended) -> None:
        """Handle the turn's end as the process reports it."""
        error = None if step.failure is None else error_of(step.failure)
        closed = self.subscription is not None and self.subscription.is_closed
        self.finish(TurnEnd(error, charge=closed or step.generation == self._generation, loaded=step.loaded))

    def finish(self, end: TurnEnd) -> None:
        """End the turn. Later calls do nothing."""
        if self._over:
            return
        self._over = True
        self._release()
        if self._ended is not None:
            self._ended.set()
        self._on_end(end)

    def abandon(self) -> None:
        """Ignore the turn from now on."""
        self._over = True
        self._release()

    @property
    def is_exact(self) -> bool:
        """Whether the filter's current raw event is known, because it reads nothing ahead."""
        return self._window == 0

    async def cancel(self, seconds: float) -> bool:
        """Cancel the turn; return whether it ended within `seconds`. Does not wait for a blocked process."""
        if self._over:
            return True
        self._ended = asyncio.Event()
        self.carrier.send(Cancel(self.number))
        if self.carrier.is_blocked:
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def fill(self, batch: Batch) -> None:
        """Add the turn's raw events to a batch."""
        subscription = self.subscription
        if subscription is None or self._over or subscription.is_closed:
            return
        try:
            self._fill(subscription, batch)
        except Exception as error:  # pickling a user's raw event may raise anything
            self.carrier.send(Cancel(self.number))
            self.finish(TurnEnd(error))

    def _fill(self, subscription: Subscription, batch: Batch) -> None:
        if self._is_requested and self._begun is None:
            self._begun = subscription.take()
            if self._begun is None:
                self._fetch(subscription)
                return
        self._is_requested = False
        if self._begun is not None:
            entry, self._begun = self._begun, None
            batch.add(self.number, entry.raw, entry.lane.name, entry.position)
        if 2 * len(self._sent) < self._window:
            size = 0
            for ahead in subscription.ahead(len(self._sent), self._window):
                size += batch.add(self.number, ahead.raw, ahead.lane, ahead.position)
                self._sent.append(ahead)
                if size > WINDOW_BYTES:
                    break

    def _fetch(self, subscription: Subscription) -> None:
        if subscription.reads_backlog and self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch_backlog(subscription), name=f"backlog of {self.trigger_id}")

    async def _fetch_backlog(self, subscription: Subscription) -> None:
        try:
            has_entries = await subscription.fetch()
        except Exception as error:  # the turn ends with the error of its backlog
            self._fetching = None
            self.carrier.send(Cancel(self.number))
            self.finish(TurnEnd(error))
            return
        self._fetching = None
        if has_entries:
            self.carrier.wake(self)

    def _changed(self) -> None:
        subscription = self.subscription
        if subscription is None or self._over:
            return
        if subscription.error is not None:
            self.carrier.send(Close(self.number, type(subscription.error).__name__, mask(str(subscription.error))))
        elif self._is_requested:
            self.carrier.wake(self)

    def _is_current(self, generation: int) -> bool:
        return generation == self._generation and not self._over

    def _release(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None
        self._sent.clear()
        self._begun = None
