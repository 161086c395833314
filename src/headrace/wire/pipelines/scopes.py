"""What a person is shown of a scope, and may do to it. GET /api/v1/scopes and …/{scope}/waiting; POST …/{scope}/reset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel

ScopeKind = Literal["pipeline", "webhook", "task-runs"]
LeaderIs = Literal["missing", "waiting", "underway", "dead"]
"""`missing`: not in the log, as far as is known. `waiting`: it waits for its own leader. `underway`: it is being handled, or will be
again. `dead`: it was given up on, and holds what follows it."""


class Wait(WireModel):
    """One event that waits for the one it `follows`, since `since`. It counts as lost at `lost_at`, unless its leader is only held up."""

    seq: int
    id: str
    source: str
    subject: str | None
    follows: str
    leader: LeaderIs
    since: Timestamp
    lost_at: Timestamp | None


class Underway(WireModel):
    """The batch that a scope is at: how many events it read, and since when it runs."""

    batch: int
    events: int
    since: Timestamp


class ScopeStatus(WireModel):
    """How far one scope has come in the log, and what its ordering did. `lag` counts the events from the first that is not handled
    to the head of the log.

    `holds` counts events by how long they had to wait (HOLD_BUCKETS), `hold_seconds` is the sum; those that did not wait are not among
    them. `waits` names some of what waits, first of all what misses its leader; the longest wait is `waiting_since`. Times of waiting are
    by the scope's clock, which stands still from `clock_until` on, until the scope is heard of again. `read` and `seconds` are of its
    last batch that read anything. Of webhooks and task runs no more than 10,000 are counted as waiting.
    `running_since` is when the process started that holds the scope of a pipeline, or else the last one of its project that waits for one
    (None: there is none). `open_runs` are its planned runs that have no outcome yet.
    `behind_since` is when the first event came that is behind the cursor (None: there is none, or it is not told).
    `needs` is when the oldest event came that the scope may still read: it holds the log back, however old that is.
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
    waits: list[Wait] = []
    underway: Underway | None = None


class ScopeList(WireModel):
    """GET /api/v1/scopes: by name, those of pipelines first."""

    now: Timestamp
    scopes: list[ScopeStatus]


class WaitPage(WireModel):
    """What waits in one scope, in the order in which it came. `at` is the moment by the scope's clock; ask for `after` to go on.

    A pipeline tells of those that wait longest, so there may be fewer than are `waiting` in all.
    """

    scope: str
    kind: ScopeKind
    at: Timestamp
    waiting: int
    waits: list[Wait]
    after: int | None


class ResetScope(WireModel):
    """Where the scope starts again: with the event `begin`, or with what is stored from now on (None)."""

    begin: int | None = Field(ge=1)


class ScopeReset(WireModel):
    """The scope reads event `first` next. These open runs, and the events that waited or that batching held, were given up."""

    scope: str
    first: int
    open_runs: int
    waiting: int
    held: int


def telling(waits: Iterable[Wait], most: int) -> list[Wait]:
    """Return those of the waits that say most of why something waits: first what misses its leader or cannot have it, then the longest."""
    return sorted(waits, key=lambda wait: (wait.leader not in {"missing", "dead"}, wait.since, wait.seq))[:most]
