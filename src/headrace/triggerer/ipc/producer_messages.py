"""Messages between a runner and the process of a user's producer. Pure.

A producer is identified by its *turn*. It reads ahead of the runner as far as `ReadOn` allows. The broker payloads that
`advance` needs stay with the producer. The runner knows each raw event and each lane by a number. A call (`Advance`,
`CloseProducer`, `DecodeAgain`) ends with one `CallEnded`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.packing import Opaque, Text, Value


class _Command(msgspec.Struct, array_like=True, tag=True):
    """One command for the process of a producer."""


class OpenProducer(_Command):
    """Create the producer of a stream from the trigger class and its keyword arguments (JSON), and read.

    The shared heartbeat shows `producer_id` while the producer's code runs.
    """

    turn: int
    producer_id: int
    stream: str
    classpath: str
    kwargs: bytes


class ReadOn(_Command):
    """Allow the producer to read this many more raw events and bytes."""

    turn: int
    events: int
    bytes: int


class StopReading(_Command):
    """Cancel reading."""

    turn: int


class Advance(_Command):
    """Call `advance` with these raw events and, for each, its counts: acked, failed, rejected, spilled."""

    turn: int
    call: int
    numbers: list[int]
    outcomes: list[tuple[int, int, int, int]]


class CloseProducer(_Command):
    """Call `aclose`, and drop the producer."""

    turn: int
    call: int


class DecodeAgain(_Command):
    """Decode a malformed message of a backlog again."""

    turn: int
    call: int
    message: Text


class CancelCall(_Command):
    """Cancel a call."""

    turn: int
    call: int


class QueryLanes(_Command):
    """Query the end and the committed position of these lanes, and the read errors of the producer."""

    turn: int
    lanes: list[int]


ProducerCommand: TypeAlias = OpenProducer | ReadOn | StopReading | Advance | CloseProducer | DecodeAgain | CancelCall | QueryLanes


class _Step(msgspec.Struct, array_like=True, tag=True):
    """One result of a producer."""


class Item(msgspec.Struct, array_like=True):
    """One raw event. `lane` is the number of its lane, or the failure of `get_advance_lane`."""

    number: int
    lane: int | Failure
    position: int | Failure | None
    raw: Text | Value | Opaque


class Yielded(_Step):
    """The producer yielded these raw events. `lanes` has the names of new lanes."""

    turn: int
    lanes: dict[int, str]
    items: list[Item]


class ReadingEnded(_Step):
    """Reading ended: it was cancelled, failed, or returned."""

    turn: int
    failure: Failure | None
    cancelled: bool


class CallEnded(_Step):
    """A call ended. `released` has the lanes without unadvanced raw events, `decoded` the result of `DecodeAgain`."""

    turn: int
    call: int
    failure: Failure | None
    cancelled: bool
    released: list[int]
    decoded: Text | None = None


class LaneAnswer(msgspec.Struct, array_like=True):
    """The end and the committed position of a lane, or why they are unknown."""

    lane: int
    end: int | Failure | None
    committed: int | Failure | None


class LanesAnswered(_Step):
    """The producer's answers about lanes, its read errors, and the number of unread messages."""

    turn: int
    lanes: list[LaneAnswer]
    errors: dict[str, str] | Failure
    unread: int | Failure | None = None


ProducerStep: TypeAlias = Yielded | ReadingEnded | CallEnded | LanesAnswered
