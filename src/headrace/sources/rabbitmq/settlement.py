"""The delivery tags of one channel: which are answered, and the frames that settle them. No clock, no I/O.

An acknowledgement is cumulative: it covers all earlier deliveries of the channel. So while a failed message is held, later messages are
acknowledged one by one. A tag is settled once: the server closes a channel that settles a tag twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Answer(Enum):
    """What becomes of a delivery."""

    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"


class Settle(NamedTuple):
    """One frame. `ack` settles `tag`, or with `multiple` all tags up to it; otherwise the message is returned, or dead-lettered."""

    tag: int
    ack: bool = True
    multiple: bool = False
    requeue: bool = False


class Settlement:
    """The answers of one channel, by delivery tag."""

    def __init__(self) -> None:
        self._answered = 0
        self._held: dict[int, float] = {}

    def is_due(self, before: float) -> bool:
        """Return whether a failed message is held since `before`."""
        return any(since <= before for since in self._held.values())

    def answer(self, answers: Iterable[tuple[int, Answer]], now: float) -> list[Settle]:
        """Record answers in the order of their tags, and return the frames to send. Tags that were answered before change nothing."""
        frames: list[Settle] = []
        last = 0  # of the answers that one cumulative acknowledgement covers
        for tag, answer in answers:
            if tag <= self._answered:
                continue
            self._answered = tag
            if answer is Answer.DONE and not self._held:
                last = tag
                continue
            if last:
                frames.append(Settle(last, multiple=True))
                last = 0
            if answer is Answer.FAILED:
                self._held[tag] = now
            else:
                frames.append(Settle(tag, ack=answer is Answer.DONE))
        if last:
            frames.append(Settle(last, multiple=True))
        return frames

    def requeue(self, before: float) -> list[Settle]:
        """Return the frames that requeue the failed messages held since `before`."""
        due = [tag for tag, since in self._held.items() if since <= before]
        for tag in due:
            del self._held[tag]
        return [Settle(tag, ack=False, requeue=True) for tag in due]
