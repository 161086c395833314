"""Copies of dead letters to the broker: POST /execution/streams/dead-letters and …/dead-letter-copies."""

from __future__ import annotations

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.custody.events import DeadLetterKind

MAX_PAGE_DEAD_LETTERS = 500


class FindUncopied(WireModel):
    """Find the next open dead letters to copy. `reader` is the stream that the job reads."""

    reader: str


class UncopiedDeadLetter(WireModel):
    """One open dead letter to copy. `number` is new each time it is opened; `triggers` are names.

    `raw` is null if its text is no longer stored in full.
    """

    number: int
    id: str
    kind: DeadLetterKind
    reason: str
    stream: str
    lane: str | None
    position: int | None
    raw: str | None
    triggers: list[str]
    attempts: int
    received: Timestamp


class UncopiedPage(WireModel):
    """The open dead letters of `stream` with numbers above `after`, up to `through`, in the order of their numbers.

    `stream` is the reader's own, or one of the same upstream under an earlier number of shards. If `through` equals `after`, all dead
    letters are copied.
    """

    stream: str
    after: int
    through: int
    dead_letters: list[UncopiedDeadLetter]


class RejectedCopy(WireModel):
    """One dead letter that the broker never accepts, and the reason."""

    number: int
    reason: str


class RecordCopies(WireModel):
    """Record that the dead letters of `stream` with numbers above `after` are copied up to `through`, except the rejected ones.

    Nothing changes if `after` is not the recorded number any more. `copied` is the number of copies.
    """

    reader: str
    stream: str
    after: int
    through: int
    copied: int = Field(ge=0)
    rejected: list[RejectedCopy] = Field(default=[], max_length=MAX_PAGE_DEAD_LETTERS)
