"""The far sides that the source contract is run against. An adapter for a new broker adds its own to `BROKERS`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec

from headrace.sources.directory.upstream import Directory
from headrace.sources.memory.upstream import Memory
from headrace.sources.queue.upstream import Queue
from headrace.sources.queue.writer import QueueWriter
from headrace.triggers.upstream import Upstream


class Broker(Protocol):
    """The far side, as a test drives it. `durable`: it outlives the processes that use it."""

    durable: ClassVar[bool]

    def put(self, lane: str, messages: Sequence[bytes]) -> None:
        """Put messages, each the text of a JSON value, at the end of a lane."""

    def upstream(self) -> Upstream:
        """Return the upstream whose producers read all lanes."""

    def close(self) -> None:
        """Leave nothing behind in this process."""


class FolderBroker:
    """A folder; a lane is a file, which is put in by rename, and appended to when more comes."""

    durable: ClassVar[bool] = True

    def __init__(self, tmp_path: Path) -> None:
        self._folder = tmp_path / "feed"
        self._folder.mkdir()

    def put(self, lane: str, messages: Sequence[bytes]) -> None:
        data = b"".join(message + b"\n" for message in messages)
        path = self._folder / f"{lane}.jsonl"
        if path.exists():
            with path.open("ab") as file:
                file.write(data)
        else:
            part = path.with_suffix(".part")
            part.write_bytes(data)
            part.rename(path)

    def upstream(self) -> Upstream:
        return Directory(self._folder)

    def close(self) -> None:
        return


class QueueBroker:
    """A queue in a file, with one sender that stays open."""

    durable: ClassVar[bool] = True

    def __init__(self, tmp_path: Path) -> None:
        self._path = tmp_path / "orders.queue"
        self._writer = QueueWriter(self._path).__enter__()

    def put(self, lane: str, messages: Sequence[bytes]) -> None:
        self._writer.send_many(map(msgspec.Raw, messages), lane=lane)

    def upstream(self) -> Upstream:
        return Queue(self._path)

    def close(self) -> None:
        self._writer.__exit__(None, None, None)


class MemoryBroker:
    """A queue in memory, of a name of its own."""

    durable: ClassVar[bool] = False

    def __init__(self, tmp_path: Path) -> None:
        self._memory = Memory(str(tmp_path))

    def put(self, lane: str, messages: Sequence[bytes]) -> None:
        self._memory.send_many(map(msgspec.Raw, messages), lane=lane)

    def upstream(self) -> Upstream:
        return self._memory

    def close(self) -> None:
        self._memory.clear()


BROKERS: list[type[FolderBroker] | type[QueueBroker] | type[MemoryBroker]] = [FolderBroker, QueueBroker, MemoryBroker]
