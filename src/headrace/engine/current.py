"""Which trigger's code runs just now."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple


class Running(NamedTuple):
    """One trigger at work here."""

    trigger_id: int
    name: str
    log_name: str


current_trigger: Final[ContextVar[Running | None]] = ContextVar("headrace_current_trigger", default=None)
"""The trigger that the running code belongs to. Tasks and threads that it starts inherit it."""
