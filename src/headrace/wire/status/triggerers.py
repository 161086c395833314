"""The triggerers and their triggers: desired states, failures and backlogs."""

from __future__ import annotations

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.control.jobs import DesiredState
from headrace.wire.status.status import JobStatus, TriggerStatus


class TriggererList(WireModel):
    """GET /api/v1/triggerers: running triggerers, then recently ended ones."""

    triggerers: list[JobStatus]


class SetDesiredState(WireModel):
    """POST /api/v1/triggerers/{id}/desired-state: `drain` or `stop` a triggerer, or keep it running (`run`)."""

    desired_state: DesiredState


class BacklogDropped(WireModel):
    """POST /api/v1/triggers/{id}/backlog/drop: the number of deleted raw events."""

    dropped: int


class TriggerDetail(TriggerStatus):
    """GET /api/v1/triggers/{id}: one trigger with its last failure, its next start, and the code in which it blocks its triggerer now."""

    project: str
    classpath: str
    epoch: int
    failures: int
    max_restarts: int | None
    retry_at: Timestamp | None
    traceback: list[str] = []
    stack: list[str] = []
