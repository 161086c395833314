"""The broker that the contract suite drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from headrace.triggers.upstream import Upstream

BOUND_MESSAGES: Final = 10


class Broker(ABC):
    """The system behind an upstream, as `SourceContract` drives it. Each test gets a new one, which is empty.

    The flags say what the system can promise. A test of a promise whose flag is False is skipped.
    """

    lanes: ClassVar[bool] = True
    """It has several lanes, which are ordered and advanced independently. Otherwise `send` ignores `lane`."""

    ordered: ClassVar[bool] = True
    """It delivers the messages of a lane in the order in which they were sent, also when it delivers them again."""

    unbounded: ClassVar[bool] = True
    """It delivers any number of messages of a lane before the first is advanced.

    Otherwise it delivers up to `BOUND_MESSAGES`, and none that is sent after the first was delivered.
    """

    growable: ClassVar[bool] = True
    """A lane takes further messages. Otherwise each call of `send` begins a new lane, and the lanes are not in the order of the calls."""

    positions: ClassVar[bool] = True
    """Its producer numbers the messages of a lane: `get_position`."""

    redelivery: ClassVar[bool] = True
    """It delivers a message that was not advanced again, to the next producer."""

    progress: ClassVar[bool] = True
    """Its producer knows the end of a lane and the committed position: `get_lane_end`, `get_committed`."""

    counted: ClassVar[bool] = False
    """Its producer counts the messages that it has not yielded: `get_unread`. False by default, since a producer need not count them."""

    durable: ClassVar[bool] = True
    """It outlives the process that reads it, so that the suite can kill that process."""

    def bounded(self, count: int) -> int:
        """Return `count`, or the most messages of a lane that the broker delivers before the first is advanced, if that is less."""
        return count if self.unbounded else min(count, BOUND_MESSAGES)

    @abstractmethod
    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        """Append messages to a lane, each the text of one JSON value. May be called from any thread, one call at a time."""

    @abstractmethod
    def upstream(self) -> Upstream:
        """Return the upstream whose producers read all lanes. They yield `RawEvent`s."""

    def close(self) -> None:
        """Release all that this process holds of the broker."""
        return
