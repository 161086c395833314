"""The triggerers and their triggers: desired states, failures and backlogs."""

from __future__ import annotations

from headrace.core.matching.firing_explanation import FiringReason
from headrace.wire.base import Timestamp, WireModel
from headrace.wire.control.jobs import DesiredState
from headrace.wire.control.streams import LeafFailures
from headrace.wire.status.status import JobStatus, TriggerStatus


class WatchSamples(WireModel):
    """How often each field of the pattern of a watch failed on `samples` raw events of late, of which `matched` matched.

    `leaves` has at most 10 paths, the most failures first. Each field is tested on its own.
    """

    samples: int
    matched: int
    leaves: list[LeafFailures]
    updated: Timestamp


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
    """GET /api/v1/triggers/{id}: one trigger with its last failure, its next start, and the code in which it blocks its triggerer now.

    `pattern` is the JSON text of the pattern of a watch, with stored secrets masked. It is null if the watch fires on all raw events, or
    for the reason in `pattern_hidden`. `sampled` is null if no raw event was sampled for its pattern since the watch was declared.
    """

    project: str
    classpath: str
    epoch: int
    failures: int
    max_restarts: int | None
    retry_at: Timestamp | None
    traceback: list[str] = []
    stack: list[str] = []
    is_watch: bool = False
    pattern: str | None = None
    pattern_hidden: str | None = None
    sampled: WatchSamples | None = None


class FiringExplanation(WireModel):
    """GET /api/v1/firings/explanation: why a trigger fired on an event of the log or did not.

    `text` is one sentence; `notes` say what it does not cover, or what to do next. `runs` are at most 20 ids of the pipeline runs with the
    event, if the trigger fired. A trigger that `fired_as_another_event` fired on the same raw event, which has several events in the log.
    """

    trigger_id: int
    trigger: str
    project: str
    seq: int
    id: str
    source: str
    received: Timestamp
    fired: bool
    reason: FiringReason
    text: str
    notes: list[str] = []
    runs: list[str] = []
