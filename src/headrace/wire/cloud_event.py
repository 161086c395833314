"""A row of the log as a CloudEvent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace.core.values.moments import moment
from headrace.wire.base import rfc3339
from headrace.wire.event_schema import EVENT_COLUMNS, SCOPE_COLUMNS, ColumnType


def _time(micros: int) -> str:
    return rfc3339(moment(micros))


def _json(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


# The Integer of CloudEvents has 32 bits. Its `sequence` extension is a text too.
_CONVERSIONS: Final[dict[ColumnType, Callable[[Any], object]]] = {"text": str, "integer": str, "time": _time}
_ATTRIBUTES: Final = [
    (column.name, column.cloudevents, _json if column.cloudevents == "data" else _CONVERSIONS[column.type])
    for column in EVENT_COLUMNS
    if column.cloudevents is not None
]
_MARK: Final = next(column.cloudevents for column in SCOPE_COLUMNS if column.cloudevents is not None)


def cloud_event(event: Any, mark: str | None) -> bytes:
    """Return a row of the log as a CloudEvent in structured JSON, with the payload unchanged. Null columns are omitted."""
    attributes: dict[str, object] = {"specversion": "1.0", "datacontenttype": "application/json"}
    for column, attribute, convert in _ATTRIBUTES:
        value = getattr(event, column)
        if value is not None:
            attributes[attribute] = convert(value)
    if mark is not None:
        attributes[_MARK] = mark
    return msgspec.json.encode(attributes)
