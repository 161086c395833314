"""The port through which receipts are recorded before the broker is advanced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace.core.ledger.receipts import Receipt
from headrace.triggers.stream_log import LogState


class ReceiptRecorder(Protocol):
    """Records receipts. The calls retry while the API is unavailable; their errors count as a failed advance."""

    async def count_receipts(self, stream: str) -> LogState:
        """Return the event log and its number of receipts of the stream. Called before the stream is opened."""
        ...

    async def recorded_offsets(self, stream: str, lanes: Sequence[str]) -> Mapping[str, int]:
        """Return the last recorded position of each lane that has one. Called before the first receipt of a lane."""
        ...

    async def record(self, receipt: Receipt) -> bool:
        """Record the receipt durably, and return whether it was new.

        Calls for several lanes are concurrent; those for one lane are sequential.
        """
        ...
