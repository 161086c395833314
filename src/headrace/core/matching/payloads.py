"""Event patterns on the payloads of stored events: `events list --match`, `LogEvent(match=)` and the `match` of webhooks.

A payload that is not a JSON object matches no pattern. So does one with arrays or texts that are too long to match.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

import msgspec

from headrace.core.matching.paths import METADATA
from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import EventPattern, parse_pattern
from headrace.core.values.limits import FLAT_JSON_BYTES, is_too_deep
from headrace.core.values.text import describe_error
from headrace.errors import MalformedEvent, ProjectError

MAX_PATTERN_CHARS: Final = 8_000
"""Maximum of a pattern as ASCII JSON, in characters. Each takes at most three bytes of a URL, and the API reads 32 KiB of headers."""
MAX_CACHED_FIELDS: Final = 200_000
"""Fields of all cached patterns; about 100 MB. `_CHARS_PER_FIELD` characters of their texts count as one field."""
_CHARS_PER_FIELD: Final = 200
_UNREAD: Final = object()
_decode = msgspec.json.Decoder().decode


class Payload:
    """The payload of one event. It is decoded once, when the first pattern tests it."""

    __slots__ = ("_value", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._value: Any = _UNREAD

    def decode(self) -> dict[str, Any] | None:
        """Return the fields of the object, or None if the payload is not a JSON object."""
        if self._value is _UNREAD:
            self._value = _object(self.text)
        return self._value  # type: ignore[no-any-return]


class PayloadIndex:
    """The patterns of many consumers of the log, by number. The cost of `matches` follows the patterns that match."""

    def __init__(self) -> None:
        self._index = MatchIndex()

    def __bool__(self) -> bool:
        return bool(len(self._index))

    def add(self, pattern: EventPattern, number: int) -> None:
        """Add a pattern under a number that has none."""
        self._index.add(pattern, number)

    def remove(self, number: int) -> None:
        """Remove a pattern. An unknown number changes nothing."""
        self._index.remove(number)

    def matches(self, payload: Payload) -> list[int]:
        """Return the numbers of the patterns that a payload matches. Does not decode it if there are none.

        Raises:
            MalformedEvent: Its arrays or texts are too long to match all patterns together.
        """
        if not self:
            return []
        fields = payload.decode()
        return [] if fields is None else self._index.matches(fields)


class PayloadPattern:
    """One pattern."""

    def __init__(self, pattern: EventPattern) -> None:
        self._index = PayloadIndex()
        self._index.add(pattern, 0)

    def matches(self, payload: Payload) -> bool:
        """Return whether a payload matches."""
        try:
            return bool(self._index.matches(payload))
        except MalformedEvent:
            return False


def pattern_text(pattern: Mapping[str, Any], argument: str = "match=") -> str:
    """Return a valid pattern as ASCII JSON, the form in which it is sent and stored. Raises `ProjectError`."""
    try:
        text = json.dumps(pattern, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        parse_pattern(pattern, argument)  # names the path
        raise ProjectError(f"{argument} is not JSON: {describe_error(error)}.", hint="Use dictionaries, lists and plain values.") from error
    parse_pattern_text(text, argument)
    return text


def parse_pattern_text(text: str, argument: str = "match=") -> EventPattern:
    """Return the pattern of a JSON text; a pattern that was parsed lately is not parsed again. Raises `ProjectError`."""
    pattern = _cache.get(text)
    if pattern is None:
        pattern = _parsed(text, argument)
        _cache.put(text, pattern)
    return pattern


def _parsed(text: str, argument: str) -> EventPattern:
    if len(text) > MAX_PATTERN_CHARS:
        raise ProjectError(
            f"{argument} has {len(text):,} characters as JSON.", hint=f"A pattern that is stored or sent has at most {MAX_PATTERN_CHARS:,}."
        )
    encoded = text.encode(errors="replace")
    if is_too_deep(encoded):
        raise ProjectError(f"{argument} is nested too deep.", hint="A pattern has few levels of fields.")
    try:
        value = _decode(encoded)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ProjectError(f"{argument} is not JSON: {describe_error(error)}.", hint="""Write it like {"carrier": ["UA"]}.""") from error
    pattern = parse_pattern(value, argument)
    if pattern.has_field(METADATA):
        raise ProjectError(
            f"In {argument}, {METADATA} names the metadata of a message, which the log does not have.",
            hint="Test fields of the payload. A watch can test metadata.",
        )
    return pattern


def _object(text: str) -> dict[str, Any] | None:
    try:
        encoded = text.encode()
        if len(encoded) > FLAT_JSON_BYTES and is_too_deep(encoded):
            return None
        value = _decode(encoded)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if type(value) is dict else None


class _PatternCache:
    """The patterns that were used last, by text."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._patterns: OrderedDict[str, EventPattern] = OrderedDict()
        self._size = 0

    def get(self, text: str) -> EventPattern | None:
        """Return the pattern of a text, if it is cached."""
        with self._lock:
            pattern = self._patterns.get(text)
            if pattern is not None:
                self._patterns.move_to_end(text)
            return pattern

    def put(self, text: str, pattern: EventPattern) -> None:
        """Cache a pattern; drop the least recently used patterns."""
        with self._lock:
            if text not in self._patterns:
                self._patterns[text] = pattern
                self._size += _size(text, pattern)
            while self._size > MAX_CACHED_FIELDS and len(self._patterns) > 1:
                self._size -= _size(*self._patterns.popitem(last=False))


def _size(text: str, pattern: EventPattern) -> int:
    return sum(map(len, pattern.alternatives)) + len(text) // _CHARS_PER_FIELD + 1


_cache: Final = _PatternCache()
