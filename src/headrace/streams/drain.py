"""One subscriber's way through its backlog, before it goes live."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from headrace.core.ledger import Ledger
from headrace.core.obligation import Entry, Kept, Reader
from headrace.streams.backlog import Backlog, BacklogEntry
from headrace.streams.rawtext import from_text
from headrace.streams.trouble import text_of

PAGE: Final = 500
"""Kept raw events fetched at once."""


class Ahead(NamedTuple):
    """A raw event that is to come: `token` is its entry, or its number in the backlog."""

    token: Entry | int
    raw: Any
    lane: str
    position: int | None

    def is_now(self, entry: Entry) -> bool:
        """Whether `entry` is this raw event."""
        return entry is self.token or (isinstance(entry, Kept) and entry.number == self.token)


class Drain:
    """Reads the backlog from its beginning, page by page, and lets the reader go live when there is none left.

    What the reader has read before and has not settled yet is left out. It is not always the oldest: what the reader was at when that was
    spilled may have older dead letters before it, which were redriven meanwhile.
    A page that is not full lets the reader collect what is published from then on, so that it catches up however quick the stream is.
    It goes live in the one step in which a page comes back empty, all its spills are confirmed, and none was made since the page was asked
    for: whatever was spilled is read, and whatever was not is collected.
    """

    def __init__(self, backlog: Backlog, ledger: Ledger, reader: Reader) -> None:
        self.backlog = backlog
        self._ledger = ledger
        self._reader = reader
        self._page: deque[BacklogEntry] = deque()
        self._after = 0
        self._spilled = 0
        self._sure = False
        ledger.catch_up(reader)

    def begin(self) -> Entry | None:
        """Let the reader, which is at nothing, go on to the next kept raw event; None: a page must be fetched."""
        if not self._page:
            return None
        number, lane, position, raw, attempts = self._page.popleft()
        return self._ledger.begin_kept(
            self._reader, number, from_text(raw, lane, position), raw, lane, position=position, attempts=attempts
        )

    def ahead(self, begin: int, end: int) -> list[Ahead]:
        """Return what follows in the page that was fetched, from the `begin`th to before the `end`th."""
        found = islice(self._page, begin, end)
        return [Ahead(one.number, from_text(one.raw, one.lane, one.position), one.lane, one.position) for one in found]

    async def fetch(self) -> Sequence[BacklogEntry]:
        """Return the next page, for `take`."""
        reader = self._reader
        self._spilled, self._sure = reader.spilled, not reader.claims
        return await self.backlog.fetch(self._after, PAGE)

    def take(self, page: Sequence[BacklogEntry]) -> bool:
        """Go on to a page, or go live where there is none; False: what was spilled must first be confirmed."""
        reader = self._reader
        self._page.extend(entry for entry in page if entry.number not in reader.unsettled and not self._was_at(entry))
        if len(page) < PAGE:
            self._ledger.catch_up(reader)
        if page:
            self._after = page[-1].number
            return True
        if self._sure and reader.spilled == self._spilled:
            self._ledger.go_live(reader)
        return not reader.claims

    def _was_at(self, entry: BacklogEntry) -> bool:
        """Whether this is what the reader was at when it was spilled, and went on with."""
        moved = self._reader.moved
        if moved is None or moved.position != entry.position or moved.lane.name != entry.lane or text_of(moved) != entry.raw:
            return False
        self._ledger.found(self._reader, entry.number)
        return True
