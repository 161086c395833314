"""A row of the log as a CloudEvent."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.core.values.moments import moment
from headrace.wire.base import rfc3339


def cloud_event(event: Any, mark: str | None) -> bytes:
    """Return a row of the log as a CloudEvent in structured JSON; the payload is what it was, unread."""
    fields: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "time": rfc3339(moment(event.occurred)),
        "recordedtime": rfc3339(moment(event.received)),
        "sequence": f"{event.seq}",
        "datacontenttype": "application/json",
        "data": msgspec.Raw(event.payload.encode()),
    }
    extra = {"subject": event.subject, "causationid": event.follows, "traceparent": event.trace, "headracemark": mark}
    return msgspec.json.encode(fields | {name: value for name, value in extra.items() if value is not None})
