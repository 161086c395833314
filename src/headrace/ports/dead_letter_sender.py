"""Copies of dead letters, and the protocol of what sends them to a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import HeadraceError
from headrace.wire.custody.copies import UncopiedDeadLetter


class DeadLetterCopy(NamedTuple):
    """One dead letter to send: its origin and reason, the metadata of its message if the broker has any, and the message."""

    dead_letter: UncopiedDeadLetter
    metadata: MessageMetadata | None
    data: bytes


class DeadLetterSender(Protocol):
    """Sends copies of dead letters to one target of a broker. One instance has one connection, which it opens when it first sends."""

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies in order, and wait until the broker has confirmed or rejected each. Return None for each confirmed one.

        Any other copy has its error: `CopyRejected` if the broker never accepts it, else it is sent again.

        Raises:
            HeadraceError: The broker cannot be used now. All copies are sent again.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection. Copies without a confirmation may have arrived."""
        ...
