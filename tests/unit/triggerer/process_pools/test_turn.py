"""A turn in the runner and in its trigger process: fired events count only for the open raw event of the ledger."""

from __future__ import annotations

import pytest

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Subscriber
from headrace.errors import StreamEnded
from headrace.streams.subscribers.subscription import Subscription, SubscriptionContext
from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.trigger_messages import Close, Command, Ended, Fired, Next, Rejected, Reset, Step
from headrace.triggerer.process_pools.turn import Batch, ProcessTurn, Turn, TurnEnd
from headrace.triggerer.user_process.remote_stream import RemoteStream, unpack

TURN = 1
LANE = "lane"


class Wire:
    """A turn, the stream of its filter, and the messages between them: `receive` and `deliver` hand them over."""

    def __init__(self, count: int) -> None:
        self.ledger = Ledger(queue_limit=100, ack_timeout=60.0)
        self.reader: Subscriber = self.ledger.register(7)
        self.ledger.catch_up(self.reader)
        self.ledger.go_live(self.reader)
        ties = SubscriptionContext(self.ledger, lambda: 0.0, lambda: None, lambda reader, _: self.ledger.reject(reader), True)
        self.subscription = Subscription(self.reader, ties)
        self.fired: list[tuple[bytes | None, int | None]] = []
        self.ends: list[TurnEnd] = []
        self.steps: list[Step] = []
        self.commands: list[Command] = []
        self.is_blocked = False
        self.stream = RemoteStream(TURN, "stream", self.steps.append, acks=True)
        self.turn = Turn(TURN, 7, self.subscription, carrier=self, fire=self._fire, on_end=self.ends.append, exact=False)
        self.publish(count)

    def send(self, command: Command) -> None:
        self.commands.append(command)

    def wake(self, turn: ProcessTurn) -> None:
        """Do nothing: `deliver` asks the turn each time."""

    def publish(self, count: int, begin: int = 0) -> None:
        for position in range(begin, begin + count):
            self.ledger.publish(position, position, LANE, 0.0, position)

    def receive(self) -> None:
        """Hand the messages of the trigger process to the runner."""
        steps, self.steps[:] = [*self.steps], []
        for step in steps:
            match step:
                case Next():
                    self.turn.requested(step)
                case Fired():
                    self.turn.fired(step)
                case Rejected():
                    self.turn.rejected(step)
                case Ended():
                    self.turn.ended(step)

    def deliver(self) -> None:
        """Let the trigger process get what the runner has sent."""
        batch = Batch()
        self.turn.fill(batch)
        commands, self.commands = self.commands, []
        for command in commands:
            match command:
                case Reset(_, generation):
                    self.stream.reset(generation)
                case Close():
                    self.stream.close(StreamEnded("closed"))
        for _, index in batch.delivered:
            self.stream.deliver(unpack(batch.raws[index]))

    async def pull(self) -> int:
        """Let the filter go on to a raw event that has arrived."""
        raw: int = await anext(self.stream)
        return raw

    async def start(self) -> int:
        """Let the filter pull the first raw event; those after it are read ahead."""
        pulled = self.stream.__anext__().__await__()
        next(pulled)
        self.receive()
        self.deliver()
        with pytest.raises(StopIteration) as stopped:
            next(pulled)
        raw: int = stopped.value.value
        return raw

    def fire(self, raw: int) -> None:
        """Let the filter yield an event."""
        self.steps.append(Fired(TURN, self.stream.generation, str(raw).encode(), {}))

    def fail(self) -> None:
        """Let the filter raise."""
        self.steps.append(Ended(TURN, self.stream.generation, Failure("ValueError", "failed", []), loaded=True))

    @property
    def position(self) -> int | None:
        """The position that the books say that the filter is at."""
        origin = self.subscription.origin
        return None if origin is None else origin.position

    def _fire(self, fired: Fired) -> None:
        self.fired.append((fired.payload, self.position))


async def spilled() -> Wire:
    """Return a turn whose filter is at 1, which it has read ahead, and which the runner has spilled before it heard of that."""
    wire = Wire(3)
    assert await wire.start() == 0
    wire.fire(0)
    assert await wire.pull() == 1
    wire.ledger.spill([wire.reader], stop=False)
    wire.receive()
    wire.deliver()
    assert wire.position is None
    return wire


async def test_an_event_fired_after_a_reset_for_an_older_raw_event_is_dropped() -> None:
    wire = await spilled()
    wire.fire(1)
    wire.receive()
    assert wire.fired == [(b"0", 0)]


async def test_a_raw_event_after_a_reset_fires_its_own_event() -> None:
    wire = await spilled()
    wire.ledger.catch_up(wire.reader)
    wire.ledger.go_live(wire.reader)
    wire.publish(2, begin=10)
    wire.deliver()
    wire.fire(1)
    assert await wire.pull() == 10
    wire.fire(10)
    assert await wire.pull() == 11
    wire.fire(11)
    wire.receive()
    assert wire.fired == [(b"0", 0), (b"10", 10), (b"11", 11)]


async def test_a_rejection_after_a_reset_of_an_older_raw_event_is_dropped() -> None:
    wire = await spilled()
    wire.ledger.catch_up(wire.reader)
    wire.ledger.go_live(wire.reader)
    wire.publish(1, begin=10)
    wire.deliver()
    assert wire.position == 10
    assert wire.stream.reject("no")
    wire.receive()
    assert wire.ledger.bind(wire.reader) is not None, "the refusal went to another raw event"


async def test_a_failure_after_a_reset_on_an_older_raw_event_is_not_charged() -> None:
    wire = await spilled()
    wire.fail()
    wire.receive()
    assert [end.charge for end in wire.ends] == [False]


async def test_events_for_read_ahead_of_a_closed_stream_are_dropped() -> None:
    wire = Wire(3)
    assert await wire.start() == 0
    wire.subscription.close(StreamEnded("closed"))
    wire.fire(0)
    assert await wire.pull() == 1
    wire.fire(1)
    wire.receive()
    assert wire.fired == [(b"0", 0)]


async def test_events_of_an_abandoned_turn_are_dropped() -> None:
    wire = Wire(1)
    assert await wire.start() == 0
    wire.turn.abandon()
    wire.fire(0)
    wire.receive()
    assert wire.fired == []
