"""What is recorded of a stretch of one lane before the broker is advanced: how each trigger answered it."""

from __future__ import annotations

from typing import NamedTuple


class Answers(NamedTuple):
    """How one trigger answered the raw events of a stretch; what it was owed and is not counted here it filtered."""

    trigger_id: int
    fired: int = 0
    rejected: int = 0
    spilled: int = 0
    dead_lettered: int = 0
    failed: int = 0


class Receipt(NamedTuple):
    """A stretch of one lane that is about to be advanced.

    `after` is the position before it (None: the lane begins here), `last` its last, `read` how many raw events it is. `owed` are the
    triggers that had to answer all of it; `answers` are of those of them that did more than filter.
    """

    stream: str
    lane: str
    after: int | None
    last: int
    read: int
    owed: tuple[int, ...]
    answers: tuple[Answers, ...]
