"""Triggers that do nothing wrong, beside odd ones."""

from __future__ import annotations

from typing import Any

from headrace.sources.directory.upstream import Directory
from headrace.sources.queue.upstream import Queue
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from headrace.triggers.upstream import SharedStreamProducer, Upstream


class Innocent(BaseEventTrigger):
    """Passes on each raw event of an upstream: a queue, or a folder where the path has no ending."""

    def __init__(self, *, path: str) -> None:
        super().__init__()
        self._path = path

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "innocent_triggers.Innocent", {"path": self._path}

    def shared_stream_key(self) -> str:
        return _upstream(self._path).stream_key()

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return _upstream(kwargs["path"]).producer()

    async def handle(self, raw: Any) -> TriggerEvent:
        return TriggerEvent(raw.value)


def _upstream(path: str) -> Upstream:
    return Queue(path) if path.endswith(".q") else Directory(path)
