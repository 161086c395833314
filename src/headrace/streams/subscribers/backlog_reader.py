"""Reads the backlog of one subscriber before it goes live."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import PendingBacklogEvent, PendingEvent, Subscriber
from headrace.streams.backlog import Backlog, BacklogEntry
from headrace.streams.subscribers.failure_counter import Retry, text_of
from headrace.streams.subscribers.raw_text import from_text

PAGE: Final = 500
"""Entries of a backlog that are fetched in one call."""


class Ahead(NamedTuple):
    """A later raw event: `token` is its entry, or its number in the backlog."""

    token: PendingEvent | int
    raw: Any
    lane: str
    position: int | None

    def is_now(self, entry: PendingEvent) -> bool:
        """Whether `entry` is this raw event."""
        return entry is self.token or (isinstance(entry, PendingBacklogEvent) and entry.number == self.token)


class BacklogReader:
    """Reads the backlog from its beginning, page by page, and makes the reader live at its end.

    Entries that the reader has read and not settled yet are skipped. They are not always the oldest: older dead letters may have been
    redriven meanwhile.
    After a page that is not full, the reader queues later raw events, so that it catches up with a stream of any rate.
    The reader goes live in the one step in which a page is empty, all its spills are confirmed, and there was no spill since the request of
    the page. So every spilled raw event has been read, and every other one is queued.
    Lanes with a retry are skipped until it is due by `clock`; then reading goes back to the first skipped entry. While there are such
    lanes, the reader queues nothing: later raw events come through the backlog, which has each lane in order.
    """

    def __init__(
        self, backlog: Backlog, ledger: Ledger, reader: Subscriber, *, retries: dict[str, Retry], clock: Callable[[], float]
    ) -> None:
        self.backlog = backlog
        self._ledger = ledger
        self._reader = reader
        self._page: deque[BacklogEntry] = deque()
        self._retries = retries
        self._clock = clock
        self._after = 0
        self._passed_over: int | None = None
        self._known: frozenset[int] = frozenset()
        self._spilled = 0
        self._sure = False
        if not retries:
            ledger.catch_up(reader)

    def begin(self) -> PendingEvent | None:
        """Open and return the next raw event of the backlog for an idle reader, or return None if a page must be fetched."""
        while self._page:
            entry = self._page.popleft()
            number, lane = entry.number, entry.lane
            if lane not in self._retries:
                opened = self._ledger.begin_from_backlog(
                    self._reader, number, raw_event_of(entry), entry.raw, lane, position=entry.position, attempts=entry.attempts
                )
                opened.stream = None if entry.stream == self._reader.stream else entry.stream
                return opened
            if self._passed_over is None:
                self._passed_over = number
        return None

    def ahead(self, begin: int, end: int) -> list[Ahead]:
        """Return the later raw events of the fetched page, from the `begin`th up to the `end`th."""
        following = islice((one for one in self._page if one.lane not in self._retries), begin, end)
        return [Ahead(one.number, raw_event_of(one), one.lane, one.position) for one in following]

    async def fetch(self) -> Sequence[BacklogEntry]:
        """Return the next page, for `take`."""
        self._release_due()
        reader = self._reader
        self._spilled, self._sure = reader.spilled, not reader.obligations
        # Entries that are settled during the fetch may still be in the page.
        self._known = frozenset(reader.unsettled)
        return await self.backlog.fetch(self._after, PAGE)

    def take(self, page: Sequence[BacklogEntry]) -> bool:
        """Continue with a page, or go live if it is empty. Return False if spills must be confirmed first."""
        reader = self._reader
        self._page.extend(entry for entry in page if not self._was_read(entry.number) and not self._was_at(entry))
        if len(page) < PAGE and not self._retries:
            self._ledger.catch_up(reader)
        if page:
            self._after = page[-1].number
            return True
        is_at_end = self._sure and reader.spilled == self._spilled
        if self._retries:
            return not is_at_end and not reader.obligations
        if is_at_end:
            self._ledger.go_live(reader)
        return not reader.obligations

    def _release_due(self) -> None:
        """Read lanes whose retry is due, from the first skipped entry."""
        now = self._clock()
        due = [lane for lane, retry in self._retries.items() if retry.due <= now]
        for lane in due:
            del self._retries[lane]
        if due and self._passed_over is not None:
            self._after, self._passed_over = self._passed_over - 1, None
            self._page.clear()

    def _was_read(self, number: int) -> bool:
        return number in self._reader.unsettled or number in self._known

    def _was_at(self, entry: BacklogEntry) -> bool:
        """Whether this is the entry that was open when it was spilled."""
        moved = self._reader.moved
        if moved is None or entry.redriven or entry.stream != self._reader.stream:
            return False
        if moved.position != entry.position or moved.lane.name != entry.lane or text_of(moved) != entry.raw:
            return False
        self._ledger.set_backlog_number(self._reader, entry.number)
        return True


def raw_event_of(entry: BacklogEntry) -> Any:
    """Return the raw event of an entry, decoded again if its value was malformed."""
    return from_text(entry.raw, entry.lane, entry.position) if entry.decoded is None else entry.decoded
