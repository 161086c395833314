"""One turn of a trigger, which a trigger process runs, on the books of this one."""

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
from headrace.triggerer.ipc.trigger_messages import Begin, Cancel, Close, Command, Ended, Fired, Next, Raw, Refused, Reset, Step
from headrace.triggerer.user_process.remote_stream import pack
from headrace.triggers.masking import mask

WINDOW: Final = 64
"""So many raw events a trigger process may have of one turn that it has not asked for."""

WINDOW_BYTES: Final = 256 * 1024
"""What is read ahead at once is at most as large as this."""

log = structlog.get_logger(__name__)


class TurnEnd(NamedTuple):
    """How a turn ended.

    `error`: what it failed with, or None if it returned. `moved`: its process is gone and it was not to blame. `charge`: the raw event
    that it was at is to count this failure. `loaded`: the trigger itself was made. `own`: the failure is the trigger's own.
    """

    error: Exception | None = None
    moved: bool = False
    charge: bool = True
    loaded: bool = True
    own: bool = True


class TriggerError(Exception):
    """What a trigger raised in its process; the class of one bears the name of what was raised."""

    blocked: float = 0.0


class ProcessEnded(TriggerError):
    """A trigger blocked its process for too long, or ended it."""


def error_of(failure: Failure, base: type[TriggerError] = TriggerError, blocked: float = 0.0) -> TriggerError:
    """Return an exception that reads like the one that was raised in a trigger process; `blocked`: seconds that it held that up for."""
    kind = type(failure.type, (base,), {"__module__": "builtins", "blocked": blocked})
    error: TriggerError = kind(failure.message)
    if failure.traceback:
        error.add_note("\n".join(failure.traceback))
    return error


class Carrier(Protocol):
    """The process that runs a turn."""

    def send(self, command: Command) -> None:
        """Send a command, in time, after those before it."""
        ...

    def wake(self, turn: ProcessTurn) -> None:
        """Ask the turn, in time, what there is to deliver."""
        ...

    @property
    def is_blocked(self) -> bool:
        """Whether it does not respond."""
        ...


class ProcessTurn(Protocol):
    """What a trigger process runs, as the runner sees it: a life of a trigger, or of a producer."""

    @property
    def number(self) -> int:
        """Which turn it is."""
        ...

    @property
    def trigger_id(self) -> int:
        """What the pulse of the process shows while its code runs."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether it is known which raw event its code is at."""
        ...

    def take(self, step: Step) -> None:
        """Take what the process says of it."""
        ...

    def fill(self, batch: Batch) -> None:
        """Put what there is for it into a batch."""
        ...

    def finish(self, end: TurnEnd) -> None:
        """It is over. Once only."""
        ...


class Batch:
    """Raw events for the turns of one process: each goes there once, however many turns get it."""

    def __init__(self) -> None:
        self.raws: list[Raw] = []
        self.delivered: list[tuple[int, int]] = []
        self.size = 0
        """Bytes of the raw events."""
        self._indexes: dict[int, int] = {}
        self._kept: list[Any] = []

    def add(self, turn: int, raw: Any, lane: str, position: int | None) -> int:
        """Deliver one raw event to a turn; return its bytes. What pickle raises is raised."""
        index = self._indexes.get(id(raw))
        if index is None or self.raws[index].position != position or self.raws[index].lane != lane:
            packed = pack(raw, lane, position)
            index = self._indexes[id(raw)] = len(self.raws)
            self._kept.append(raw)  # so that its id stays its own
            self.raws.append(packed)
            self.size += len(packed.data)
        self.delivered.append((turn, index))
        return len(self.raws[index].data)


