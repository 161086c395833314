"""What a scope holds after each batch, durable under the batch's number.

The file of a batch comes into being by one rename, before any of the batch's output. A batch that runs again begins with the file of the
one before it, so that it gives the same order again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import PipelineError
from headrace.pipeline.durable_files import sync_folder

KEPT: Final = 12
"""How many batches' files are kept; Spark keeps ten batches that it could go back to."""


class Held(msgspec.Struct):
    """Events that a pipeline's batching holds, in order: as columns, and when the oldest and the newest came (µs of the scope's clock)."""

    seqs: list[int] = []
    positions: list[int] = []
    marks: list[str | None] = []
    first: int = 0
    last: int = 0


class Saved(msgspec.Struct):
    """All that a scope holds: its ordering; by pipeline what is held; late firings on events that still wait; hold times by bucket.

    `hold_micros` is the sum of the hold times (µs). The batch read the log up to `read`; the last event that it or one before it read is
    `last_seq`, with the id `last_id` (None: none was read).
    """

    kernel: bytes = b""
    held: dict[str, Held] = {}
    pending: list[tuple[int, str]] = []
    holds: list[int] = []
    hold_micros: int = 0
    read: int = 0
    last_seq: int = 0
    last_id: str | None = None


class OrderingFiles:
    """The files of one scope, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, batch: int) -> Saved:
        """Return what was held after `batch`; nothing before the first.

        Raises:
            PipelineError: There is no such file, though Spark has committed the batch.
        """
        if batch < 0:
            return Saved()
        path = self._path(batch)
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=Saved)
        except FileNotFoundError as error:
            raise PipelineError(
                f"What the scope held after batch {batch} is not in {self._folder}: the checkpoint is not whole.",
                hint="Bring the folder back, or begin anew with: headrace pipeline --reset-order",
            ) from error

    def newest(self) -> Saved | None:
        """Return what was held after the last batch that has a file; None where none has."""
        batches = sorted(int(path.stem) for path in self._folder.glob("*.held"))
        return self.load(batches[-1]) if batches else None

    def save(self, batch: int, saved: Saved) -> None:
        """Keep what is held after `batch`, durably."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(batch)
        draft = path.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(msgspec.msgpack.encode(saved))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_folder(self._folder)
        self._path(batch - KEPT).unlink(missing_ok=True)

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch:09d}.held"
