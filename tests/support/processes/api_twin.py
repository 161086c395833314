"""An execution API in memory: a base class for the twins that tests write."""

from __future__ import annotations

from typing import Any

from headrace.wire.calls import execution as calls
from headrace.wire.calls.call import NO_QUERY, Call, Query

_HANDLERS = {
    calls.GET_BACKLOG: "backlog",
    calls.SETTLE_BACKLOG: "settle",
    calls.COUNT_RECEIPTS: "count_receipts",
    calls.GET_LANE_OFFSETS: "recorded_offsets",
    calls.DEFINE_SUBSCRIBER_SET: "define_subscriber_set",
    calls.REPORT_FAILURE: "failure",
    calls.REPORT_STREAM_FAILURE: "stream_failure",
}


class ApiTwin:
    """Hands each call to the method of its name, with the body first, then the parameters of path and query by name."""

    async def request(self, call: Call[Any, Any], body: Any, *, query: Query = NO_QUERY, **parameters: int | str) -> Any:
        handle = getattr(self, _HANDLERS[call])
        return await handle(*([] if body is None else [body]), **parameters, **query)
