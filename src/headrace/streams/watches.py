"""The declared watches of one shared stream, and what they make of a raw event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from headrace.core.envelope import Envelope
from headrace.core.patterns import MatchIndex
from headrace.errors import MalformedEvent
from headrace.triggers.raw import RawEvent
from headrace.triggers.watch import WatchTrigger


class Wanted(NamedTuple):
    """Who wants a raw event: the triggers with each envelope; or why nobody can read it (then `groups` is empty)."""

    raw: RawEvent
    value: Any
    groups: list[tuple[Envelope, tuple[int, ...]]]
    malformed: str | None = None


class WatchSet:
    """The declared watches, all of them together; an index decides which of them want a raw event."""

    def __init__(self, triggers: Mapping[int, WatchTrigger]) -> None:
        self._index = MatchIndex()
        self._envelopes: dict[int, Envelope] = {}
        for trigger_id, trigger in triggers.items():
            self._index.add(trigger.match, trigger_id)
            self._envelopes[trigger_id] = trigger.envelope
        self._kinds = set(self._envelopes.values())

    def __len__(self) -> int:
        return len(self._envelopes)

    def __contains__(self, trigger_id: int) -> bool:
        return trigger_id in self._envelopes

    @property
    def trigger_ids(self) -> tuple[int, ...]:
        """The ids of the triggers."""
        return tuple(self._envelopes)

    def discard(self, trigger_id: int) -> None:
        """Remove a trigger; one that is not there changes nothing."""
        if self._envelopes.pop(trigger_id, None) is not None:
            self._index.remove(trigger_id)
            self._kinds = set(self._envelopes.values())

    def wants(self, raw: Any, lane: str, position: int | None) -> Wanted:
        """Return who wants `raw`: a `RawEvent`, or a mapping, which is encoded."""
        try:
            event = raw if isinstance(raw, RawEvent) else _encoded(raw, lane, position)
            value = event.value
            if not isinstance(value, dict):
                return Wanted(event, value, [], "Not a JSON object.")
            return Wanted(event, value, self._grouped(self._index.matches(value)))
        except MalformedEvent as error:
            return Wanted(_shown(raw, lane, position), None, [], str(error))

    def _grouped(self, trigger_ids: Iterable[int]) -> list[tuple[Envelope, tuple[int, ...]]]:
        matched = tuple(trigger_ids)
        if len(matched) <= 1 or len(self._kinds) == 1:
            return [(self._envelopes[matched[0]], matched)] if matched else []
        groups: dict[Envelope, list[int]] = {}
        for trigger_id in matched:
            groups.setdefault(self._envelopes[trigger_id], []).append(trigger_id)
        return [(envelope, tuple(ids)) for envelope, ids in groups.items()]


def _encoded(raw: Any, lane: str, position: int | None) -> RawEvent:
    if not isinstance(raw, Mapping):
        raise MalformedEvent(f"A watch reads a RawEvent or a mapping, not {type(raw).__name__}.")
    try:
        return RawEvent(msgspec.json.encode(dict(raw)), lane, position or 0)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise MalformedEvent(f"The mapping is not JSON: {error}.") from error


def _shown(raw: Any, lane: str, position: int | None) -> RawEvent:
    return raw if isinstance(raw, RawEvent) else RawEvent(repr(raw).encode(errors="replace"), lane, position or 0)
