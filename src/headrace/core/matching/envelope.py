"""The envelope of an event: the fields of a raw event that become the event's `id`, `follows`, `subject` and so on.

The law: declared fields are required. A declared `id`, `subject` or `occurred` (or a `source` or `type` given as a path) that is
absent or null raises `MissingField`; one of another type or length raises `WrongField`. An event whose declared `follows` is absent, null
or empty has no leader. An id that is not declared is derived from the id of the message, or else from (stream, lane, position), so that a
redelivery has the same id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypedDict, TypeVar

from headrace.core.matching.paths import JsonPath
from headrace.core.values.text import id_part, is_storable
from headrace.errors import MissingField, WrongField

MAX_TEXT: Final = 1000
"""Maximum of an id, source or follows, in characters."""
MAX_TYPE: Final = 200
"""Maximum of a type, in characters."""

_T = TypeVar("_T")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EventFields(NamedTuple):
    """The fields of one event; `occurred` is in UTC."""

    id: str
    source: str
    type: str
    subject: str | None = None
    occurred: datetime | None = None
    follows: str | None = None


_fields: Final = partial(tuple.__new__, EventFields)
"""`EventFields` of a tuple, without the detour that every named tuple takes in Python."""


class EventPaths(TypedDict, total=False):
    """The paths of the fields of an event: `$.a.b[0]` in its JSON, `@.key` in the metadata of a message. `source` and `type` are a path or
    the text itself.
    """

    id: str | None
    follows: str | None
    subject: str | None
    occurred: str | None
    type: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class Envelope:
    """The sources of an event's fields. It is hashable, so that watches with equal envelopes share one event.

    `source` and `type` are a path or the text itself. Ids derive from `stream` if it is given, else from the stream that is read.
    """

    source: str | JsonPath
    type: str | JsonPath
    id: JsonPath | None = None
    follows: JsonPath | None = None
    subject: JsonPath | None = None
    occurred: JsonPath | None = None
    stream: str | None = None

    @property
    def paths(self) -> tuple[JsonPath, ...]:
        """The paths of the fields."""
        fields = (self.source, self.type, self.id, self.follows, self.subject, self.occurred)
        return tuple(path for path in fields if isinstance(path, JsonPath))

    @property
    def reads_metadata(self) -> bool:
        """Whether a field comes from the metadata of a message."""
        return any(path.reads_metadata for path in self.paths)

    def extract(self, value: Any, *, stream: str, lane: str, position: int | None, message_id: str | None = None) -> EventFields:
        """Return the fields of the event in `value`. Raises `MissingField` or `WrongField`, which name the path and the error.

        `position` is None if the upstream has none.
        """
        source, kind = self.source, self.type
        return _fields(
            (
                _origin_id(self.stream or stream, lane, position, message_id) if self.id is None else _required(self.id, value, _name),
                source if isinstance(source, str) else _required(source, value, _name),
                kind if isinstance(kind, str) else _required(kind, value, _type),
                None if self.subject is None else _required(self.subject, value, _text),
                None if self.occurred is None else _required(self.occurred, value, _moment),
                None if self.follows is None else _optional(self.follows, value),
            )
        )


class _Wrong(Exception):
    """A value is invalid for its field. The argument describes a valid one."""


def _origin_id(stream: str, lane: str, position: int | None, message_id: str | None) -> str:
    if message_id is not None:
        id = f"{stream}/{id_part(message_id)}"
        if not is_storable(id):
            raise WrongField("The id of the message is not a text without NUL.")
    elif position is not None:
        id = f"{stream}/{id_part(lane)}/{position}"
    else:
        raise MissingField(
            f"The upstream {stream} gives neither a position nor an id of the message.",
            hint="Declare in the watch which field is the id: id='$.…'.",
        )
    if len(id) > MAX_TEXT:
        raise WrongField(f"The id made of {id[:100]!r} … is longer than {MAX_TEXT} characters.")
    return id


def _required(path: JsonPath, value: Any, convert: Callable[[Any], _T]) -> _T:
    field = path.find(value)
    if field is None:
        raise MissingField(f"The event has no {path}, which the watch declares.")
    try:
        return convert(field)
    except _Wrong as wrong:
        raise WrongField(f"The event's {path} is not {wrong}.") from wrong


def _optional(path: JsonPath, value: Any) -> str | None:
    field = path.find(value)
    if field is None or field == "":
        return None
    return _required(path, value, _name)


def _text(field: Any) -> str:
    if isinstance(field, str):
        if not is_storable(field):
            raise _Wrong("a text without NUL")
        return field
    if isinstance(field, bool) or not isinstance(field, int | float):
        raise _Wrong("a text or a number")
    # 12 and 12.0 are the same number in JSON, and must give the same id.
    try:
        return str(int(field)) if isinstance(field, float) and field.is_integer() else str(field)
    except ValueError as error:  # Python writes no number of more than 4,300 digits
        raise _Wrong("a number of at most 4,300 digits") from error


def _name(field: Any) -> str:
    if not 0 < len(text := _text(field)) <= MAX_TEXT:
        raise _Wrong(f"between 1 and {MAX_TEXT} characters long")
    return text


def _type(field: Any) -> str:
    if not 0 < len(text := _text(field)) <= MAX_TYPE:
        raise _Wrong(f"between 1 and {MAX_TYPE} characters long")
    return text


def _moment(field: Any) -> datetime:
    wrong = _Wrong("a moment: RFC 3339 text with an offset, or seconds since 1970")
    if isinstance(field, bool) or not isinstance(field, int | float | str):
        raise wrong
    try:
        moment = datetime.fromisoformat(field) if isinstance(field, str) else _EPOCH + timedelta(seconds=field)
        if moment.tzinfo is None:
            raise wrong
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise wrong from error
