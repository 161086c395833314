"""The audit of the API server, in addition to the independent check."""

from __future__ import annotations

from headrace.client.admin.client import AdminClient
from headrace.demo.report.check import EXAMPLES, Point
from headrace.wire.calls import admin as calls


def custody(url: str) -> Point:
    """Return whether `headrace audit` is clean. Raises `ApiError`."""
    with AdminClient(url) as client:
        audit = client.read(calls.GET_AUDIT)
    wrong = [
        f"{stream.stream}: {trigger.trigger} does not balance"
        for stream in audit.streams
        for trigger in stream.triggers
        if not trigger.balanced
    ]
    wrong += [f"{stream.stream}: lane {lane.lane}: {lane.problem}" for stream in audit.streams for lane in stream.problems]
    answers = sum(trigger.read for stream in audit.streams for trigger in stream.triggers)
    return Point("Every trigger accounts for all that was read (headrace audit)", answers, len(wrong), wrong[:EXAMPLES])
