"""The brokers of Headrace's own upstreams, for the contract suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from headrace.sources.directory.upstream import Directory
from headrace.sources.memory.upstream import Memory
from headrace.sources.queue.upstream import Queue
from headrace.sources.queue.writer import QueueWriter
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream


class FolderBroker(Broker):
    """A folder; a lane is a file, which is moved in by rename, and appended to when more comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "feed"
        self._folder.mkdir()

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
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


class QueueBroker(Broker):
    """A queue in a file, with one sender that stays open."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "orders.queue"
        self._writer = QueueWriter(self._path).__enter__()

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._writer.send_many(map(msgspec.Raw, messages), lane=lane)

    def upstream(self) -> Upstream:
        return Queue(self._path)

    def close(self) -> None:
        self._writer.__exit__(None, None, None)


class MemoryBroker(Broker):
    """A queue in memory with a name of its own."""

    durable: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self._memory = Memory(str(folder))

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._memory.send_many(map(msgspec.Raw, messages), lane=lane)

    def upstream(self) -> Upstream:
        return self._memory

    def close(self) -> None:
        self._memory.clear()
