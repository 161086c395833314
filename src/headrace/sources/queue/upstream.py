"""A queue in one SQLite file as an upstream: a built-in broker."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from headrace.sources.outgoing import LaneLayout, LaneNames
from headrace.sources.queue.file import LANE_BITS, LAST_IN_LANE, QueueFile, lane_name, plain
from headrace.sources.queue.producer import QueueProducer
from headrace.triggers.project_paths import PROJECT_FOLDER, parse_path, resolve_path
from headrace.triggers.upstream import Upstream


class DeadLetter(NamedTuple):
    """A message that a trigger rejected: its lane and position, JSON text, number of deliveries, and time of the rejection."""

    lane: str
    position: int
    data: bytes
    deliveries: int
    rejected: datetime


class Queue(Upstream):
    """A durable queue in one file. Send messages with a `QueueWriter` or `headrace send`.

    The file is created when it is first opened. `lanes` is the number of lanes over which keys are spread, or the names of the lanes. None
    keeps the lanes of an existing file, and gives a new one a single lane.
    """

    def __init__(self, path: str | Path, lanes: LaneNames = None) -> None:
        if lanes is not None:
            LaneLayout.of(lanes)
        self._path = parse_path(path)
        self._lanes = lanes

    @property
    def path(self) -> Path:
        """The file of the queue. A relative path starts in the project's folder."""
        return PROJECT_FOLDER.resolve(self._path)

    def stream_key(self) -> str:
        """Return `queue:` with the file. A relative path starts in the project's folder."""
        return f"queue:{self.path}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the file and lanes as plain JSON."""
        lanes = self._lanes if self._lanes is None or isinstance(self._lanes, int) else list(self._lanes)
        return f"{type(self).__module__}.{type(self).__qualname__}", {"path": str(self._path), "lanes": lanes}

    def producer(self) -> QueueProducer:
        """Return a new producer. It opens the queue in `open_stream`."""
        producer = QueueProducer(self.path, self._lanes)
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.queue.message"

    def relative_to(self, base: Path) -> Self:
        """Return the same queue with an absolute path, resolved against `base`."""
        return type(self)(resolve_path(base, self._path), self._lanes)

    def dead_letters(self, limit: int = 1000) -> list[DeadLetter]:
        """Return at most `limit` rejected messages, lane by lane. Blocking. Raises `UpstreamError` if the queue does not exist."""
        with closing(QueueFile(self._path, create=False)) as file, plain(self._path):
            rows = file.connection.execute(
                "SELECT name, row_id & ?, data, deliveries, rejected FROM dead_letter"
                " JOIN lane ON lane.id = row_id >> ? ORDER BY row_id LIMIT ?",
                (LAST_IN_LANE, LANE_BITS, limit),
            ).fetchall()
        return [
            DeadLetter(lane_name(name, file.birthmark), position, data, deliveries, datetime.fromtimestamp(rejected / 1e6, UTC))
            for name, position, data, deliveries, rejected in rows
        ]
