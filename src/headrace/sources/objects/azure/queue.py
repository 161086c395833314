"""A queue of Azure Queue Storage that receives events about blobs."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_seconds, check_text
from headrace.sources.objects.azure.queue_service import PollSettings, QueueProducer

MIN_NAME_CHARS: Final = 3
MAX_NAME_CHARS: Final = 63
MIN_VISIBILITY_SECONDS: Final = 2
MAX_VISIBILITY_SECONDS: Final = 604_800
MIN_WAIT_SECONDS: Final = 0.1
MAX_WAIT_SECONDS: Final = 20.0
_NAME: Final = re.compile(r"[a-z0-9](?:-?[a-z0-9])+")


class StorageQueue:
    """A queue of Azure Queue Storage to which Event Grid sends the events of a container, for `ObjectStore("az://…", notifications=…)`.

    Args:
        queue: The name of the queue.
        connection: The id of a connection of kind `azure`.
        visibility: The visibility timeout of a received message in seconds. It is extended as long as its object is not finished.
        wait: The seconds between two requests to an empty queue. Closing the upstream takes up to this time.
    """

    def __init__(self, queue: str, *, connection: str = "azure", visibility: int = 30, wait: float = 2.0) -> None:
        if not _NAME.fullmatch(check_text("queue", queue)) or not MIN_NAME_CHARS <= len(queue) <= MAX_NAME_CHARS:
            raise UpstreamError(
                f"Invalid queue {queue!r}.",
                hint=f"Give its name, not its URL: {MIN_NAME_CHARS} to {MAX_NAME_CHARS} lower-case letters, digits and single hyphens.",
            )
        visibility = check_integer("visibility", visibility, MIN_VISIBILITY_SECONDS, MAX_VISIBILITY_SECONDS, "seconds")
        self._settings = PollSettings(queue, visibility, check_seconds("wait", wait, MIN_WAIT_SECONDS, MAX_WAIT_SECONDS))
        self._connection = check_text("connection", connection)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as plain JSON."""
        return {**self._settings._asdict(), "connection": self._connection}

    def producer(self) -> QueueProducer:
        """Return a new reader of the queue. It connects in `open_stream`."""
        return QueueProducer(self._connection, self._settings)
