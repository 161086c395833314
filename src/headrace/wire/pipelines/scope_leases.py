"""A driver's lease on a scope. POST /execution/scopes/{scope}/lease."""

from __future__ import annotations

from pydantic import Field

from headrace.wire.base import WireModel
from headrace.wire.custody.events import Cursor


class AcquireScope(WireModel):
    """The beginning of a new scope: the event `begin`, or by default the next event that is stored."""

    begin: int | None = Field(default=1, ge=0)


class ScopeLease(WireModel):
    """The job holds the scope at `epoch` until it ends or is silent.

    `log` identifies the event log, `incarnation` the scope among those of its name before a reset. The scope began after the event
    `begin_seq`, when `begin_redelivery_id` was the last redelivery. `cursor` is that of its last plan.
    """

    scope: str
    epoch: int
    log: str
    incarnation: str
    begin_seq: int
    begin_redelivery_id: int
    cursor: Cursor
