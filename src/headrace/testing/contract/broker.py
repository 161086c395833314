"""The broker that the contract suite drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from headrace.triggers.upstream import Upstream


class Broker(ABC):
    """The system behind an upstream, as `SourceContract` drives it. Each test gets a new one, which is empty.

    The flags say what the system can promise. A test of a promise whose flag is False is skipped.
    """

    lanes: ClassVar[bool] = True
    """It has several lanes, which are ordered and advanced independently. Otherwise `send` ignores `lane`."""

    positions: ClassVar[bool] = True
    """Its producer numbers the messages of a lane: `get_position`."""

    redelivery: ClassVar[bool] = True
    """It delivers a message that was not advanced again, to the next producer."""

    progress: ClassVar[bool] = True
    """Its producer knows the end of a lane and the committed position: `get_lane_end`, `get_committed`."""

    durable: ClassVar[bool] = True
    """It outlives the process that reads it, so that the suite can kill that process."""

    @abstractmethod
    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        """Append messages to a lane, each the text of one JSON value. May be called from any thread, one call at a time."""

    @abstractmethod
    def upstream(self) -> Upstream:
        """Return the upstream whose producers read all lanes. They yield `RawEvent`s."""

    def close(self) -> None:
        """Release all that this process holds of the broker."""
        return
