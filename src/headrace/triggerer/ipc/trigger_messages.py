"""Messages between a runner and one of its trigger processes, in batches. Pure.

A *turn* is one execution of a trigger's filter or `run()`. The trigger process reads ahead: `Raw` delivers raw events
to a turn before it requests them, and each `Next` moves on to the oldest of these. If the runner has withdrawn a
delivered raw event (it was spilled meanwhile), it sends `Reset` and increments the turn's *generation*: later steps of
an older generation are ignored. A filter that processes a raw event when the `Reset` arrives stays in the older
generation until it requests the next one.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.producer_messages import ProducerCommand, ProducerStep


class _Command(msgspec.Struct, array_like=True, tag=True):
    """One command for a trigger process."""


class Begin(_Command):
    """Run a trigger. `workload` is its `RunTrigger` as JSON. `acks`: whether its stream supports rejection, or None if it polls alone."""

    turn: int
    workload: bytes
    acks: bool | None


class Reset(_Command):
    """Drop the raw events that the turn has not begun. The next raw event counts as requested."""

    turn: int
    generation: int


class Close(_Command):
    """Raise this in the filter instead of delivering raw events: the stream has ended, or has failed the subscriber."""

    turn: int
    kind: str
    message: str


class Cancel(_Command):
    """Cancel the turn."""

    turn: int


class Release(_Command):
    """Unload a trigger without a turn, and call its `cleanup` unless a task run still waits for it.

    `workload`: no task run waits for it any more. If the trigger is not loaded here, load it for the cleanup.
    """

    trigger_id: int
    workload: bytes | None


class OutboxCapacity(_Command):
    """Whether triggers may fire: the outbox is bounded."""

    available: bool


class Describe(_Command):
    """Create the producer of a trigger's stream, and report whether it is built in. `workload` is the trigger's `RunTrigger`."""

    turn: int
    workload: bytes


Command: TypeAlias = Begin | Reset | Close | Cancel | Release | OutboxCapacity | Describe | ProducerCommand


class Raw(msgspec.Struct, array_like=True):
    """One raw event. `data` is that of a `RawEvent`; if `pickled`, it is the pickle of another producer's value."""

    data: bytes
    lane: str
    position: int | None
    pickled: bool


class Commands(msgspec.Struct, array_like=True, tag=True):
    """Runner: execute the commands, then deliver. Each `(turn, index)` delivers one of the raw events to a turn."""

    commands: list[Command]
    raws: list[Raw]
    delivered: list[tuple[int, int]]


class Ready(msgspec.Struct, array_like=True, tag=True):
    """Trigger process: the project is imported."""


class _Step(msgspec.Struct, array_like=True, tag=True):
    """One result of a turn."""


class Next(_Step):
    """The filter has finished its raw event and requests the next."""

    turn: int
    generation: int


class Fired(_Step):
    """The trigger yielded an event. `payload` is JSON; `fields` are texts by the names of `EventFields`, `occurred` in ISO 8601.

    Without a payload, the event cannot be stored for this `reason`, and `preview` is its printed form.
    """

    turn: int
    generation: int
    payload: bytes | None
    fields: dict[str, str]
    reason: str = ""
    preview: str = ""


class Rejected(_Step):
    """The filter rejected its current raw event."""

    turn: int
    generation: int
    reason: str | None


class Ended(_Step):
    """The turn returned or failed. `loaded`: the trigger itself was created."""

    turn: int
    generation: int
    failure: Failure | None
    loaded: bool


class Released(_Step):
    """A trigger's `cleanup` returned or failed."""

    trigger_id: int
    failure: Failure | None


class Described(_Step):
    """The built-in upstream of the trigger's stream, with its arguments as JSON, or None if the producer is a user's."""

    turn: int
    classpath: str | None
    kwargs: bytes


Step: TypeAlias = Next | Fired | Rejected | Ended | Released | Described | ProducerStep


class Steps(msgspec.Struct, array_like=True, tag=True):
    """Trigger process: these steps happened, in this order."""

    steps: list[Step]
