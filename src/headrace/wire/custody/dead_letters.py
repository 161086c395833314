"""What people do about dead letters: POST /api/v1/dead-letters/redrive and …/discard, with the deployment key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.custody.events import DeadLetterKind

DeadLetterState = Literal["open", "redriven", "discarded"]
DeadLetterActionKind = Literal["redrive", "discard"]
MOST_AT_ONCE = 1_000


class ActOnDeadLetters(WireModel):
    """Which dead letters: these `ids`, or the oldest open ones that fit every filter given (`every`: no filter is needed).

    At most `limit` of them are acted on. `by` says who asks.
    """

    ids: list[str] = Field(default=[], max_length=MOST_AT_ONCE)
    trigger: str | None = None
    stream: str | None = None
    kind: DeadLetterKind | None = None
    every: bool = False
    limit: int = Field(default=MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE)
    by: str = Field(default="", max_length=200)


class SkippedDeadLetter(WireModel):
    """One dead letter that was left as it is, and why."""

    id: str
    why: str


class DeadLettersActed(WireModel):
    """How many were acted on, which were left, and how many more fit the filter."""

    count: int
    skipped: list[SkippedDeadLetter]
    remaining: int


class DeadLetterAction(WireModel):
    """One action that was taken: when, by whom, what was asked for (JSON), and how many it changed."""

    id: int
    at: Timestamp
    who: str
    action: DeadLetterActionKind
    asked: str
    count: int


class DeadLetterActions(WireModel):
    """GET /api/v1/dead-letter-actions: the newest first."""

    actions: list[DeadLetterAction]
