"""A driver's claim on a scope. POST /execution/scopes/{scope}/lease."""

from __future__ import annotations

from pydantic import Field

from headrace.wire.base import WireModel
from headrace.wire.custody.events import Cursor


class AcquireScope(WireModel):
    """Where the scope begins if it is new: with the event `begin`, or with what is stored from now on (None)."""

    begin: int | None = Field(default=1, ge=0)


class ScopeLease(WireModel):
    """The scope is the caller's, at `epoch`, until its job ends or is silent.

    `log` tells this event log from every other, `incarnation` this scope from those of its name before it was reset. The scope began
    after the event `begin_seq`; `begin_again` was the last redelivery at that time. `cursor` is that of its last plan.
    """

    scope: str
    epoch: int
    log: str
    incarnation: str
    begin_seq: int
    begin_again: int
    cursor: Cursor
