"""Where a stream's receipts are recorded before the broker is advanced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace.core.ledger.receipts import Receipt
from headrace.triggers.stream_log import Books


class ReceiptRecorder(Protocol):
    """The ledger of custody. The calls try again by themselves while the store is away; what they raise counts as a failed advance."""

    async def books(self, stream: str) -> Books:
        """Return the event log, and how many receipts of the stream it has; called before the stream is opened."""
        ...

    async def marks(self, stream: str, lanes: Sequence[str]) -> Mapping[str, int]:
        """Return the last position recorded of those of these lanes that have one; called before the first receipt of a lane."""
        ...

    async def record(self, receipt: Receipt) -> bool:
        """Record the receipt durably before returning; return whether it was new.

        Several lanes record at once, one receipt after the other within a lane.
        """
        ...
