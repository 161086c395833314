"""The envelope of an event: which of a raw event's fields become the event's `id`, `follows`, `subject` and so on.

The law: what is declared must be there. A declared `id`, `subject` or `occurred` (or a `source` or `type` given as a path) that is
absent or null is a `MissingField`, one that is of another type or too long a `WrongField`; a declared `follows` that is absent, null
or empty is a first event. An id that is not declared is made of (stream, lane, position), so that a redelivery has the same id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from headrace.core.matching.paths import JsonPath
from headrace.core.values.text import id_part, is_storable
from headrace.errors import MissingField, WrongField

MAX_TEXT: Final = 1000
"""The longest id, source and follows, in characters."""
MAX_TYPE: Final = 200
"""The longest type, in characters."""

_T = TypeVar("_T")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EventFields(NamedTuple):
    """What the envelope makes of one raw event; `occurred` is in UTC."""

    id: str
    source: str
    type: str
    subject: str | None
    occurred: datetime | None
    follows: str | None


@dataclass(frozen=True, slots=True)
class Envelope:
    """Where an event's fields come from; hashable, so that watches that agree share one event.

    `source` and `type` are a path or the text itself.
    """

    source: str | JsonPath
    type: str | JsonPath
    id: JsonPath | None = None
    follows: JsonPath | None = None
    subject: JsonPath | None = None
    occurred: JsonPath | None = None

    def seal(self, value: Any, *, stream: str, lane: str, position: int | None) -> EventFields:
        """Return the fields of the event that `value` is. Raises `MissingField`, which names the path and what is wrong there."""
        source, kind = self.source, self.type
        return EventFields(
            id=_place(stream, lane, position) if self.id is None else _required(self.id, value, _name),
            source=source if isinstance(source, str) else _required(source, value, _name),
            type=kind if isinstance(kind, str) else _required(kind, value, _type),
            subject=None if self.subject is None else _required(self.subject, value, _text),
            occurred=None if self.occurred is None else _required(self.occurred, value, _moment),
            follows=None if self.follows is None else _optional(self.follows, value),
        )


class _Wrong(Exception):
    """A value cannot be what the envelope wants of it; the argument says what it would have to be."""


def _place(stream: str, lane: str, position: int | None) -> str:
    if position is None:
        raise MissingField(
            f"The upstream {stream} gives no position to make an id of.", hint="Say in the watch which field is the id: id='$.…'."
        )
    if len(place := f"{stream}/{id_part(lane)}/{position}") > MAX_TEXT:
        raise WrongField(f"The id made of stream, lane and position is longer than {MAX_TEXT} characters.")
    return place


def _required(path: JsonPath, value: Any, convert: Callable[[Any], _T]) -> _T:
    found = path.find(value)
    if found is None:
        raise MissingField(f"The event has no {path}, which the watch declares.")
    try:
        return convert(found)
    except _Wrong as wrong:
        raise WrongField(f"The event's {path} is not {wrong}.") from wrong


def _optional(path: JsonPath, value: Any) -> str | None:
    found = path.find(value)
    if found is None or found == "":
        return None
    return _required(path, value, _name)


def _text(found: Any) -> str:
    if isinstance(found, str):
        if not is_storable(found):
            raise _Wrong("a text without NUL")
        return found
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise _Wrong("a text or a number")
    # 12 and 12.0 are one number in JSON, and must name one event.
    try:
        return str(int(found)) if isinstance(found, float) and found.is_integer() else str(found)
    except ValueError as error:  # Python writes no number of more than 4,300 digits
        raise _Wrong("a number of at most 4,300 digits") from error


def _name(found: Any) -> str:
    if not 0 < len(text := _text(found)) <= MAX_TEXT:
        raise _Wrong(f"between 1 and {MAX_TEXT} characters long")
    return text


def _type(found: Any) -> str:
    if not 0 < len(text := _text(found)) <= MAX_TYPE:
        raise _Wrong(f"between 1 and {MAX_TYPE} characters long")
    return text


def _moment(found: Any) -> datetime:
    wrong = _Wrong("a moment: RFC 3339 text with an offset, or seconds since 1970")
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        raise wrong
    try:
        moment = datetime.fromisoformat(found) if isinstance(found, str) else _EPOCH + timedelta(seconds=found)
        if moment.tzinfo is None:
            raise wrong
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise wrong from error
