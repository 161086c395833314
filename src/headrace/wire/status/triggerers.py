"""The triggerers and their triggers as people look after them: who runs what, who is to stop, what is parked and why."""

from __future__ import annotations

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.control.jobs import Wanted
from headrace.wire.status.status import JobStatus, TriggerStatus


class TriggererList(WireModel):
    """GET /api/v1/triggerers: those that run, then those that ended last."""

    triggerers: list[JobStatus]


class WantJob(WireModel):
    """POST /api/v1/triggerers/{id}/wanted: `drain` it, `stop` it, or let it `run` on."""

    wanted: Wanted


class BacklogDropped(WireModel):
    """POST /api/v1/triggers/{id}/backlog/drop: how many raw events were dropped."""

    dropped: int


class TriggerDetail(TriggerStatus):
    """GET /api/v1/triggers/{id}: one trigger with its last failure, when it starts again, and where it blocks its triggerer now."""

    project: str
    classpath: str
    epoch: int
    failures: int
    max_restarts: int | None
    retry_at: Timestamp | None
    traceback: list[str] = []
    stack: list[str] = []
