"""What a runner and the process of a user's producer say to each other. Pure.

A producer is known by its *turn*. It reads ahead of the runner as far as `ReadOn` allows. What the broker needs to be advanced stays with
the producer; the runner knows it by its number, and each lane too. A call (`Advance`, `CloseProducer`) ends with one `CallEnded`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.packing import Opaque, Text, Value


class _Command(msgspec.Struct, array_like=True, tag=True):
    """One thing for the process of a producer to do."""


class OpenProducer(_Command):
    """Make the producer of a stream, as the trigger class makes it of these keyword arguments (JSON), and read.

    `producer_id` is what the pulse shows while its code runs.
    """

    turn: int
    producer_id: int
    stream: str
    classpath: str
    kwargs: bytes


class ReadOn(_Command):
    """The runner has taken so many raw events more, of so many bytes."""

    turn: int
    events: int
    bytes: int


class StopReading(_Command):
    """Cancel the reading."""

    turn: int


class Advance(_Command):
    """Call `advance`: the numbers of the raw events, and of each outcome the counts: acked, failed, rejected, spilled."""

    turn: int
    call: int
    numbers: list[int]
    outcomes: list[tuple[int, int, int, int]]


class CloseProducer(_Command):
    """Call `aclose`, and forget the producer."""

    turn: int
    call: int


class CancelCall(_Command):
    """Cancel a call."""

    turn: int
    call: int


class AskLanes(_Command):
    """Ask the producer where these lanes end and are committed, and what it cannot read."""

    turn: int
    lanes: list[int]


ProducerCommand: TypeAlias = OpenProducer | ReadOn | StopReading | Advance | CloseProducer | CancelCall | AskLanes


class _Step(msgspec.Struct, array_like=True, tag=True):
    """One thing that a producer did."""


class Item(msgspec.Struct, array_like=True):
    """One raw event; `lane` is the number of its lane, or why there is none."""

    number: int
    lane: int | Failure
    position: int | Failure | None
    raw: Text | Value | Opaque


class Yielded(_Step):
    """The producer yielded these; `lanes` are the names of those that are new."""

    turn: int
    lanes: dict[int, str]
    items: list[Item]


class ReadingEnded(_Step):
    """The reading is over: it was cancelled, failed, or returned."""

    turn: int
    failure: Failure | None
    cancelled: bool


class CallEnded(_Step):
    """A call is over. `gone`: lanes of which nothing is left."""

    turn: int
    call: int
    failure: Failure | None
    cancelled: bool
    gone: list[int]


class LaneAnswer(msgspec.Struct, array_like=True):
    """Where a lane ends and is committed, or why that is not known."""

    lane: int
    end: int | Failure | None
    committed: int | Failure | None


class LanesAnswered(_Step):
    """What the producer says of some lanes, and what it cannot read."""

    turn: int
    lanes: list[LaneAnswer]
    errors: dict[str, str] | Failure


ProducerStep: TypeAlias = Yielded | ReadingEnded | CallEnded | LanesAnswered
