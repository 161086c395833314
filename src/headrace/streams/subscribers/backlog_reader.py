"""One subscriber's way through its backlog, before it goes live."""

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
"""Kept raw events fetched at once."""


class Ahead(NamedTuple):
    """A raw event that is to come: `token` is its entry, or its number in the backlog."""

    token: PendingEvent | int
    raw: Any
    lane: str
    position: int | None

    def is_now(self, entry: PendingEvent) -> bool:
        """Whether `entry` is this raw event."""
        return entry is self.token or (isinstance(entry, PendingBacklogEvent) and entry.number == self.token)


class BacklogReader:
    """Reads the backlog from its beginning, page by page, and lets the reader go live when there is none left.

    What the reader has read before and has not settled yet is left out. It is not always the oldest: what the reader was at when that was
    spilled may have older dead letters before it, which were redriven meanwhile.
    A page that is not full lets the reader collect what is published from then on, so that it catches up however quick the stream is.
    It goes live in the one step in which a page comes back empty, all its spills are confirmed, and none was made since the page was asked
    for: whatever was spilled is read, and whatever was not is collected.
    Lanes that wait to be tried again are passed over until they are due by `clock`; then it goes back to what it passed over. As long as
    there are any, the reader collects nothing: what is published comes through the backlog, in which each lane is in order.
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
        """Move an idle reader to the next raw event of its backlog. Return None if a page must be fetched."""
        while self._page:
            number, lane, position, raw, attempts = self._page.popleft()
            if lane not in self._retries:
                return self._ledger.begin_from_backlog(
                    self._reader, number, from_text(raw, lane, position), raw, lane, position=position, attempts=attempts
                )
            if self._passed_over is None:
                self._passed_over = number
        return None

    def ahead(self, begin: int, end: int) -> list[Ahead]:
        """Return what follows in the page that was fetched, from the `begin`th to before the `end`th."""
        found = islice((one for one in self._page if one.lane not in self._retries), begin, end)
        return [Ahead(one.number, from_text(one.raw, one.lane, one.position), one.lane, one.position) for one in found]

    async def fetch(self) -> Sequence[BacklogEntry]:
        """Return the next page, for `take`."""
        self._release_due()
        reader = self._reader
        self._spilled, self._sure = reader.spilled, not reader.claims
        # What is settled while the page is under way may still be in that page.
        self._known = frozenset(reader.unsettled)
        return await self.backlog.fetch(self._after, PAGE)

    def take(self, page: Sequence[BacklogEntry]) -> bool:
        """Go on to a page, or go live where there is none; False: what was spilled must first be confirmed."""
        reader = self._reader
        self._page.extend(entry for entry in page if not self._was_read(entry.number) and not self._was_at(entry))
        if len(page) < PAGE and not self._retries:
            self._ledger.catch_up(reader)
        if page:
            self._after = page[-1].number
            return True
        is_at_end = self._sure and reader.spilled == self._spilled
        if self._retries:
            return not is_at_end and not reader.claims
        if is_at_end:
            self._ledger.go_live(reader)
        return not reader.claims

    def _release_due(self) -> None:
        """Read lanes that are due again, from the first raw event that was passed over."""
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
        """Whether this is what the reader was at when it was spilled, and went on with."""
        moved = self._reader.moved
        if moved is None or moved.position != entry.position or moved.lane.name != entry.lane or text_of(moved) != entry.raw:
            return False
        self._ledger.found(self._reader, entry.number)
        return True