class Turn:
    """The law: the ledger is the truth. What the process says goes onto the books only where it is at what the books say that it is at."""

    __slots__ = (
        "_begun",
        "_ended",
        "_fetching",
        "_fire",
        "_generation",
        "_on_end",
        "_over",
        "_sent",
        "_wants",
        "_window",
        "carrier",
        "mailbox",
        "number",
        "trigger_id",
    )

    def __init__(
        self,
        number: int,
        trigger_id: int,
        mailbox: Subscription | None,
        *,
        carrier: Carrier,
        fire: Callable[[Fired], None],
        on_end: Callable[[TurnEnd], None],
        exact: bool,
    ) -> None:
        self.number = number
        self.trigger_id = trigger_id
        self.mailbox = mailbox
        self.carrier = carrier
        self._fire = fire
        self._on_end = on_end
        # One that has ended its process before reads nothing ahead: so it is known what it was at.
        self._window = 0 if exact else WINDOW
        self._generation = 0
        self._sent: deque[Ahead] = deque()
        self._begun: PendingEvent | None = None
        self._wants = False
        self._fetching: asyncio.Task[None] | None = None
        self._over = False
        self._ended: asyncio.Event | None = None
        if mailbox is not None:
            mailbox.listen(self._changed)

    def begin(self, workload: bytes, *, acks: bool | None) -> None:
        """Have it run."""
        self.carrier.send(Begin(self.number, workload, acks))

    def take(self, step: Step) -> None:
        """Take what the process says of it."""
        if isinstance(step, Next):
            self.next(step)
        elif isinstance(step, Fired):
            self.fired(step)
        elif isinstance(step, Refused):
            self.refused(step)
        elif isinstance(step, Ended):
            self.ended(step)

    def next(self, step: Next) -> None:
        """The filter is done with what it was at, and goes on."""
        mailbox = self.mailbox
        if mailbox is None or not self._is_current(step.generation):
            return
        if mailbox.is_closed:
            if self._sent:
                # It goes on with what it has read ahead, which the books do not say that it is at.
                self._generation += 1
            return
        entry = mailbox.take()
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
        self._wants = entry is None
        self.carrier.wake(self)

    def fired(self, step: Fired) -> None:
        """The trigger yielded an event."""
        if self._is_current(step.generation):
            self._fire(step)

    def refused(self, step: Refused) -> None:
        """The filter refused what it is at."""
        if self._is_current(step.generation) and self.mailbox is not None:
            self.mailbox.refuse(step.reason)

    def ended(self, step: Ended) -> None:
        """The process says that the turn is over."""
        error = None if step.failure is None else error_of(step.failure)
        closed = self.mailbox is not None and self.mailbox.is_closed
        self.finish(TurnEnd(error, charge=closed or step.generation == self._generation, loaded=step.loaded))

    def finish(self, end: TurnEnd) -> None:
        """The turn is over. Once only."""
        if self._over:
            return
        self._over = True
        self._release()
        if self._ended is not None:
            self._ended.set()
        self._on_end(end)

    def abandon(self) -> None:
        """Count on nothing of it any more."""
        self._over = True
        self._release()

    @property
    def is_exact(self) -> bool:
        """Whether the books say which raw event its filter is at: it reads nothing ahead."""
        return self._window == 0

    async def cancel(self, seconds: float) -> bool:
        """Cancel the turn; say whether it ended within so many seconds. A blocked process is not waited for."""
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
        """Put what there is for it into a batch."""
        mailbox = self.mailbox
        if mailbox is None or self._over or mailbox.is_closed:
            return
        try:
            self._fill(mailbox, batch)
        except Exception as error:  # what a user's raw event does when it is pickled
            self.carrier.send(Cancel(self.number))
            self.finish(TurnEnd(error))

    def _fill(self, mailbox: Subscription, batch: Batch) -> None:
        if self._wants and self._begun is None:
            self._begun = mailbox.take()
            if self._begun is None:
                self._fetch(mailbox)
                return
        self._wants = False
        if self._begun is not None:
            entry, self._begun = self._begun, None
            batch.add(self.number, entry.raw, entry.lane.name, entry.position)
        if 2 * len(self._sent) < self._window:
            size = 0
            for ahead in mailbox.ahead(len(self._sent), self._window):
                size += batch.add(self.number, ahead.raw, ahead.lane, ahead.position)
                self._sent.append(ahead)
                if size > WINDOW_BYTES:
                    break

    def _fetch(self, mailbox: Subscription) -> None:
        if mailbox.is_draining and self._fetching is None:
            self._fetching = asyncio.create_task(self._fetched(mailbox), name=f"backlog of {self.trigger_id}")

    async def _fetched(self, mailbox: Subscription) -> None:
        try:
            there = await mailbox.fetch()
        except Exception as error:  # the turn ends with what its backlog raises
            self._fetching = None
            self.carrier.send(Cancel(self.number))
            self.finish(TurnEnd(error))
            return
        self._fetching = None
        if there:
            self.carrier.wake(self)

    def _changed(self) -> None:
        mailbox = self.mailbox
        if mailbox is None or self._over:
            return
        if mailbox.error is not None:
            self.carrier.send(Close(self.number, type(mailbox.error).__name__, mask(str(mailbox.error))))
        elif self._wants:
            self.carrier.wake(self)

    def _is_current(self, generation: int) -> bool:
        return generation == self._generation and not self._over

    def _release(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None
        self._sent.clear()
        self._begun = None
