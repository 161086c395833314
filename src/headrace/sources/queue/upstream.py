"""A queue in one SQLite file, as an upstream: a broker in the box."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from headrace.sources.message import LaneLayout, LaneNames
from headrace.sources.queue.file import LANE_BITS, LAST_IN_LANE, QueueFile, lane_name, plain
from headrace.sources.queue.producer import QueueProducer
from headrace.triggers.project_paths import PROJECT_FOLDER, parse_path, resolve_path
from headrace.triggers.upstream import Upstream


class DeadLetter(NamedTuple):
    """A message that a trigger refused: where it was, its JSON text, how often it was read, and when it was refused."""

    lane: str
    position: int
    data: bytes
    deliveries: int
    rejected: datetime


class Queue(Upstream):
    """The queue in the file `path`, which is made when it is first opened; send to it with a `QueueWriter` or `headrace send`.

    `lanes`: over how many lanes keys are spread, or the lanes' names. None keeps them, and gives a new queue one.
    """

    def __init__(self, path: str | Path, lanes: LaneNames = None) -> None:
        if lanes is not None:
            LaneLayout.of(lanes)
        self._path = parse_path(path)
        self._lanes = lanes

    def stream_key(self) -> str:
        """Return `queue:` and the file; a relative path starts in the project's folder."""
        return f"queue:{PROJECT_FOLDER.resolve(self._path)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the file and lanes as plain JSON."""
        lanes = self._lanes if self._lanes is None or isinstance(self._lanes, int) else list(self._lanes)
        return f"{type(self).__module__}.{type(self).__qualname__}", {"path": str(self._path), "lanes": lanes}

    def producer(self) -> QueueProducer:
        """Return a new producer; the queue is taken over when its stream is opened."""
        producer = QueueProducer(PROJECT_FOLDER.resolve(self._path), self._lanes)
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The type of an event made of a message whose watch does not say otherwise."""
        return "headrace.queue.message"

    def relative_to(self, base: Path) -> Self:
        """Return the same queue as seen from `base`: absolute."""
        return type(self)(resolve_path(base, self._path), self._lanes)

    def dead_letters(self, limit: int = 1000) -> list[DeadLetter]:
        """Return what was rejected, at most `limit`, lane by lane. Blocking. Raises `UpstreamError` when there is no such queue."""
        with closing(QueueFile(self._path, create=False)) as file, plain(self._path):
            rows = file.connection.execute(
                "SELECT name, place & ?, data, deliveries, rejected FROM dead_letter"
                " JOIN lane ON lane.id = place >> ? ORDER BY place LIMIT ?",
                (LAST_IN_LANE, LANE_BITS, limit),
            ).fetchall()
        return [
            DeadLetter(lane_name(name, file.birthmark), position, data, deliveries, datetime.fromtimestamp(rejected / 1e6, UTC))
            for name, position, data, deliveries, rejected in rows
        ]
