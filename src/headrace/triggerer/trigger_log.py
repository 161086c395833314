"""The log of the trigger whose code is running."""

from __future__ import annotations

from typing import Any

from headrace.core.tracing import trace_id_in
from headrace.logs.context import Target
from headrace.logs.names import parse_trigger_log
from headrace.triggerer.context import TriggerContext, current_trigger


def trigger_target() -> Target | None:
    """Return where that goes which is logged now, and the fields that tell its lines apart, or None if no trigger's code runs."""
    running = current_trigger.get()
    name = None if running is None else parse_trigger_log(running.log_name)
    if running is None or name is None:
        return None
    return Target(name, {"trigger": running.name, "trigger_id": running.trigger_id, "job": name.job_id}, _place(running))


def _place(running: TriggerContext) -> dict[str, Any]:
    """Return the fields that say which raw event its filter is at."""
    place = None if running.place is None else running.place()
    if place is None:
        return {}
    traced = {} if place.trace is None else {"trace_id": trace_id_in(place.trace)}
    return {"stream": place.stream, "lane": place.lane, "position": place.position} | traced
