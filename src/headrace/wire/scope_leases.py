"""A driver's claim on a scope. POST /execution/scopes/{scope}/lease."""

from __future__ import annotations

from headrace.wire.events import Cursor
from headrace.wire.model import Wire


class ScopeLease(Wire):
    """The scope is the caller's, at `epoch`, until its job ends or is silent. `log` tells this event log from every other."""

    scope: str
    epoch: int
    log: str
    cursor: Cursor
