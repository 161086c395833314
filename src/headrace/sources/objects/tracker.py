"""Which objects are finished, in progress or new. No clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from headrace.sources.leases.leases import Part
from headrace.sources.objects.digests import DigestSet
from headrace.sources.objects.location import StoredObject
from headrace.sources.objects.state import OpenEntry

MAX_ENDED_LANES: Final = 1_000
"""Finished lanes whose last position is known."""
LANE_DIGITS: Final = 12


class TrackedObject:
    """One object that is not finished.

    `at`: all before this byte is advanced. `last` is the start of the last line that was read, `committed` that of the last line that is
    done. `owed`: the end of the last line that was read. `parts` are its notifications.
    """

    __slots__ = ("at", "committed", "committing", "digest", "failures", "has_ended", "is_held", "lane", "last", "owed", "parts", "stored")

    def __init__(self, stored: StoredObject, digest: bytes) -> None:
        self.stored = stored
        self.digest = digest
        self.lane = f"{lane_text(stored.key)}@{digest.hex()[:LANE_DIGITS]}"
        self.parts: list[Part] = []
        self.at = self.owed = 0
        self.last: int | None = None
        self.committing: int | None = None
        """The start of the last line that is advanced, whether it is durable or not."""
        self.committed: int | None = None
        self.failures = 0
        """How often it could not be read since it was last read."""
        self.has_ended = False
        """Whether it was read to its end."""
        self.is_held = False
        """Whether a trigger has failed on it: it is read again at the next opening."""

    @property
    def is_done(self) -> bool:
        """Whether all of it is advanced."""
        return self.has_ended and self.at >= self.owed and not self.is_held

    def entry(self) -> OpenEntry:
        """Return what the state has of it."""
        key, etag, size, modified_ms, version = self.stored
        return OpenEntry(key, etag, size, modified_ms, self.at, self.committing, version)


class ObjectPosition(NamedTuple):
    """The broker payload of a raw event: its object, and the line from `start` to `end` of it, or 0 for the object itself."""

    tracked: TrackedObject
    start: int = 0
    end: int = 0


class Tracker:
    """The objects of one opening. `finished` is shared with the state."""

    def __init__(self, finished: DigestSet) -> None:
        self.seen: DigestSet | None = None
        """What the running listing has, and what was finished since it began."""
        self._finished = finished
        self._open: dict[bytes, TrackedObject] = {}
        self._lanes: dict[str, TrackedObject] = {}
        self._ended: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def list(self, stored: StoredObject) -> TrackedObject | None:
        """Record an object of the listing. Return it if it is new."""
        digest = stored.digest
        if self.seen is not None:
            self.seen.add(digest)
        return self._new(stored, digest)

    def resume(self, entry: OpenEntry) -> TrackedObject:
        """Continue with an object that was in progress at the end of the last opening."""
        tracked = self._add(entry.stored, entry.stored.digest)
        tracked.at = tracked.owed = entry.at
        tracked.last = tracked.committing = tracked.committed = entry.last
        return tracked

    def notify(self, stored: StoredObject, part: Part) -> tuple[TrackedObject | None, bool]:
        """Record a notification. Return the object if it is new, and whether the notification waits for its end.

        An object of a listing has no version. It takes that of the notification: with it, the object is read also if it is replaced.
        """
        digest = stored.digest
        tracked = self._open.get(digest)
        is_new = tracked is None
        if tracked is None:
            tracked = self._new(stored, digest)
            if tracked is None:
                return None, False
        elif tracked.stored.version is None and stored.version is not None:
            tracked.stored = tracked.stored._replace(version=stored.version)
        tracked.parts.append(part)
        return (tracked if is_new else None), True

    def is_open(self, tracked: TrackedObject) -> bool:
        """Return whether the object is neither finished nor missing."""
        return self._open.get(tracked.digest) is tracked

    def finish(self, tracked: TrackedObject) -> None:
        """Record that the state has the object as finished."""
        if self.seen is not None:
            self.seen.add(tracked.digest)
        self._remove(tracked)
        if tracked.last is not None:
            self._ended[tracked.lane] = tracked.last
            if len(self._ended) > MAX_ENDED_LANES:
                self._ended.popitem(last=False)

    def drop(self, tracked: TrackedObject) -> None:
        """Record that the object is missing."""
        self._remove(tracked)

    def lane_end(self, lane: str) -> int | None:
        """Return the start of the lane's last line. Until it is read, return the size, which is beyond it."""
        tracked = self._lanes.get(lane)
        if tracked is None:
            return self._ended.get(lane)
        return tracked.last if tracked.has_ended else tracked.stored.size

    def committed(self, lane: str) -> int | None:
        """Return the start of the last line that is done, or None before the first."""
        tracked = self._lanes.get(lane)
        return self._ended.get(lane) if tracked is None else tracked.committed

    def _new(self, stored: StoredObject, digest: bytes) -> TrackedObject | None:
        return None if digest in self._open or digest in self._finished else self._add(stored, digest)

    def _add(self, stored: StoredObject, digest: bytes) -> TrackedObject:
        tracked = self._open[digest] = TrackedObject(stored, digest)
        self._lanes[tracked.lane] = tracked
        return tracked

    def _remove(self, tracked: TrackedObject) -> None:
        self._open.pop(tracked.digest, None)
        self._lanes.pop(tracked.lane, None)


def lane_text(key: str) -> str:
    r"""Return a key without control characters: they become `\xNN`, and a backslash becomes two."""
    if key.isprintable() and "\\" not in key:
        return key
    return "".join("\\\\" if char == "\\" else char if char.isprintable() else f"\\x{ord(char):02x}" for char in key)
