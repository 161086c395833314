"""The log of the trigger whose code is running."""

from __future__ import annotations

from typing import Any

from headrace.core.tracing import trace_id_in
from headrace.logs.context import Target
from headrace.logs.names import parse_trigger_log
from headrace.triggerer.context import TriggerContext, current_trigger


def trigger_target() -> Target | None:
    """Return the log target of the running trigger, with the fields of its lines, or None outside trigger code."""
    running = current_trigger.get()
    name = None if running is None else parse_trigger_log(running.log_name)
    if running is None or name is None:
        return None
    return Target(name, {"trigger": running.name, "trigger_id": running.trigger_id, "job": name.job_id}, _origin_fields(running))


def _origin_fields(running: TriggerContext) -> dict[str, Any]:
    """Return the log fields of the filter's current raw event."""
    origin = None if running.get_origin is None else running.get_origin()
    if origin is None:
        return {}
    traced = {} if origin.trace is None else {"trace_id": trace_id_in(origin.trace)}
    return {"stream": origin.stream, "lane": origin.lane, "position": origin.position} | traced
