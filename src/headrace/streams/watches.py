"""The declared watches of one shared stream, and their matches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from headrace.core.matching.envelope import Envelope
from headrace.core.matching.paths import METADATA, METADATA_FIELD
from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import EventPattern
from headrace.core.matching.projection import Projection
from headrace.core.tracing import TRACEPARENT
from headrace.core.values.limits import has_non_finite
from headrace.core.values.text import describe_error, describe_value
from headrace.errors import MalformedEvent
from headrace.streams.pattern_sampler import PatternSampler
from headrace.triggers.packed import PackedEvent
from headrace.triggers.raw_event import Message, RawEvent
from headrace.triggers.upstream import is_builtin
from headrace.triggers.watch import WatchTrigger


class MatchResult(Struct, eq=False):
    """The watches that match a raw event, by envelope, or the reason in `malformed` why it is unreadable (then `groups` is empty).

    `value` has at least the fields that the watches read.
    """

    raw: RawEvent
    value: Any
    groups: list[tuple[Envelope, tuple[int, ...]]]
    malformed: str | None = None

    def trigger_groups(self, watches: WatchSet) -> Sequence[tuple[int, ...]]:
        """Return the triggers of each obligation: those of each envelope, or all watches together for one dead letter."""
        groups = self.groups
        if len(groups) == 1:
            return (groups[0][1],)
        return [trigger_ids for _, trigger_ids in groups] if self.malformed is None else (watches.trigger_ids,)


class WatchSet:
    """The declared watches with their match index."""

    def __init__(self, triggers: Mapping[int, WatchTrigger]) -> None:
        self._triggers: dict[int, WatchTrigger] = {}
        self._index = MatchIndex()
        self._patterns: dict[int, EventPattern | None] = {}
        self.sampler = PatternSampler()
        """The samples of how often each field of a pattern fails."""
        self._projection = Projection()
        self._projection.add((TRACEPARENT,))
        self.envelopes: dict[int, Envelope] = {}
        """The envelope of each trigger."""
        self._kinds: set[Envelope] = set()
        self._metadata_readers: set[int] = set()
        for trigger_id, trigger in triggers.items():
            self.add(trigger_id, trigger)

    def __len__(self) -> int:
        return len(self.envelopes)

    def __contains__(self, trigger_id: int) -> bool:
        return trigger_id in self.envelopes

    def has_triggers(self, triggers: Mapping[int, WatchTrigger]) -> bool:
        """Return whether the set has exactly these triggers."""
        return self._triggers == triggers

    @property
    def trigger_ids(self) -> tuple[int, ...]:
        """The ids of the triggers."""
        return tuple(self.envelopes)

    def add(self, trigger_id: int, trigger: WatchTrigger) -> None:
        """Add a new trigger."""
        pattern = trigger.pattern
        if pattern is not None and pattern.has_field(METADATA):
            pattern = pattern.with_field_renamed(METADATA, METADATA_FIELD)
            self._metadata_readers.add(trigger_id)
        elif trigger.envelope.reads_metadata:
            self._metadata_readers.add(trigger_id)
        self._index.add(pattern, trigger_id)
        for path in () if pattern is None else pattern.paths:
            self._projection.add(path)
        for declared in trigger.envelope.paths:
            self._projection.add(declared.steps)
        self._patterns[trigger_id] = pattern
        self._triggers[trigger_id] = trigger
        self.envelopes[trigger_id] = trigger.envelope
        self._kinds.add(trigger.envelope)

    def discard(self, trigger_ids: Iterable[int]) -> None:
        """Remove triggers. Unknown ones change nothing."""
        for trigger_id in trigger_ids:
            if self.envelopes.pop(trigger_id, None) is not None:
                self._index.remove(trigger_id)
                self._metadata_readers.discard(trigger_id)
                del self._triggers[trigger_id], self._patterns[trigger_id]
                self.sampler.discard([trigger_id])
        self._kinds = set(self.envelopes.values())

    def match(self, raw: Any, lane: str, position: int | None) -> MatchResult:
        """Return the matches of `raw`: a `RawEvent`, or a mapping, which is encoded. Does not raise."""
        try:
            event = raw if isinstance(raw, RawEvent) else encoded(raw, lane, position)
            value = event.read(self._projection)
            if isinstance(event, Message):
                value = self._message_value(event, value)
            if not isinstance(value, dict):
                return MatchResult(event, value, [], "Not a JSON object.")
            return MatchResult(event, value, self._grouped(self._index.matches(value)))
        except MalformedEvent as error:
            reason = str(error)
        except BaseException as error:  # a class of the user's may raise anything, also SystemExit; it fails only this raw event
            reason = f"It cannot be read: {describe_error(error)}"
        return MatchResult(printed(raw, lane, position), None, [], reason)

    def sample(self, match: MatchResult, now: float) -> None:
        """Count the fields of some patterns that fail on a raw event that `match` returned, at `now` by the clock of the stream."""
        if match.malformed is None:
            self.sampler.sample(self._patterns, match.value, now, size=len(match.raw.data))

    def _message_value(self, message: Message, value: Any) -> Any:
        """Return the value that is matched: an empty object for null, and with the metadata if any watch reads them."""
        if value is None:
            value = {}
        if self._metadata_readers and isinstance(value, dict):
            return {**value, METADATA_FIELD: message.metadata.fields()}
        return value

    def _grouped(self, trigger_ids: Iterable[int]) -> list[tuple[Envelope, tuple[int, ...]]]:
        matched = tuple(trigger_ids)
        if len(matched) <= 1 or len(self._kinds) == 1:
            return [(self.envelopes[matched[0]], matched)] if matched else []
        groups: dict[Envelope, list[int]] = {}
        for trigger_id in matched:
            groups.setdefault(self.envelopes[trigger_id], []).append(trigger_id)
        return [(envelope, tuple(ids)) for envelope, ids in groups.items()]


def printed(raw: Any, lane: str, position: int | None) -> RawEvent:
    """Return a raw event for a dead letter: unchanged, or its `repr`."""
    if isinstance(raw, RawEvent) and is_builtin(f"{type(raw).__module__}.") and type(raw.data) is bytes:
        return raw
    data = None
    with suppress(Exception):
        data = raw.data if isinstance(raw, RawEvent) else None
    return RawEvent(data if type(data) is bytes else describe_value(raw).encode(), lane, position or 0)


def encoded(raw: Any, lane: str, position: int | None) -> RawEvent:
    """Return a mapping as the `RawEvent` that watches read. Raises `MalformedEvent`."""
    if isinstance(raw, PackedEvent):
        return raw.event(lane, position)
    if not isinstance(raw, Mapping):
        raise MalformedEvent(f"A watch reads a RawEvent or a mapping, not {type(raw).__name__}.")
    mapping = dict(raw)
    try:
        data = msgspec.json.encode(mapping)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise MalformedEvent(f"The mapping is not JSON: {describe_error(error)}.") from error
    if has_non_finite(mapping, data):
        raise MalformedEvent("The mapping is not JSON: it has a NaN or an Infinity.")
    return RawEvent(data, lane, position or 0)
