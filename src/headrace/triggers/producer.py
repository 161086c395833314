"""The broker side of a shared stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.core.ledger.outcome import AdvanceItem

if TYPE_CHECKING:
    from headrace.triggers.stream_log import StreamLog
    from headrace.triggers.upstream import Upstream


class SharedStreamProducer(ABC):
    """Yields raw events and later advances the broker; one instance owns the connection for the lifetime of one poll."""

    upstream: Upstream | None = None
    """The upstream of Headrace's own that makes equal producers; None: the producer is a user's."""

    log: StreamLog | None = None
    """The event log that the stream is recorded in, set before `open_stream`; None: the stream is not recorded.

    A producer that keeps progress of its own keeps `log.mark` with it, and calls `log.check` with that mark as it opens the stream.
    """

    @abstractmethod
    def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Open the connection and yield `(raw_event, broker_payload)` for ever, or raise; an async generator.

        `broker_payload` is whatever this producer needs to advance the broker past the raw event.
        """

    @abstractmethod
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Tell the broker that a lane is done up to here: commit, delete, ack.

        `batch` is never empty: the answered raw events of one lane, in order and without gap. The lane's next batch comes only after
        this call has returned; other lanes' calls may overlap with it. When it raises it is called again with the same batch.
        """

    def get_advance_lane(self, broker_payload: Any) -> Hashable:
        """Return the lane of a raw event; by default there is one lane. Called once for each raw event: be quick, do not block."""
        del broker_payload
        return None

    def get_position(self, broker_payload: Any) -> int | None:
        """Return the raw event's position, which rises within its lane; None: the upstream has none."""
        del broker_payload
        return None

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the position of the lane's last raw event just now, to tell how far behind the reading is; None: unknown, or done."""
        del lane
        return None

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the position of the last raw event up to which the upstream itself has the lane as done; None: unknown, or none yet."""
        del lane
        return None

    def get_errors(self) -> Mapping[str, str]:
        """Return why parts of the upstream cannot be read just now, by their names; the rest is read all the same."""
        return {}

    async def aclose(self) -> None:
        """Close the connection; called once, when the poll has ended and the last advance has returned."""
        return
