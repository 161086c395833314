"""Actions on dead letters: POST /api/v1/dead-letters/redrive and …/discard, with the deployment key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.custody.events import DeadLetterKind

DeadLetterState = Literal["open", "redriven", "discarded"]
DeadLetterActionKind = Literal["redrive", "discard"]
MAX_DEAD_LETTERS = 1_000


class DeadLetterSelection(WireModel):
    """The selected dead letters: these `ids`, or the oldest open ones that match all given filters. `select_all` selects without a filter.

    The action changes at most `limit` of them. `by` names the caller.
    """

    ids: list[str] = Field(default=[], max_length=MAX_DEAD_LETTERS)
    trigger: str | None = None
    stream: str | None = None
    kind: DeadLetterKind | None = None
    select_all: bool = False
    limit: int = Field(default=MAX_DEAD_LETTERS, ge=1, le=MAX_DEAD_LETTERS)
    by: str = Field(default="", max_length=200)


class SkippedDeadLetter(WireModel):
    """One unchanged dead letter, and the reason."""

    id: str
    why: str


class DeadLetterActionResult(WireModel):
    """The number of changed dead letters, the skipped ones, and how many more match the filter."""

    count: int
    skipped: list[SkippedDeadLetter]
    remaining: int


class DeadLetterAction(WireModel):
    """One past action: its time, its caller, its request (JSON), and the number of changed dead letters."""

    id: int
    at: Timestamp
    who: str
    action: DeadLetterActionKind
    selection: str
    count: int


class DeadLetterActions(WireModel):
    """GET /api/v1/dead-letter-actions: the newest first."""

    actions: list[DeadLetterAction]
