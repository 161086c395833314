"""Send messages to a queue, from any thread or task of any process on this host."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Lock
from time import time_ns
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from headrace.errors import UpstreamError, UsageError
from headrace.sources.group_commit import GroupCommit
from headrace.sources.outgoing import Key, LaneLayout, LaneNames, OutgoingMessage, SentMessage, draft, drafts
from headrace.sources.queue.file import BUSY_SECONDS, LAST_IN_LANE, QueueFile, has_more_than, lane_name, lane_row, new_change, row_id_of
from headrace.sources.queue.wakeup import wake_reader

MAX_IDS: Final = 10_000
"""Maximum number of lanes whose ids a writer caches."""
Answer = list[SentMessage] | UsageError
R = TypeVar("R")


class QueueWriter:
    """Sends messages to the queue at `path`, which is created if it does not exist. A sync and async context manager.

    When `send` returns, the message is on disk. Messages with the same key are in the same lane, in order. A message without a lane or key
    goes to any lane. Raises `UpstreamError` if the queue cannot be opened.

    A commit waits up to `busy_seconds` for other processes that use the queue, then raises `StorageBusy`.
    """

    def __init__(self, path: str | Path, *, lanes: LaneNames = None, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path = Path(path).expanduser()
        self._lanes = lanes
        self._busy_seconds = busy_seconds
        self._thread: ThreadPoolExecutor | None = None
        self._lock = Lock()
        self._file: QueueFile | None = None
        self._ids: dict[str, int] = {}
        self._turn = count()
        self._group: GroupCommit[list[OutgoingMessage], Answer] = GroupCommit(self._append_in_thread)

    def __enter__(self) -> Self:
        with self._lock:
            self._file = QueueFile(self._path, lanes=self._lanes, busy_seconds=self._busy_seconds)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
            if self._thread is not None:
                self._thread.shutdown(wait=False)
                self._thread = None

    async def __aenter__(self) -> Self:
        return await self._in_thread(self.__enter__)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self._group.aclose()
        await self._in_thread(lambda: self.__exit__(kind, error, traceback))

    def send(self, value: Any, *, lane: str | None = None, key: str | None = None) -> SentMessage:
        """Send one JSON value, or a `msgspec.Raw` of JSON text.

        Raises `UsageError` if the value is not JSON or too long, or if the lane is unknown.
        """
        return _sent(self._append([[draft(value, lane, key)]])[0])[0]

    def send_many(self, values: Iterable[Any], *, lane: str | None = None, key: Key = None) -> int:
        """Send the values in one commit, all or none, and return their number. `key` may be a function of the value."""
        return len(_sent(self._append([drafts(values, lane, key)])[0]))

    async def asend(self, value: Any, *, lane: str | None = None, key: str | None = None) -> SentMessage:
        """Send one value without blocking the event loop. Concurrent sends share a commit."""
        return _sent(await self._group.submit([draft(value, lane, key)]))[0]

    async def asend_many(self, values: Iterable[Any], *, lane: str | None = None, key: Key = None) -> int:
        """Send the values, all or none, without blocking the event loop, and return their number."""
        return len(_sent(await self._group.submit(drafts(values, lane, key))))

    async def append(self, messages: list[OutgoingMessage]) -> list[SentMessage]:
        """Send messages with their metadata, all or none, without blocking the event loop. Concurrent calls share a commit."""
        return _sent(await self._group.submit(messages))

    def has_more_than(self, max_bytes: int) -> bool:
        """Return whether the unread messages have more than `max_bytes`, about. Blocking, but does not wait for a commit. Raises as
        `send` does.
        """
        self._require_open()
        return has_more_than(self._path, max_bytes, busy_seconds=self._busy_seconds)

    async def _append_in_thread(self, several: list[list[OutgoingMessage]]) -> list[Answer]:
        return await self._in_thread(lambda: self._append(several))

    async def _in_thread(self, call: Callable[[], R]) -> R:
        """Call a function in the thread of this writer. A busy queue must not take the threads of others."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace queue writer")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _append(self, several: list[list[OutgoingMessage]]) -> list[Answer]:
        """Write several groups of messages in one commit. A group that names an unknown lane is omitted and gets the error."""
        with self._lock:
            file = self._require_open()
            file.require_file()
            # The writer caches lanes that are created here only once they are durable.
            ids = dict(self._ids) if len(self._ids) < MAX_IDS else {}
            with file.writing() as connection:
                layout = file.layout()
                chosen = [self._choose(layout, group) for group in several]
                answers = self._insert(connection, several, chosen, ids)
            self._ids = ids
        wake_reader(self._path)
        return answers

    def _require_open(self) -> QueueFile:
        if self._file is None:
            raise UsageError(f"The writer of {self._path} is not open.", hint="Use it as `with QueueWriter(path) as queue:`.")
        return self._file

    def _choose(self, layout: LaneLayout, group: list[OutgoingMessage]) -> list[str] | UsageError:
        try:
            return [layout.choose(one, self._turn) for one in group]
        except UsageError as error:
            return error

    def _insert(
        self,
        connection: sqlite3.Connection,
        several: list[list[OutgoingMessage]],
        chosen: list[list[str] | UsageError],
        ids: dict[str, int],
    ) -> list[Answer]:
        now = time_ns() // 1000
        lasts: dict[str, int] = {}
        rows: list[tuple[int, bytes, str | None, bytes | None, int]] = []
        answers: list[Answer] = []
        birthmark = "" if self._file is None else self._file.birthmark
        for group, names in zip(several, chosen, strict=True):
            if isinstance(names, UsageError):
                answers.append(names)
                continue
            sent: list[SentMessage] = []
            for one, name in zip(group, names, strict=True):
                if name not in lasts:
                    ids[name], lasts[name] = lane_row(connection, name, ids.get(name))
                position = lasts[name] = lasts[name] + 1
                rows.append((row_id_of(ids[name], position), one.data, one.key, one.metadata, now))
                sent.append(SentMessage(lane_name(name, birthmark), position))
            answers.append(sent)
        if max(lasts.values(), default=0) > LAST_IN_LANE:
            raise UpstreamError(f"A lane of {self._path} is used up.", hint="Begin another queue.")
        connection.executemany("INSERT INTO message (row_id, data, key, metadata, sent) VALUES (?, ?, ?, ?, ?)", rows)
        change = new_change(connection)
        connection.executemany(
            "UPDATE lane SET last = ?, change = ? WHERE id = ?", [(last, change, ids[name]) for name, last in lasts.items()]
        )
        return answers


def _sent(answer: Answer) -> list[SentMessage]:
    if isinstance(answer, UsageError):
        raise answer
    return answer
