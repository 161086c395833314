"""What one asks of a log, the same of the api and of the process that writes it, and how the answer is headed."""

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
"""Header: the offset of the answer's first byte."""
JOB: Final = "Headrace-Log-Job"
"""Header: the job whose log of a trigger it is."""
END: Final = "Headrace-Log-End"
"""Header: the offset to ask for next; not there where the log is followed."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """From the offset `after` on, else the `last` lines, else from the beginning; `follow`: and on as it grows."""

    after: int | None = None
    last: int | None = None
    follow: bool = False

    def query(self) -> dict[str, str]:
        """Return this as the parameters of a request."""
        given = {"after": self.after, "last": self.last, "follow": int(self.follow) or None}
        return {name: str(value) for name, value in given.items() if value is not None}

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> LogQuery:
        """Return what a request's parameters ask for. Raises ValueError."""
        after, last = (int(query[name]) if name in query else None for name in ("after", "last"))
        if (after or 0) < 0 or (last or 0) < 0:
            raise ValueError("an offset and a number of lines are not negative")
        return cls(after, last, query.get("follow") == "1")


@dataclass(frozen=True, slots=True)
class Answer:
    """The headers of an answer and its content: a page, or what `more` yields."""

    headers: dict[str, str]
    data: bytes
    more: AsyncGenerator[bytes] | None = None


async def answer(root: Path, name: LogName, asked: LogQuery, successor: Successor | None = None) -> Answer:
    """Return what was asked of a log below `root`; nothing where nothing was logged yet."""
    after = asked.after
    if after is None:
        after = 0 if asked.last is None else await asyncio.to_thread(offset_of_last, root, name, asked.last)
    page = await asyncio.to_thread(read_page, root, name, after)
    start, end, data = page or (after, after, b"")
    headers = {START: str(start)} | ({JOB: str(name.job_id)} if name.job_id else {})
    if not asked.follow:
        return Answer(headers | {END: str(end)}, data)
    return Answer(headers, data, follow(root, name, end, *filter(None, [successor])))
