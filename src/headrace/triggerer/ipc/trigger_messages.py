"""What a runner and one of its trigger processes say to each other, in batches. Pure.

A *turn* is one life of one trigger's filter or `run()`. The trigger process reads ahead: `Deliver` gives a turn raw events before it has
asked for them, and each `Next` goes on to the oldest of these. Where the runner has taken back what it gave (it was spilled meanwhile), it
says `Reset` and counts the turn's *generation* up: what the turn still says under an older one is of no account. A filter that is at a raw
event when the `Reset` arrives belongs to the older generation until it pulls the next.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.producer_messages import ProducerCommand, ProducerStep


class _Command(msgspec.Struct, array_like=True, tag=True):
    """One thing for a trigger process to do."""


class Begin(_Command):
    """Run a trigger; `workload` is its `RunTrigger` as JSON. `acks`: it filters a stream that can be refused, or None if it polls alone."""

    turn: int
    workload: bytes
    acks: bool | None


class Reset(_Command):
    """Drop what the turn has not begun with; the next raw event is asked for already."""

    turn: int
    generation: int


class Close(_Command):
    """Raise this in the filter, in the place of raw events: the stream has ended, or has failed the subscriber."""

    turn: int
    kind: str
    message: str


class Cancel(_Command):
    """Cancel the turn."""

    turn: int


class Release(_Command):
    """Forget a trigger, which has no turn; call its `cleanup` where a run does not still wait for it.

    `workload`: nothing waits for it any more, and it is to be made for that where it is not here.
    """

    trigger_id: int
    workload: bytes | None


class Room(_Command):
    """Whether triggers may fire on: the outbox is bounded."""

    there: bool


class Describe(_Command):
    """Make the producer of a trigger's stream, and say whether it is one of Headrace's own; `workload` is the trigger's `RunTrigger`."""

    turn: int
    workload: bytes


Command: TypeAlias = Begin | Reset | Close | Cancel | Release | Room | Describe | ProducerCommand


class Raw(msgspec.Struct, array_like=True):
    """One raw event. `data` is that of a `RawEvent`, or, where it is `pickled`, what another producer yielded."""

    data: bytes
    lane: str
    position: int | None
    pickled: bool


class Commands(msgspec.Struct, array_like=True, tag=True):
    """Runner: do these; then deliver: each `(turn, index)` gives a turn one of the raw events."""

    commands: list[Command]
    raws: list[Raw]
    delivered: list[tuple[int, int]]


class Ready(msgspec.Struct, array_like=True, tag=True):
    """Trigger process: the project is imported."""


class _Step(msgspec.Struct, array_like=True, tag=True):
    """One thing that a turn did."""


class Next(_Step):
    """It is done with the raw event before, and goes on to the next."""

    turn: int
    generation: int


class Fired(_Step):
    """It yielded a trigger event; `payload` is JSON, `occurred` ISO 8601.

    Without a payload it cannot be stored, for this `reason`, and `shown` is how it prints.
    """

    turn: int
    generation: int
    payload: bytes | None
    id: str | None
    subject: str | None
    occurred: str | None
    follows: str | None
    kind: str | None
    source: str | None
    reason: str = ""
    shown: str = ""


class Refused(_Step):
    """It refused the raw event that it is at."""

    turn: int
    generation: int
    reason: str | None


class Ended(_Step):
    """It returned, or failed; `loaded`: the trigger itself was made."""

    turn: int
    generation: int
    failure: Failure | None
    loaded: bool


class Released(_Step):
    """A trigger's `cleanup` has returned, or failed."""

    trigger_id: int
    failure: Failure | None


class Described(_Step):
    """Headrace's upstream that reads the trigger's stream, with its arguments as JSON, or None if the producer is a user's."""

    turn: int
    classpath: str | None
    kwargs: bytes


Step: TypeAlias = Next | Fired | Refused | Ended | Released | Described | ProducerStep


class Steps(msgspec.Struct, array_like=True, tag=True):
    """Trigger process: these were done, in order."""

    steps: list[Step]
