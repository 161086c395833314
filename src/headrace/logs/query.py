"""Queries of a log, for the API and for the process that writes the log, with the headers of the response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.logs.follower import Successor, follow
from headrace.logs.names import LogName
from headrace.logs.reader import offset_of_last, read_page

MEDIA_TYPE: Final = "application/x-ndjson; charset=utf-8"
START: Final = "Headrace-Log-Start"
"""Header: the offset of the response's first byte."""
JOB: Final = "Headrace-Log-Job"
"""Header: the job of a trigger's log."""
END: Final = "Headrace-Log-End"
"""Header: the offset for the next request; missing if the log is followed."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A range of a log: from offset `after`, or the `last` lines, or everything. `follow`: continue as it grows."""

    after: int | None = None
    last: int | None = None
    follow: bool = False

    def query(self) -> dict[str, str]:
        """Return the query parameters of a request."""
        values = {"after": self.after, "last": self.last, "follow": int(self.follow) or None}
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> LogQuery:
        """Return the query in a request's parameters. Raises ValueError."""
        after, last = (int(query[name]) if name in query else None for name in ("after", "last"))
        if (after or 0) < 0 or (last or 0) < 0:
            raise ValueError("an offset and a number of lines are not negative")
        return cls(after, last, query.get("follow") == "1")


@dataclass(frozen=True, slots=True)
class LogResponse:
    """The headers of a response and its content: one page, then the pages that `more` yields."""

    headers: dict[str, str]
    data: bytes
    more: AsyncGenerator[bytes] | None = None


async def respond(root: Path, name: LogName, query: LogQuery, successor: Successor | None = None) -> LogResponse:
    """Return the queried range of a log below `root`. It is empty if the log does not exist yet."""
    after = query.after
    if after is None:
        after = 0 if query.last is None else await asyncio.to_thread(offset_of_last, root, name, query.last)
    page = await asyncio.to_thread(read_page, root, name, after)
    start, end, data = page or (after, after, b"")
    headers = {START: str(start)} | ({JOB: str(name.job_id)} if name.job_id else {})
    if not query.follow:
        return LogResponse(headers | {END: str(end)}, data)
    return LogResponse(headers, data, follow(root, name, end, *filter(None, [successor])))
