"""Scopes for users: GET /api/v1/scopes and …/{scope}/waiting; POST …/{scope}/reset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel

ScopeKind = Literal["pipeline", "webhook", "task-runs"]
Mark = Literal["lost", "late", "cycle"]
EventState = Literal["unread", "waiting", "released", "in_progress", "dead"]
"""`unread`: the scope has not read it. `waiting`: it waits for its leader. `released`: the scope has ordered it.

`in_progress`: a webhook or task run will receive it, or receives it again. `dead`: its attempts are used up.
"""
LeaderState = Literal["missing", "waiting", "in_progress", "dead"]
"""`missing`: not in the log, as far as known.

`waiting`: it waits for its own leader. `in_progress`: it is in progress or will be retried. `dead`: its attempts are used up, and it
holds its followers.
"""


class FollowerWait(WireModel):
    """One event that waits for its leader `follows`, since `since`. It counts as lost at `lost_at`, unless its leader is only held up."""

    seq: int
    id: str
    source: str
    subject: str | None
    follows: str
    leader: LeaderState
    since: Timestamp
    lost_at: Timestamp | None


class EventInScope(WireModel):
    """One event in one scope. `position` and `mark` are null until the scope releases the event.

    `wait` is null for an event that does not wait. A pipeline reports its 100 longest waits; the others are `waiting` without `wait`. `at`
    is the time by the scope's clock.
    """

    scope: str
    kind: ScopeKind
    state: EventState
    at: Timestamp
    position: int | None = None
    mark: Mark | None = None
    wait: FollowerWait | None = None


class RunningBatchSummary(WireModel):
    """The running batch of a scope: the number of events that it read, and its start."""

    batch: int
    events: int
    since: Timestamp


class ScopeStatus(WireModel):
    """The progress of one scope in the log, and the results of its ordering.

    `lag` counts the events from the first unhandled one to the head of the log. `holds` counts events by their waiting times
    (HOLD_BUCKETS), without events that did not wait; `hold_seconds` is the sum. `waits` has some waiting events, first those with a missing
    leader; the longest wait began at `waiting_since`. Waiting times are by the scope's clock, which stands still from `clock_until` until
    the next report of the scope. `read` and `seconds` are those of its last batch with events. Webhooks and task runs count at most 10,000
    waiting events.

    `running_since` is the start of the process that holds the scope of a pipeline, or else of the last process of its project that waits
    for one. `open_runs` counts planned runs without an outcome. `behind_since` is the time of the first event behind the cursor, or null if
    there is none or it is not reported. `needs` is the time of the oldest event that the scope may still read: the log keeps it, however
    old it is.
    """

    scope: str
    kind: ScopeKind = "pipeline"
    cursor: int
    lag: int
    waiting: int
    ordered: int
    lost: int
    late: int
    cycles: int
    batch: int
    updated: Timestamp
    running_since: Timestamp | None = None
    open_runs: int = 0
    held: int = 0
    read: int = 0
    seconds: float = 0.0
    holds: list[int] = []
    hold_seconds: float = 0.0
    clock_until: Timestamp | None = None
    behind_since: Timestamp | None = None
    needs: Timestamp | None = None
    waiting_since: Timestamp | None = None
    waits: list[FollowerWait] = []
    running_batch: RunningBatchSummary | None = None


class ScopeList(WireModel):
    """GET /api/v1/scopes: scopes by name, those of pipelines first."""

    now: Timestamp
    scopes: list[ScopeStatus]


class WaitPage(WireModel):
    """The waiting events of one scope, in the order of arrival. `at` is the time by the scope's clock. Continue with `after`.

    A pipeline reports its longest waits only, so a page may have fewer than all `waiting` events.
    """

    scope: str
    kind: ScopeKind
    at: Timestamp
    waiting: int
    waits: list[FollowerWait]
    after: int | None


class ResetScope(WireModel):
    """The new beginning of the scope: the event `begin`, or by default the next event that is stored."""

    begin: int | None = Field(ge=1)


class ScopeReset(WireModel):
    """The scope reads event `first` next. It gave up these open runs, and the events that waited or that batching held."""

    scope: str
    first: int
    open_runs: int
    waiting: int
    held: int


def select_waits(waits: Iterable[FollowerWait], limit: int) -> list[FollowerWait]:
    """Return up to `limit` waits, first those with a missing or dead leader, then the longest."""
    return sorted(waits, key=lambda wait: (wait.leader not in {"missing", "dead"}, wait.since, wait.seq))[:limit]
